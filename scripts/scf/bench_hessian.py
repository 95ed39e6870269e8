"""Analytic Hessians, with the time of every part, beside PySCF.

    python -m scripts.scf.bench_hessian [--cases c3h6o3/6-31g*/b3lyp/fitted ...] [--threads 1] [--out FILE]
                                        [--ours glucose/6-31g*/b3lyp/direct ...]

Every Hessian runs in a process of its own, with all kernels compiled before. Both contestants start from the same
converged orbitals. The cases of `--ours` are run by trnqc alone. Rows of other cases in the record are kept.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np
from rich.table import Table

from scripts.measuring import process
from scripts.registry import Benchmark, Rows, main, number, several, wanted

WHO = ("PySCF", "trnqc")
CASES = ["c3h6o3/6-31g*/b3lyp/fitted", "c3h6o3/6-31g*/b3lyp/direct"]
OURS = ["glucose/6-31g*/b3lyp/fitted", "glucose/6-31g*/b3lyp/direct"]


def compare(case: str, threads: int, who: tuple[str, ...]) -> dict[str, Any]:
    """Return a row of the record: seconds of each part, and the largest difference of the Hessians."""
    environment = {"OMP_NUM_THREADS": str(threads), "TRNQC_KERNELS": "wait"}
    runs = {name: process("scripts.scf.hessian_job", name, case, environment=environment) for name in who}
    row: dict[str, Any] = {
        "case": case,
        "threads": threads,
        **{name: runs["trnqc"][name] for name in ("nao", "ran_on")},
        "seconds": {name: run["parts"] for name, run in runs.items()},
    }
    if len(runs) == 2:
        one, other = (np.array(run["hessian"]) for run in runs.values())
        parts = runs["PySCF"]["parts"]
        row["max_error"] = float(abs(one - other).max())
        row["ratio_cpu"] = {part: parts[part]["cpu_s"] / runs["trnqc"]["parts"][part]["cpu_s"] for part in parts}
    return row


def rows(asked: argparse.Namespace) -> Rows:
    """Cases of both contestants, and those of ours alone."""
    for who, cases in ((WHO, asked.cases), (WHO[1:], asked.ours)):
        for case in cases:
            if wanted(asked, case, asked.threads):
                yield compare(case, asked.threads, who)


def table(part: str, rows: list[dict[str, Any]]) -> Table:
    """One line for each part of each Hessian."""
    table = Table(title="CPU seconds (wall)", title_justify="left", width=130)
    for column in ("case", "threads", "part", *WHO, "ratio"):
        table.add_column(column, justify="left" if column in ("case", "part") else "right")
    for row in rows:
        for name in row["seconds"]["trnqc"]:
            seconds = [row["seconds"].get(who, {}).get(name) for who in WHO]
            cells = [f"{s['cpu_s']:.1f} ({s['wall_s']:.1f})" if s else "" for s in seconds]
            ratio = row.get("ratio_cpu", {}).get(name)
            table.add_row(row["case"], str(row["threads"]), name, *cells, f"{ratio:.1f}" if ratio else "")
    return table


BENCHMARK = Benchmark(
    "hessian",
    __doc__,
    {"Hessians": rows},
    {
        "--cases": several(CASES, nargs="*", help="both contestants (default: %(default)s)"),
        "--ours": several(OURS, nargs="*", help="trnqc alone (default: %(default)s)"),
        "--threads": number(1),
    },
    keys=("case", "threads"),
    place=("", "rows"),
    table=table,
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
