"""What does tuning gain over the kernels' own defaults, and how near do the searches come to the best point?

    python -m scripts.bench_autotune [--only KERNEL] [--budget 40] [--seeds 3] [--ship] [--out FILE]
    python -m scripts.bench_autotune --stale [--only KERNEL] [--budget 24]

Ten shapes of three kernels on trn1 and trn2. For each: the modelled time of the default, of what halving and the
model-guided search find within the budget (median over seeds), and of the best of all feasible points. The best is run
on the simulator with data against its reference before it counts. --ship replaces the records of these shapes in
trnqc/tuning/shipped, and those of molecules; those of mp2_gamma are found by the model-guided search alone. --stale
replaces only the records whose kernel has changed since, and adds those that are missing, without comparing searches.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from autotune.command import duration, tiles
from autotune.instruments import Job
from autotune.measure import Trial, measure_here
from autotune.runner import Outcome, Request, tune
from nki_kernels.descriptors import kernels
from scripts import ROOT
from scripts.measuring import command
from trnqc import __version__
from trnqc.host.files import write_aside
from trnqc.tuning import records
from trnqc.tuning.conditions import model_identity
from trnqc.tuning.records import Record
from trnqc.tuning.requests import parse_shape
from trnqc.tuning.sources import kernel_hash

SEARCHES = ("halving", "model")


@dataclass(frozen=True)
class Case:
    """A shape, and what it stands for."""

    what: str
    kernel: str
    shape: str
    precision: str
    target: str


CASES = (
    Case("water/cc-pVDZ", "mp2_energy", "4,19,84", "fp32", "trn2"),
    Case("benzene/cc-pVTZ", "mp2_energy", "15,243,666", "fp32", "trn1"),
    Case("caffeine/cc-pVTZ, prime nvir", "mp2_energy", "37,509,1434", "fp32", "trn2"),
    Case("medium", "mp2_energy", "64,448,1536", "bf16x3", "trn1"),
    Case("large", "mp2_energy", "96,672,2304", "fp32", "trn2"),
    Case("factors that do not fit on chip", "mp2_energy", "30,1400,4000", "fp32", "trn1"),
    Case("square", "gemm", "4096,4096,4096", "bf16", "trn2"),
    Case("short contraction", "gemm", "4096,4096,128", "bf16", "trn1"),
    Case("awkward extents", "gemm", "1000,3001,777", "fp32", "trn2"),
    Case("many small products", "batched_contraction", "97,129,513,257", "bf16", "trn1"),
)


# Frozen core; with the cases above these are what is shipped for molecules.
MOLECULES = tuple(
    Case(what, "mp2_energy", shape, precision, target)
    for what, shape in (
        ("water/cc-pVDZ", "4,19,84"),
        ("water/cc-pVTZ", "4,53,141"),
        ("benzene/cc-pVDZ", "15,93,420"),
        ("benzene/cc-pVTZ", "15,243,666"),
        ("caffeine/cc-pVDZ", "37,195,924"),
    )
    for precision in ("fp32", "bf16x3")
    for target in ("trn1", "trn2")
)


# What is shipped for Γ. Its points are too many for each to be timed: the model-guided search takes the budget.
GAMMA = tuple(
    Case(what, "mp2_gamma", shape, precision, target)
    for what, shape in (
        ("benzene/cc-pVDZ", "15,93,420"),
        ("benzene/cc-pVTZ", "15,243,666"),
        ("caffeine/cc-pVDZ", "37,195,924"),
        ("medium", "64,448,1536"),
    )
    for precision in ("fp32", "bf16x3")
    for target in ("trn1", "trn2")
)


class Memo:
    """The modelled time of each candidate, asked for once however many searches propose it."""

    def __init__(self) -> None:
        self.known: dict[str, Trial] = {}

    def __call__(self, job: Job, timeout: float) -> Trial:
        key = json.dumps(vars(job), sort_keys=True)
        if key not in self.known:
            os.environ["NEURON_PLATFORM_TARGET_OVERRIDE"] = job.target
            self.known[key] = measure_here(job, timeout)
        return self.known[key]


def run(case: Case, search: str, budget: int, seed: int, memo: Memo) -> Outcome:
    """One search, in folders of its own."""
    shape = parse_shape(case.kernel, case.shape)
    request = Request(case.kernel, shape, case.precision, case.target, search=search, budget=budget, seed=seed)
    with tempfile.TemporaryDirectory() as scratch:
        return tune(request, None, Path(scratch) / "journals", Path(scratch) / "records", measure=memo)


def compare(case: Case, budget: int, seeds: int) -> tuple[dict[str, Any], Outcome]:
    """Default, searches and the best point of one case."""
    memo, start = Memo(), time.monotonic()
    best = run(case, "exhaustive", 10**9, 0, memo)
    default, time_ns = best.record.default_ns, best.record.time_ns
    record: dict[str, Any] = {
        "what": case.what,
        "kernel": case.kernel,
        "shape": best.record.shape,
        "precision": case.precision,
        "target": case.target,
        "feasible_points": len(best.space),
        "cut": dict(best.space.cut),
        "default": {"ns": default, "constants": best.measurements[0].constants},
        "best": {"ns": time_ns, "constants": best.record.constants, "gain": default / time_ns},
        "failed": {k: best.record.search[k] for k in ("wrong", "crashed", "timeout")},
    }
    for search in SEARCHES:
        times = [run(case, search, budget, seed, memo).record.time_ns for seed in range(seeds)]
        record[search] = {
            "ns": median(times),
            "gain": default / median(times),
            "gap_to_best": median(times) / time_ns - 1,
            "worst_gap_to_best": max(times) / time_ns - 1,
        }
    record["seconds"] = time.monotonic() - start
    return record, best


def table(rows: list[dict[str, Any]], budget: int) -> Table:
    """One row a case."""
    shown = Table(title=f"Modelled times; searches with a budget of {budget}", title_justify="left")
    headings = ("what", "kernel", "shape", "", "default", "best", "gain", "points", "halving gap", "model gap")
    for heading in headings:
        shown.add_column(heading, overflow="fold")
    for row in rows:
        shown.add_row(
            row["what"],
            row["kernel"],
            ",".join(map(str, row["shape"].values())),
            f"{row['precision']} {row['target']}",
            duration(row["default"]["ns"]),
            duration(row["best"]["ns"]),
            f"{row['best']['gain']:.3f}",
            str(row["feasible_points"]),
            *(f"{100 * row[s]['gap_to_best']:.2f} %" for s in SEARCHES),
        )
    return shown


def ship(record: Record) -> None:
    """The record into the shipped folder, in place of what an older kernel or model left there for the same shape."""
    folder = records.shipped_directory()
    same = ("kernel", "target", "precision", "shape", "measurement")
    for path, old in records.read_all(folder, record.kernel, writable=False):
        if all(getattr(old, name) == getattr(record, name) for name in same):
            path.unlink()
    records.store(record, folder)


def is_shipped(case: Case) -> bool:
    """Whether the shipped folder has a record of the case for the kernel of today."""
    source, shape = kernel_hash(kernels()[case.kernel]), parse_shape(case.kernel, case.shape)
    wanted = (source, shape, case.precision, case.target)
    found = records.read_all(records.shipped_directory(), case.kernel, writable=False)
    return any((one.source, one.shape, one.precision, one.target) == wanted for _, one in found)


def ship_best(case: Case, budget: int, console: Console) -> None:
    """Ship the best of all points of a case; for mp2_gamma, which has too many, what the model-guided search finds."""
    search, most = ("model", budget) if case in GAMMA else ("exhaustive", 10**9)
    record = run(case, search, most, 0, Memo()).record
    console.print(f"{case}: {record.default_ns / record.time_ns:.3f} times as fast, {tiles(record.constants)}")
    ship(record)


def main() -> None:
    """Run the cases, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases of this kernel")
    parser.add_argument("--budget", type=int, default=40, help="candidates that the searches may time")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--ship", action="store_true", help="write the best of each case into trnqc/tuning/shipped")
    parser.add_argument("--stale", action="store_true", help="ship the cases that lack a record of today's kernel")
    parser.add_argument("--out", type=Path, default=ROOT / "profiles" / "modelled" / "autotune.json")
    args = parser.parse_args()
    console, rows = Console(), []
    if args.stale:
        for case in (*MOLECULES, *CASES, *GAMMA):
            if args.only in ("", case.kernel) and not is_shipped(case):
                ship_best(case, args.budget, console)
        return
    for case in CASES:
        if args.only and case.kernel != args.only:
            continue
        row, outcome = compare(case, args.budget, args.seeds)
        rows.append(row)
        console.print(f"{case.what}: {row['best']['gain']:.3f} times as fast, {tiles(row['best']['constants'])}")
        if args.ship:
            ship(outcome.record)
    for case in (*MOLECULES, *GAMMA) if args.ship else ():
        if args.only in ("", case.kernel):
            ship_best(case, args.budget, console)
    if not rows:  # Shapes that are shipped only are not compared.
        return
    report = {
        "schema": "trnqc.autotune-bench/1",
        "measurement": "modelled",
        "command": command(),
        "date": datetime.date.today().isoformat(),
        "machine": platform.machine(),
        "versions": {"trnqc": __version__, "python": platform.python_version()} | model_identity(),
        "budget": args.budget,
        "seeds": args.seeds,
        "gain": {"median": median(r["best"]["gain"] for r in rows), "largest": max(r["best"]["gain"] for r in rows)},
        "cases": rows,
    }
    write_aside(args.out, json.dumps(report, indent=1) + "\n")
    console.print(table(rows, args.budget))


if __name__ == "__main__":
    main()
