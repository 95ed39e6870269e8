"""Time and memory of DF-MP2 by stage as molecules grow: water clusters, against the exponents that are expected.

    python -m scripts.bench_scaling [--max-n 20] [--basis cc-pvdz] [--threads 1] [--out FILE]

Every size runs in a process of its own. Sizes that the record has already (same basis and threads) are not run again,
unless --again; so a series that was cut off goes on. Writes the record and, beside it, a plot (.svg). An exponent is
the slope of log(seconds) over log(n) in the upper half of the sizes.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from scripts.jobs.scaling_plot import plot
from scripts.measuring import heading, machine, process, record_file, write_json

SIZES = tuple(range(2, 21, 2))
# Stage -> power of n: J/K and integrals before screening, which takes up to one or two off; the rest by counting.
EXPECTED = {
    "SCF": 4,
    "J/K build": 4,
    "integrals": 3,
    "transformation": 4,
    "metric": 3,
    "fitting": 4,
    "pairs": 5,
}
MEMORY_EXPECTED = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--max-n", type=int, default=SIZES[-1])
    parser.add_argument("--basis", default="cc-pvdz")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--again", action="store_true", help="run sizes that the record has already")
    parser.add_argument("--out", type=Path, default=record_file("scaling"))
    args = parser.parse_args()
    rows = {} if args.again else recorded(args)
    for n in (n for n in SIZES if n <= args.max_n and n not in rows):
        rows[n] = run(n, args)
        write_json(record_of(list(rows.values()), args), args.out)
    record = record_of([rows[n] for n in sorted(rows)], args)
    write_json(record, args.out)
    args.out.with_suffix(".svg").write_text(plot(record), encoding="utf-8")
    show(record)


def recorded(args: argparse.Namespace) -> dict[int, dict[str, Any]]:
    """Rows of an earlier run of the same series, by n."""
    if not args.out.exists():
        return {}
    record = json.loads(args.out.read_text())
    same = (record["basis"], record["threads"]) == (args.basis, args.threads)
    return {row["n"]: row for row in record["rows"]} if same else {}


def run(n: int, args: argparse.Namespace) -> dict[str, Any]:
    environment = {"OMP_NUM_THREADS": str(args.threads)}
    row: dict[str, Any] = process(
        "scripts.jobs.scaling_job", str(n), args.basis, str(args.threads), environment=environment
    )
    return row


def record_of(rows: list[dict[str, Any]], args: argparse.Namespace) -> dict[str, Any]:
    stages = [stage for stage in EXPECTED if rows and all(stage in row["seconds"] for row in rows)]
    exponents = {stage: exponent(rows, lambda row, stage=stage: row["seconds"][stage]) for stage in stages}
    memory = exponent(rows, lambda row: max(row["peak_mb"].values()) - row["peak_mb"]["start"])
    return heading() | {
        "machine": machine(),
        "basis": args.basis,
        "threads": args.threads,
        "expected": EXPECTED,
        "exponents": exponents,
        "memory_expected": MEMORY_EXPECTED,
        "memory_exponent": memory,
        "rows": rows,
    }


def exponent(rows: list[dict[str, Any]], value: Any) -> float | None:
    """None for less than two sizes in the upper half."""
    upper = rows[len(rows) // 2 :]
    if len(upper) < 2:
        return None
    n, y = (np.log([max(one, 1e-6) for one in column]) for column in zip(*((row["n"], value(row)) for row in upper)))
    return float(np.polyfit(n, y, 1)[0])


def show(record: dict[str, Any]) -> None:
    table = Table("stage", *(f"n={row['n']}, s" for row in record["rows"]), "exponent", "expected")
    for stage, slope in record["exponents"].items():
        cells = [f"{row['seconds'][stage]:.2f}" for row in record["rows"]]
        table.add_row(stage, *cells, "" if slope is None else f"{slope:.1f}", str(record["expected"][stage]))
    peaks = [f"{max(row['peak_mb'].values()):.0f} MB" for row in record["rows"]]
    slope = record["memory_exponent"]
    table.add_row("peak memory", *peaks, "" if slope is None else f"{slope:.1f}", str(record["memory_expected"]))
    Console().print(table)


if __name__ == "__main__":
    main()
