"""Measure this machine: jobs and kernels of trnqc beside PySCF, e3nn, opt_einsum and SciPy, as far as installed.

Both sides run in turns, each run in a process of its own, with the same threads. Our kernels are compiled before; the
time that takes is shown. A quick run takes about two minutes with compiled kernels, --full about half an hour.
"""

from __future__ import annotations

import argparse
import datetime
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from trnqc import bench
from trnqc.bench import runs
from trnqc.bench.case import installed
from trnqc.bench.figure import duration
from trnqc.cli import machine
from trnqc.errors import InputError
from trnqc.host.files import write_aside
from trnqc.host.output import add_output, console_of, write_json
from trnqc.host.progress import StageBars
from trnqc.host.threads import cpus

# Wall seconds after which a case gets no further round.
QUICK, FULL = 10.0, 240.0
PACKAGES = ("trnqc", "pyscf", "numpy", "scipy", "torch", "e3nn", "opt_einsum")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare which cases are measured, how, and which files are written."""
    extent = parser.add_mutually_exclusive_group()
    extent.add_argument("--quick", action="store_true", help="the cases of some seconds (the default)")
    extent.add_argument("--full", action="store_true", help="all cases, with more rounds")
    extent.add_argument("--cases", nargs="+", metavar="CASE", help=f"only these: {', '.join(bench.CASES)}")
    parser.add_argument(
        "--threads", type=int, default=cpus(), metavar="N", help="threads of both (default: %(default)s)"
    )
    parser.add_argument(
        "--installed-blas",
        action="store_true",
        help="let each OpenBLAS choose its kernels; by default both sides get the fastest that their OpenBLAS has",
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with pictures")
    add_output(parser, "all figures")


def run(args: argparse.Namespace) -> int:
    """Measure and print. The exit status is 0 also where trnqc is slower, because that is a valid answer."""
    if args.threads < 1:
        raise InputError(f"--threads must be positive, got {args.threads}")
    cases = _chosen(args)
    left_out = [f"{case.what}: {', '.join(case.missing())} is not installed." for case in cases if case.missing()]
    rows = list(_rows(args, [case for case in cases if not case.missing()]))
    facts = _facts(args)
    console = console_of(args)
    console.print(table(rows))
    for sentence in _sentences(rows, facts, left_out):
        console.print(Text(sentence))
    write_json(args, {"facts": facts, "rows": [row.plain() for row in rows], "left out": left_out})
    if args.html:
        write_aside(args.html, bench.page("trnqc on this machine", facts, _sections(rows), left_out))
    return 0


def table(rows: Sequence[bench.Row]) -> Table:
    """A table with a row for each case."""
    shown = Table(title="trnqc on this machine", title_justify="left")
    shown.add_column("what")
    for heading in ("beside", "its time", "trnqc", "times\nfaster"):
        shown.add_column(heading, justify="left" if heading == "beside" else "right", no_wrap=True)
    for row in rows:
        figure = row.figure()
        gain = Text(f"{figure.ratio:.2f}", style="green" if figure.ratio >= 1 else "red")
        shown.add_row(Text(figure.what), figure.rival, duration(figure.theirs), duration(figure.ours), gain)
    return shown


def _sentences(rows: Sequence[bench.Row], facts: Mapping[str, str], left_out: Sequence[str]) -> Iterator[str]:
    """What stands below the table."""
    if rows:
        compiling, rounds = sum(row.compile_seconds for row in rows), [row.rounds for row in rows]
        yield (
            f"Medians of {min(rounds)} to {max(rounds)} rounds in turns; {facts['machine']}; {facts['BLAS']}. Before, "
            f"our kernels were compiled in {compiling:.0f} s. Results differ by at most "
            f"{max(row.difference for row in rows):.0e} of the largest element."
        )
    yield from left_out


def _chosen(args: argparse.Namespace) -> list[bench.Case]:
    unknown = sorted(set(args.cases or ()) - set(bench.CASES))
    if unknown:
        raise InputError(f"--cases: there is no case {', '.join(unknown)}; there are {', '.join(bench.CASES)}")
    if args.cases:
        return [bench.CASES[name] for name in args.cases]
    return [case for case in bench.CASES.values() if args.full or not case.full]


def _rows(args: argparse.Namespace, cases: Sequence[bench.Case]) -> Iterator[bench.Row]:
    variables = runs.environment(args.threads, args.installed_blas)
    with StageBars(Console(stderr=True, quiet=args.quiet), patience=0.0) as bars:
        for done, case in enumerate(cases):
            bars("cases", done, len(cases), case.what)
            yield bench.measure(case, variables, FULL if args.full else QUICK)


def _sections(rows: Sequence[bench.Row]) -> list[bench.Section]:
    return [
        bench.Section(group, [row.figure() for row in members])
        for group, members in groupby(rows, key=lambda row: row.group)
    ]


def _facts(args: argparse.Namespace) -> dict[str, str]:
    """What a reader needs to judge and to repeat the figures."""
    processor = machine.processor()
    chosen = runs.environment(args.threads, args.installed_blas).get("OPENBLAS_CORETYPE")
    versions = {name: installed(name) for name in PACKAGES}
    return {
        "machine": f"{processor['model']}, {processor['cores']} cores, {args.threads} threads",
        "compiler": str(processor["compiler"]),
        "BLAS": f"OPENBLAS_CORETYPE={chosen} for both" if chosen else "OpenBLAS chooses its kernels",
        "versions": ", ".join(f"{name} {found}" for name, found in versions.items() if found),
        "command": shlex.join(["trnqc", "bench", *_words()]),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def _words() -> list[str]:
    """The options of the command line, without files, which whoever reads the record knows."""
    words: list[str] = []
    arguments = iter(sys.argv[sys.argv.index("bench") + 1 :] if "bench" in sys.argv else ())
    for word in arguments:
        if word in ("--json", "--html"):
            next(arguments, None)
        elif not word.startswith(("--json=", "--html=")):
            words.append(word)
    return words
