"""Run fast tests with several Pythons and with the oldest and the newest releases that pyproject.toml allows.

    python -m scripts.matrix                                        # every Python, both ends, with PyTorch
    python -m scripts.matrix --pythons 3.13 --ends newest --extras  # one row, without PyTorch
    python -m scripts.matrix --record                               # keep the outcome in profiles/measured

It needs the package uv, which makes the environments, from interpreters that are installed, and chooses the releases.
Releases that have no wheel for a Python are passed over: the oldest one for Python 3.13 is the oldest that has a wheel
for it. A row fails if its environment cannot be made or if a test fails; the exit status is then 1.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from scripts import measuring
from scripts.matrix.rows import ENDS, PYTHONS, TESTS, Row, requirements, run_row

SHOWN = ("numpy", "scipy", "pyscf", "torch", "h5py", "z3-solver")


def table(rows: Sequence[Row]) -> Table:
    """The rows as a table for a terminal."""
    shown = Table("Python", "end", *SHOWN, "passed", "failed", "skipped", "seconds")
    for row in rows:
        counts = map(str, (row.passed, row.failed, row.skipped, round(row.seconds)))
        shown.add_row(row.python, row.end, *(row.releases.get(name, "-") for name in SHOWN), *counts)
    return shown


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pythons", nargs="+", default=PYTHONS, metavar="VERSION")
    parser.add_argument("--ends", nargs="+", choices=ENDS, default=list(ENDS))
    parser.add_argument("--extras", nargs="*", default=["torch"], metavar="EXTRA")
    parser.add_argument("--pin", nargs="*", default=[], metavar="NAME==RELEASE", help="releases that are given")
    parser.add_argument("--tests", nargs="+", metavar="PATH", help="run these instead of the tests chosen for it")
    parser.add_argument("--folder", type=Path, help="keep the environments here; otherwise they are removed")
    parser.add_argument(
        "--record",
        action="store_true",
        help="write the rows to profiles/measured/MACHINE/matrix.json, in place of older ones",
    )
    return parser.parse_args()


def main() -> int:
    """Read the arguments, run the rows, and print and keep what became of them."""
    args, rows = _arguments(), []
    record = measuring.record_file("matrix")
    console = Console(width=None if sys.stdout.isatty() else 140)
    wanted = requirements(args.extras) + args.pin
    tests = args.tests or [path for extra in ("", *args.extras) for path in TESTS.get(extra, ())]
    # Libraries of several threads would spend the time of small tests waiting for one another.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory(prefix="trnqc-matrix-") as scratch:
        for python in args.pythons:
            for end in args.ends:
                rows.append(run_row(python, end, wanted, args.folder or Path(scratch), tests))
                console.print(table(rows[-1:]), *rows[-1].failures, sep="\n")
                if args.record:
                    facts = {"extras": args.extras, "tests": tests}
                    measuring.write_part(record, f"{python} {end}", [asdict(rows[-1])], **facts)
    if len(rows) > 1:
        console.print(table(rows))
    return 0 if all(row.sound for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
