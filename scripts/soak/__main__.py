"""Try trnqc in long runs, in crowds, under kill -9 and in unusual surroundings.

    python -m scripts.soak [--parts mixed crowd kills surroundings] [--jobs 500] [--processes 50] [--kills 50]
                           [--only WORD] [--out FILE.json]

A table shows what was expected and what happened; the record holds the same. Without --out it goes to
profiles/measured/MACHINE/soak.json. The exit status is 1 if something else happened than was expected.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from rich.table import Table

from scripts.registry import Benchmark, Rows, main, number
from scripts.soak import crowds, kills, surroundings
from scripts.soak.case import Case, rows

COLUMNS = ("case", "expected", "happened", "verdict", "seconds")


def table(part: str, found: list[dict[str, Any]]) -> Table:
    """One line for each case."""
    whole = Table(title=part, title_justify="left", width=160, show_lines=True)
    for column in COLUMNS:
        whole.add_column(column)
    for one in found:
        whole.add_row(*(str(one[column]) for column in COLUMNS))
    return whole


def part(cases: Callable[[argparse.Namespace], list[Case]], asked: argparse.Namespace) -> Rows:
    """The rows of the cases whose name is asked for."""
    yield from rows([case for case in cases(asked) if asked.only in case.name])


PARTS: dict[str, Callable[[argparse.Namespace], list[Case]]] = {
    "mixed": lambda asked: crowds.mixed_cases(asked.jobs),
    "crowd": lambda asked: crowds.crowd_cases(asked.processes),
    "kills": lambda asked: kills.cases(asked.kills),
    "surroundings": lambda asked: surroundings.cases(),
}
BENCHMARK = Benchmark(
    "soak",
    __doc__,
    {name: partial(part, cases) for name, cases in PARTS.items()},
    {
        "--jobs": number(crowds.JOBS, "in one process"),
        "--processes": number(crowds.CROWD, "at once"),
        "--kills": number(kills.KILLS, "of each kind of work"),
        "--only": {"default": "", "metavar": "WORD", "help": "cases whose name contains this"},
    },
    line=lambda one: f"{one['case']}: {one['verdict']}: {one['happened']}",
    table=table,
    failed=lambda one: one["verdict"] == "broken",
)

if __name__ == "__main__":
    # Forked processes have one thread each, and inherit what is imported here.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main(BENCHMARK))
