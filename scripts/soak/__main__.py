"""Try trnqc in long runs, in crowds, under kill -9 and in unusual surroundings.

    python -m scripts.soak [--parts mixed crowd kills surroundings] [--jobs 500] [--processes 50] [--kills 50]
                           [--only WORD] [--out FILE.json]

A table shows what was expected and what happened; the record holds the same. Without --out it goes to
profiles/measured/MACHINE/soak.json. The exit status is 1 if something else happened than was expected.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

from rich.table import Table

from scripts import parts
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


def main() -> int:
    # Forked processes have one thread each, and inherit what is imported here.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    broken: list[str] = []

    def part(cases: list[Case]) -> parts.Rows:
        for one in rows([case for case in cases if asked.only in case.name]):
            broken.extend([one["case"]] * (one["verdict"] == "broken"))
            yield one

    sections: parts.Parts = {
        "mixed": lambda asked: part(crowds.mixed_cases(asked.jobs)),
        "crowd": lambda asked: part(crowds.crowd_cases(asked.processes)),
        "kills": lambda asked: part(kills.cases(asked.kills)),
        "surroundings": lambda asked: part(surroundings.cases()),
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts.add_arguments(parser, sections, "soak")
    parser.add_argument("--jobs", type=int, default=crowds.JOBS, help="in one process (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=crowds.CROWD, help="at once (default: %(default)s)")
    parser.add_argument("--kills", type=int, default=kills.KILLS, help="of each kind of work (default: %(default)s)")
    parser.add_argument("--only", default="", metavar="WORD", help="cases whose name contains this")
    asked = parser.parse_args()
    parts.run_parts(asked, sections, lambda one: f"{one['case']}: {one['verdict']}: {one['happened']}", table)
    return int(bool(broken))


if __name__ == "__main__":
    raise SystemExit(main())
