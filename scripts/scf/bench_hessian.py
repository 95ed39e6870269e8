"""Analytic Hessians, with the time of every part, beside PySCF.

    python -m scripts.scf.bench_hessian [--cases c3h6o3/6-31g*/b3lyp/fitted ...] [--threads 1] [--out FILE]
                                        [--ours glucose/6-31g*/b3lyp/direct ...]

Every Hessian runs in a process of its own, with all kernels compiled before. Both contestants start from the same
converged orbitals. The cases of `--ours` are run by trnqc alone. Rows of other cases in the record are kept.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from scripts import ROOT, vectors
from scripts.measuring import heading, machine, record_file, write_json

WHO = ("PySCF", "trnqc")
CASES = ["c3h6o3/6-31g*/b3lyp/fitted", "c3h6o3/6-31g*/b3lyp/direct"]
OURS = ["glucose/6-31g*/b3lyp/fitted", "glucose/6-31g*/b3lyp/direct"]


def process(who: str, case: str, threads: int) -> dict[str, Any]:
    """Run one Hessian in a process of its own and return what it printed."""
    variables = {"OMP_NUM_THREADS": str(threads), "TRNQC_KERNELS": "wait", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "scripts.scf.hessian_job", who, case]
    done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{who} {case} ended with status {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def compare(case: str, threads: int, who: tuple[str, ...]) -> dict[str, Any]:
    """Return a row of the record: seconds of each part, and the largest difference of the Hessians."""
    runs = {name: process(name, case, threads) for name in who}
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
    return row | heading() | {"machine": machine()}


def show(console: Console, rows: list[dict[str, Any]]) -> None:
    table = Table(title="CPU seconds (wall)", title_justify="left", width=130)
    for column in ("case", "threads", "part", *WHO, "ratio"):
        table.add_column(column, justify="left" if column in ("case", "part") else "right")
    for row in rows:
        for part in row["seconds"]["trnqc"]:
            seconds = [row["seconds"].get(name, {}).get(part) for name in WHO]
            cells = [f"{s['cpu_s']:.1f} ({s['wall_s']:.1f})" if s else "" for s in seconds]
            ratio = row.get("ratio_cpu", {}).get(part)
            table.add_row(row["case"], str(row["threads"]), part, *cells, f"{ratio:.1f}" if ratio else "")
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="*", default=CASES, help="both contestants; default: %(default)s")
    parser.add_argument("--ours", nargs="*", default=OURS, help="trnqc alone; default: %(default)s")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=record_file("hessian"), help="default: %(default)s")
    asked = parser.parse_args()
    vectors.keep_to("native")
    record = json.loads(asked.out.read_text()) if asked.out.exists() else {"rows": []}
    for who, cases in ((WHO, asked.cases), (WHO[1:], asked.ours)):
        for case in cases:
            row = compare(case, asked.threads, who)
            kept = [old for old in record["rows"] if (old["case"], old["threads"]) != (case, asked.threads)]
            record = heading() | {"machine": machine(), "rows": [*kept, row]}
            write_json(record, asked.out)
    show(Console(), record["rows"])


if __name__ == "__main__":
    main()
