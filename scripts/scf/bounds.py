"""What would whole jobs gain if their parts ran in the least times that `bench_scf` has measured beside them?

    python -m scripts.scf.bounds [profiles/measured/MACHINE/scf.json]

For each job with floors: PySCF's seconds, ours, their ratio, and the ratio that a job of ours would have if K, fitted
integrals and passes of the quadrature took their floors, and all else what it takes. K of a cycle in single precision
counts half. A pass on a coarse grid counts COARSE of one on the full grid. Nothing is measured.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from scripts import ROOT

# Points of a coarse grid over those of the full grid, about.
COARSE = 0.15
# Parts that have no floor.
OTHERS = ("rest", "grid", "DIIS", "diagonalisation", "MP2", "solvent")
# Functionals without exact exchange, whose J has no floor.
PURE = ("pbe", "r2scan")


def least_seconds(row: dict[str, Any]) -> float:
    """Seconds of our job with its parts at their floors."""
    ours, floors = row["seconds"]["scf"]["trnqc"], row["floors"]
    listed = re.search(r"potentials after cycles ([\d, ]+) in single", row["ran_on"])
    single = len(listed[1].split(",")) if listed else 0
    calls = ours["J and K"]["calls"]
    if row["case"].split("/")[2] in PURE:
        total = ours["J and K"]["wall_s"]
    else:
        total = calls * row["once"]["trnqc"]["J"]["wall_s"] + floors["K"]["floor_s"] * (calls - single / 2)
    total += floors["fitted integrals"]["floor_s"]
    if "XC" in ours:
        # Each potential is one pass; those beyond are full ones that correct a coarse one.
        full = ours["XC"]["calls"] - calls
        total += floors["XC, full pass"]["floor_s"] * (full + COARSE * calls)
    return float(total + sum(ours[part]["wall_s"] for part in OTHERS if part in ours))


def main(path: Path) -> None:
    """Print a line for each job of the record that has all floors."""
    table = Table("case", "PySCF, s", "trnqc, s", "ratio", "ratio at the floors")
    for part in json.loads(path.read_text(encoding="utf-8"))["parts"].values():
        for row in part["rows"]:
            if {"K", "fitted integrals"} <= row.get("floors", {}).keys():
                theirs, ours = (row["seconds"]["scf"][who]["all"]["wall_s"] for who in ("PySCF", "trnqc"))
                ratios = (theirs / ours, theirs / least_seconds(row))
                table.add_row(row["case"], *(f"{x:.1f}" for x in (theirs, ours, *ratios)))
    Console(width=100).print(table)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "profiles" / "measured" / "epyc" / "scf.json")
