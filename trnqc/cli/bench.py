"""Measure this machine: jobs and kernels of trnqc beside PySCF, e3nn, opt_einsum and SciPy, as far as installed.

Each program runs in a process of its own, and the processes take turns. A first call of each is not counted; at least
five are. PySCF is run with the fastest kernels of its BLAS and as it is installed. A quick run takes two minutes once
the kernels are compiled, --full about half an hour.
"""

from __future__ import annotations

import argparse
import datetime
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from trnqc import bench
from trnqc.bench import floors, runs
from trnqc.bench.case import installed
from trnqc.bench.figure import duration, spread
from trnqc.cli import machine
from trnqc.errors import InputError, TrnqcError
from trnqc.host.files import write_aside
from trnqc.host.output import add_output, console_of, write_json
from trnqc.host.progress import StageBars
from trnqc.host.threads import cpus

# Wall seconds after which a case gets no more rounds than it needs.
QUICK, FULL = 2.0, 240.0
PACKAGES = ("trnqc", "pyscf", "numpy", "scipy", "torch", "e3nn", "opt_einsum")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare which cases are measured, how, and which files are written."""
    extent = parser.add_mutually_exclusive_group()
    extent.add_argument("--quick", action="store_true", help="the cases of some seconds (the default)")
    extent.add_argument("--full", action="store_true", help="all cases, with more rounds")
    extent.add_argument("--cases", nargs="+", metavar="CASE", help=f"only these: {', '.join(bench.CASES)}")
    parser.add_argument(
        "--threads", type=int, default=cpus(), metavar="N", help="threads of each program (default: %(default)s)"
    )
    parser.add_argument("--busy", action="store_true", help="measure although other processes use the CPUs")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with pictures")
    add_output(parser, "all figures")


def run(args: argparse.Namespace) -> int:
    """Measure and print. The exit status is 0 also where trnqc is slower, because that is a valid answer."""
    if args.threads < 1:
        raise InputError(f"--threads must be positive, got {args.threads}")
    cases, busy = _chosen(args), runs.load()
    if busy > cpus() and not args.busy:
        raise InputError(
            f"expected an idle machine, found {busy:.1f} running processes on {cpus()} CPUs in the last minute; wait "
            "until they have ended, or pass --busy for figures that depend on them"
        )
    left_out = [f"{case.what}: {', '.join(case.missing())} is not installed." for case in cases if case.missing()]
    rows = list(_rows(args, [case for case in cases if not case.missing()]))
    facts, least = _facts(args, busy), {}
    if not args.cases:
        try:
            least = _floors("caffeine" if args.full else "benzene", args.threads)
        except TrnqcError as error:  # Such as a machine without a compiler; what was measured before is shown.
            left_out.append(f"Parts of a job beside their floors: {error}")
    console = console_of(args)
    console.print(table(rows))
    for sentence in [*_sentences(rows, facts, left_out), *_of_floors(least)]:
        console.print(Text(sentence))
    written = {"facts": facts, "rows": [row.plain() for row in rows], "left out": left_out, "floors": least}
    write_json(args, written)
    if args.html:
        write_aside(args.html, bench.page("trnqc on this machine", facts, _sections(rows), left_out))
    return 0


def table(rows: Sequence[bench.Row]) -> Table:
    """A table with a row for each other contestant of each case, the smallest ratio first."""
    shown = Table(title="trnqc on this machine", title_justify="left")
    shown.add_column("what")
    shown.add_column("beside")
    for heading in ("its time", "trnqc", "times\nfaster", "in the rounds"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for figure in sorted((figure for row in rows for figure in row.figures()), key=lambda figure: figure.ratio):
        gain = Text(f"{figure.ratio:.2f}", style="green" if figure.ratio >= 1 else "red")
        times = duration(figure.theirs), duration(figure.ours)
        shown.add_row(Text(figure.what), figure.rival, *times, gain, spread(figure))
    return shown


def _sentences(rows: Sequence[bench.Row], facts: Mapping[str, str], left_out: Sequence[str]) -> Iterator[str]:
    """What stands below the table."""
    if rows:
        least, most = (of(row.rounds for row in rows) for of in (min, max))
        rounds = f"{least} to {most}" if most > least else f"{most}"
        yield (
            f"Medians of {rounds} rounds in turns; {facts['machine']}. Results differ by at most "
            f"{max(row.difference for row in rows):.0e} of the largest element."
        )
        yield (
            f"Not counted: the first call of each case, in which kernels are compiled or loaded. It took "
            f"{_first(rows, bench.OURS):.1f} s for all cases of trnqc, {_first(rows):.1f} s for the other programs."
        )
    yield from left_out


def _floors(molecule: str, threads: int) -> dict[str, Any]:
    """Parts of a B3LYP job of ours beside their floors."""
    return {"job": f"B3LYP/def2-SVP of {molecule}"} | floors.in_process(molecule, "def2-svp", "b3lyp", threads)


def _of_floors(least: Mapping[str, Any]) -> Iterator[str]:
    if least:
        parts = {name: one for name, one in least.items() if isinstance(one, dict)}
        words = ", ".join(f"{name} {one['over_floor']:.1f} times" for name, one in parts.items())
        yield (
            f"Parts of {least['job']} by trnqc beside the least time of their matrix products, at "
            f"{least['gflops_of_products']:.0f} Gflop/s: {words}."
        )


def _first(rows: Sequence[bench.Row], who: str | None = None) -> float:
    """Seconds of the first calls of a contestant; without one, of the first other contestant of each case."""
    return sum(row.first_seconds[who or row.rivals[0]] for row in rows)


def _chosen(args: argparse.Namespace) -> list[bench.Case]:
    unknown = sorted(set(args.cases or ()) - set(bench.CASES))
    if unknown:
        raise InputError(f"--cases: there is no case {', '.join(unknown)}; there are {', '.join(bench.CASES)}")
    if args.cases:
        return [bench.CASES[name] for name in args.cases]
    return [case for case in bench.CASES.values() if args.full or not case.full]


def _rows(args: argparse.Namespace, cases: Sequence[bench.Case]) -> Iterator[bench.Row]:
    console = Console(stderr=True, quiet=args.quiet)
    with StageBars(console, patience=0.0) as bars, bench.Contest(args.threads) as contest:
        for done, case in enumerate(cases):
            bars("cases", done, len(cases), case.what)
            yield contest.measure(case, FULL if args.full else QUICK)


def _sections(rows: Sequence[bench.Row]) -> list[bench.Section]:
    return [
        bench.Section(group, [figure for row in members for figure in row.figures()])
        for group, members in groupby(rows, key=lambda row: row.group)
    ]


def _facts(args: argparse.Namespace, busy: float) -> dict[str, str]:
    """What a reader needs to judge and to repeat the figures."""
    processor = machine.processor()
    versions = {name: installed(name) for name in PACKAGES}
    return {
        "machine": f"{processor['model']}, {processor['cores']} cores, {args.threads} threads",
        "compiler": str(processor["compiler"]),
        "load before": f"{busy:.1f} running processes",
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
