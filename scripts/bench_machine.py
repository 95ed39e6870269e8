"""The cases of `trnqc bench`, with their rows kept in a record, from which the page of records shows them.

    python -m scripts.bench_machine [--cases dft mp2 ...] [--threads 2] [--budget 240] [--missing] [--out FILE]

A case is an entry of trnqc/bench/catalogue.py. Processes of all contestants take turns.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

from scripts.registry import Benchmark, Rows, main, number, several, wanted
from trnqc.bench import CASES, Figure, measure

GROUPS = tuple(dict.fromkeys(case.group for case in CASES.values()))


def rows_of(group: str, asked: argparse.Namespace) -> Rows:
    """The rows of the cases of a group that are installed."""
    for name in asked.cases:
        case = CASES[name]
        if case.group == group and not case.missing() and wanted(asked, name, asked.threads):
            yield measure(case, asked.threads, asked.budget).plain() | {"threads": asked.threads}


def figures(row: dict[str, Any]) -> Iterator[Figure]:
    """The medians of a case beside each other contestant."""
    yield from (Figure(**figure) for figure in row["figures"])


BENCHMARK = Benchmark(
    "machine",
    __doc__,
    {group: partial(rows_of, group) for group in GROUPS},
    {
        "--cases": several(list(CASES), choices=CASES),
        "--threads": number(1),
        "--budget": number(240.0, "seconds after which a case gets no more rounds than it needs"),
    },
    keys=("case", "threads"),
    line=lambda row: "; ".join(
        f"{row['case']}: {one['ratio']:.2f} times as fast as {one['rival']}" for one in row["figures"]
    ),
    shown={group: (group, figures) for group in GROUPS},
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
