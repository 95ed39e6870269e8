"""Find the tiles with which a Trainium kernel runs fastest at a shape, and record them for later runs.

Candidates are timed by a model of the device, or on one. Example: trnqc tune gemm --shape M=512,N=512,K=2048.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

from autotune.runner import Measurement, Outcome, Request, tune
from autotune.search import SEARCHES
from nki_kernels.descriptors import kernels
from nki_kernels.descriptors.descriptor import ITEMSIZE
from trnqc.errors import InputError
from trnqc.host.output import add_output, console_of, write_json
from trnqc.host.progress import StageBars
from trnqc.sim.machine.targets import TARGETS
from trnqc.tuning import records
from trnqc.tuning.conditions import machine_target
from trnqc.tuning.requests import parse_shape
from trnqc.tuning.sources import kernel_hash

COLUMNS = ("kernel", "shape", "tiles", "time, default", "record")
MOST = 200
"""The largest number of candidates if the budget is a time."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command: KERNEL and --shape, or --list."""
    shapes = "; ".join(f"{t.name}: {','.join(f'{dim}=...' for dim in t.dims)}" for t in kernels().values())
    add, names = parser.add_argument, tuple(kernels())
    add("kernel", nargs="?", choices=names, metavar="KERNEL", help="one of " + ", ".join(names))
    add("--shape", help=f"sizes by name or in this order ({shapes})")
    add("--target", choices=tuple(TARGETS), help="generation of Trainium (default: this machine's, else trn2)")
    add("--precision", nargs="+", choices=tuple(ITEMSIZE), default=["fp32"], help="one or several (default: fp32)")
    add(
        "--instrument",
        default="modelled",
        choices=records.MEASUREMENTS,
        help="what times candidates: the device, or a model of it (default: modelled)",
    )
    add("--budget", default="64", help="number of whole runs, or time (90s, 10m, 1h) (default: 64)")
    add("--search", default="auto", choices=("auto", *SEARCHES), help="how to choose (default: by size and budget)")
    add("--seed", type=int, default=0, help="seed of the search; the same seed repeats it (default: 0)")
    add("--timeout", type=float, help="seconds for one candidate (default: 120, on a device 1800)")
    add("--fresh", action="store_true", help="measure again what an earlier or killed run has measured")
    add("--list", action="store_true", help="show all records (of KERNEL) and end")
    add_output(parser, "the records")


def run(args: argparse.Namespace) -> int:
    """Tune the kernel for each precision, or list records. Returns the exit status 0."""
    console = console_of(args)
    if args.list:
        found = known(args.kernel or "")
        console.print(listing(found))
        write_json(args, [asdict(one.record) | {"origin": one.origin, "stale": one.stale} for one in found])
        return 0
    if args.kernel is None or args.shape is None:
        raise InputError("trnqc tune needs KERNEL and --shape, or --list")
    budget, seconds = parse_budget(args.budget)
    tuned = []
    for precision in args.precision:
        request = Request(
            kernel=args.kernel,
            shape=parse_shape(args.kernel, args.shape),
            precision=precision,
            target=args.target or machine_target(),
            instrument=args.instrument,
            search=args.search,
            budget=budget,
            seconds=seconds,
            timeout=args.timeout or (1800.0 if args.instrument == "device" else 120.0),
            seed=args.seed,
        )
        with StageBars(Console(stderr=True, quiet=args.quiet)) as bars:
            outcome = tune(request, progress_of(f"{args.kernel} {precision}", bars), fresh=args.fresh)
        console.print(summary(outcome))
        tuned.append(asdict(outcome.record))
    write_json(args, tuned)
    return 0


def parse_budget(text: str) -> tuple[int, float | None]:
    """Parse a budget into the largest number of candidates and the time limit in seconds.

    >>> parse_budget("40"), parse_budget("10m")
    ((40, None), (200, 600.0))

    Raises
    ------
    InputError
        If the text is not a budget.
    """
    match = re.fullmatch(r"(\d+)([smh]?)", text)
    if not match or int(match[1]) < 1:
        raise InputError(f"a budget is a number of candidates or a time such as 90s, 10m, 1h; found {text!r}")
    if not match[2]:
        return int(match[1]), None
    return MOST, float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]


def progress_of(title: str, bars: StageBars) -> Callable[[Measurement, int, int], None]:
    """The argument `progress` of `runner.tune`: show the number of measured candidates and the best time so far."""
    best = float("inf")

    def show(measurement: Measurement, done: int, expected: int) -> None:
        nonlocal best
        if measurement.fraction == 1.0 and measurement.trial.time_ns is not None:
            best = min(best, measurement.trial.time_ns)
        bars(title, done, expected, f"best {duration(best)}")

    return show


def duration(ns: float) -> str:
    """A time with four digits and a unit, or "-" if there is none."""
    if not 0 < ns < float("inf"):
        return "-"
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= size:
            return f"{ns / size:.4g} {unit}"
    return f"{ns:.4g} ns"


def tiles(constants: dict[str, int]) -> str:
    """Constants or a shape in words, such as "block 448, kchunk 12, group 2"."""
    return ", ".join(f"{name} {value}" for name, value in constants.items())


def summary(outcome: Outcome) -> Table:
    """A table of what was searched, the outcome, and the candidates that failed."""
    record, request = outcome.record, outcome.request
    rows = Table(show_header=False, box=None, pad_edge=False, title_justify="left", title_style="bold")
    rows.title = f"{request.kernel} {tiles(request.shape)}, {request.precision}, {request.target}"
    cut = ", ".join(f"{rule} {n}" for rule, n in sorted(outcome.space.cut.items()))
    rows.add_row("space", f"{len(outcome.space)} feasible points; cut before timing: {cut or 'none'}")
    rows.add_row("search", f"{outcome.search}: {outcome.why}; seed {request.seed}")
    replayed = sum(measurement.replayed for measurement in outcome.measurements)
    what = "runs of growing parts of the work" if outcome.search == "halving" else "candidates"
    rows.add_row("measured", f"{len(outcome.measurements)} {what}, {replayed} of them read from the journal")
    rows.add_row("default", f"{duration(record.default_ns)} ({tiles(outcome.measurements[0].constants)})")
    gain = f", {record.default_ns / record.time_ns:.3f} times as fast" if record.default_ns else ""
    rows.add_row("best", f"{duration(record.time_ns)} ({tiles(record.constants)}){gain}")
    rows.add_row("", f"{record.measurement} time of {record.workload}")
    for measurement in outcome.measurements:
        if measurement.trial.status != "ok":
            rows.add_row(measurement.trial.status, f"{tiles(measurement.constants)}: {measurement.trial.detail}")
    rows.add_row("record", str(outcome.path or "not stored"))
    return rows


@dataclass(frozen=True)
class Known:
    """A record, whether the user made it or the package has it, and whether its kernel has changed since."""

    record: records.Record
    origin: str
    stale: bool


def known(kernel: str) -> list[Known]:
    """All records of a kernel, or of all kernels if `kernel` is empty; those of the user first."""
    found = []
    for origin, directory in (("user", records.user_directory()), ("shipped", records.shipped_directory())):
        for _, record in records.read_all(directory, kernel, writable=origin == "user"):
            now = kernels().get(record.kernel)
            found.append(Known(record, origin, now is None or kernel_hash(now) != record.source))
    return found


def listing(found: Sequence[Known]) -> Table:
    """A table of records. A record is "stale" if its kernel has changed since."""
    rows = Table(title="tuning records", title_justify="left", show_lines=True)
    for heading in COLUMNS:
        rows.add_column(heading, overflow="fold")
    for one in found:
        r = one.record
        rows.add_row(
            f"{r.kernel}\n{r.target} {r.precision}",
            tiles(r.shape),
            tiles(r.constants),
            f"{duration(r.time_ns)}\n{duration(r.default_ns)}",
            f"{one.origin}, {r.measurement}\n{'stale: the kernel has changed' if one.stale else 'in use'}",
        )
    return rows
