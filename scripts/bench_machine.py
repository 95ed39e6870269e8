"""The cases of `trnqc bench`, with their rows kept in a record, from which the page of records shows them.

    python -m scripts.bench_machine [--cases dft mp2 ...] [--threads 2] [--budget 240] [--missing] [--out FILE]

A case is an entry of trnqc/bench/catalogue.py. Processes of both contestants take turns.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

from scripts.registry import Benchmark, Rows, main, number, several, wanted
from trnqc.bench import CASES, Figure, measure
from trnqc.bench.runs import environment

GROUPS = tuple(dict.fromkeys(case.group for case in CASES.values()))


def rows_of(group: str, asked: argparse.Namespace) -> Rows:
    """The rows of the cases of a group that are installed."""
    variables = environment(asked.threads, asked.blas == "installed")
    for name in asked.cases:
        case = CASES[name]
        if case.group == group and not case.missing() and wanted(asked, name, asked.threads):
            yield measure(case, variables, asked.budget).plain() | {"threads": asked.threads}


def figures(row: dict[str, Any]) -> Iterator[Figure]:
    """The medians of a case."""
    yield Figure(row["what"], row["rival"], row["theirs_s"], row["ours_s"], row["ratio"])


BENCHMARK = Benchmark(
    "machine",
    __doc__,
    {group: partial(rows_of, group) for group in GROUPS},
    {
        "--cases": several(list(CASES), choices=CASES),
        "--threads": number(1),
        "--budget": number(240.0, "seconds after which a case gets no further round"),
    },
    keys=("case", "threads"),
    line=lambda row: f"{row['case']}: {row['ratio']:.2f} times as fast as {row['rival']}",
    shown={group: (group, figures) for group in GROUPS},
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
