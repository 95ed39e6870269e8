"""Time and memory of DF-MP2 by stage as molecules grow: water clusters, against the exponents that are expected.

    python -m scripts.bench_scaling [--max-n 20] [--basis cc-pvdz] [--threads 1] [--out FILE]

Every size runs in a process of its own. Sizes that the record has already (same basis and threads) are not run again,
unless --again; so a series that was cut off goes on. Writes the record and, beside it, a plot (.svg). An exponent is
the slope of log(seconds) over log(n) in the upper half of the sizes.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np
from rich.table import Table

from scripts.jobs.scaling_plot import plot
from scripts.measuring import process
from scripts.registry import SWITCH, Benchmark, Row, Rows, main, number, stored

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


def recorded(asked: argparse.Namespace) -> dict[int, Row]:
    """Rows of an earlier run of the same series, by n."""
    record = stored(asked.out)
    same = (record.get("basis"), record.get("threads")) == (asked.basis, asked.threads)
    return {row["n"]: row for row in record["rows"]} if same and not asked.again else {}


def rows(asked: argparse.Namespace) -> Rows:
    """The sizes, of which those that the record has are not run again."""
    known, environment = recorded(asked), {"OMP_NUM_THREADS": str(asked.threads)}
    for n in sorted({*known, *(n for n in SIZES if n <= asked.max_n)}):
        job = ("scripts.jobs.scaling_job", str(n), asked.basis, str(asked.threads))
        yield known[n] if n in known else process(*job, environment=environment)


def exponents(record: Row) -> dict[str, Any]:
    """Exponents of the stages and of the memory, beside those that are expected."""
    rows = record["rows"]
    stages = [stage for stage in EXPECTED if all(stage in row["seconds"] for row in rows)]
    return {
        "expected": EXPECTED,
        "exponents": {stage: exponent(rows, lambda row, stage=stage: row["seconds"][stage]) for stage in stages},
        "memory_expected": MEMORY_EXPECTED,
        "memory_exponent": exponent(rows, lambda row: max(row["peak_mb"].values()) - row["peak_mb"]["start"]),
    }


def exponent(rows: list[dict[str, Any]], value: Any) -> float | None:
    """None for less than two sizes in the upper half."""
    upper = rows[len(rows) // 2 :]
    if len(upper) < 2:
        return None
    n, y = (np.log([max(one, 1e-6) for one in column]) for column in zip(*((row["n"], value(row)) for row in upper)))
    return float(np.polyfit(n, y, 1)[0])


def table(part: str, rows: list[Row]) -> Table:
    """One line for each stage and one for the memory."""
    found = exponents({"rows": rows})
    table = Table("stage", *(f"n={row['n']}, s" for row in rows), "exponent", "expected")
    for stage, slope in found["exponents"].items():
        cells = [f"{row['seconds'][stage]:.2f}" for row in rows]
        table.add_row(stage, *cells, "" if slope is None else f"{slope:.1f}", str(EXPECTED[stage]))
    peaks = [f"{max(row['peak_mb'].values()):.0f} MB" for row in rows]
    slope = found["memory_exponent"]
    table.add_row("peak memory", *peaks, "" if slope is None else f"{slope:.1f}", str(MEMORY_EXPECTED))
    return table


BENCHMARK = Benchmark(
    "scaling",
    __doc__,
    {"clusters": rows},
    {
        "--max-n": number(SIZES[-1]),
        "--basis": {"default": "cc-pvdz"},
        "--threads": number(1),
        "--again": SWITCH | {"help": "run sizes that the record has already"},
    },
    place=("", "rows"),
    line=lambda row: f"of {row['n']} waters: {row['seconds']['pairs']:.2f} s for the pairs",
    table=table,
    facts=lambda asked: {"basis": asked.basis, "threads": asked.threads},
    figures={"": plot},
    summary=exponents,
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
