"""Times of generated integral kernels, J and K, three-centre integrals and gradients relative to PySCF.

    python -m scripts.bench_eri [--parts classes jk fitting gradient scf_gradient forms]
                                 [--classes 1111 2121] [--threads 1 2] [--quick] [--vectors avx2] [--out FILE]

    classes   dense batches of one class, 1 and 3 primitives per shell, against libcint of PySCF's wheel, one thread
    jk        J and K of one density against PySCF's direct build with the same screening threshold
    fitting   three-centre integrals against PySCF's incore.aux_e2
    gradient  derivatives of sums of three-centre integrals with weights against PySCF's derivative integrals
    scf_gradient  two-electron gradients of Hartree-Fock against PySCF's
    forms     CPU seconds to compile the kernels of J and K, relative to those of their quick forms

Contestants run in turns in one process. Times are medians, and ratios are medians of the ratios within each round.
Classes are timed in CPU seconds of the thread, the rest in wall and CPU seconds. A part replaces the same part in the
file.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from rich.table import Table

from scripts.registry import SWITCH, Benchmark, Rows, main, named, several, verdict
from scripts.workloads.quartets import quartet

CLASSES = ("0000", "1000", "1010", "1111", "2111", "2121", "2211", "2221", "2222", "3322", "3333")
PRIMITIVES = (1, 3)
# molecule/basis: (rounds, target ratio)
JK = {
    "water5/cc-pvdz": (5, 2.0),
    "water5/cc-pvtz": (2, 3.0),
    "benzene/cc-pvtz": (2, 3.0),
    "benzene/def2-tzvp": (1, None),
    "aspirin/cc-pvdz": (1, 2.0),
    "water2/cc-pvqz": (1, None),
}
FITTING = {"caffeine/cc-pvtz/cc-pvtz-ri": 4.0}
GRADIENT = {"caffeine/cc-pvtz/cc-pvtz-ri": 4.0}
SCF_GRADIENT = {"caffeine/def2-svp/fitted": 4.0, "caffeine/def2-tzvp/fitted": 4.0, "caffeine/def2-svp/direct": 4.0}
# molecule/basis: rounds
FORMS = {"benzene/cc-pvdz": 5, "caffeine/def2-svp": 3, "caffeine/cc-pvtz": 1}
QUICK = {"classes": ("0000", "1111", "2222"), "jk": ("water5/cc-pvdz",), "fitting": ()}


def class_target(digits: str, primitives: int) -> float | None:
    """Target relative to libcint's rate: 8 at (11|11), 6 for classes with d functions, 12 where contracted."""
    if sum(map(int, digits)) < 4 or "3" in digits:
        return None
    return 12.0 if primitives > 1 else 8.0 if digits == "1111" else 6.0


def classes(asked: argparse.Namespace) -> Rows:
    from scripts.eri.classes_bench import class_rate

    for digits in QUICK["classes"] if asked.quick else asked.classes:
        for primitives in PRIMITIVES:
            yield class_rate(quartet(digits), primitives) | {
                "case": digits,
                "primitives": primitives,
                "target": class_target(digits, primitives),
            }


def jk(asked: argparse.Namespace) -> Rows:
    from scripts.eri.jk import case

    for title, (rounds, target) in JK.items():
        if not asked.quick or title in QUICK["jk"]:
            for threads in asked.threads:
                yield case(title, threads, rounds) | {"target": target}


def fitting(asked: argparse.Namespace) -> Rows:
    from scripts.eri.three_centre import three_centre

    for title, target in FITTING.items() if not asked.quick else ():
        molecule, basis, auxiliary = title.split("/")
        for threads in asked.threads:
            yield three_centre(molecule, basis, auxiliary, threads=threads) | {"case": title, "target": target}


def gradient(asked: argparse.Namespace) -> Rows:
    from scripts.eri.fitted_gradient import fitted_gradient

    for title, target in GRADIENT.items() if not asked.quick else ():
        molecule, basis, auxiliary = title.split("/")
        for threads in asked.threads:
            yield fitted_gradient(molecule, basis, auxiliary, threads) | {"target": target}


def scf_gradient(asked: argparse.Namespace) -> Rows:
    from scripts.eri.scf_gradient import scf_gradient

    for title, target in SCF_GRADIENT.items() if not asked.quick else ():
        molecule, basis, way = title.split("/")
        for threads in asked.threads:
            yield scf_gradient(molecule, basis, way, threads) | {"target": target}


def forms(asked: argparse.Namespace) -> Rows:
    from scripts.eri.forms import forms

    for title, rounds in FORMS.items():
        if not asked.quick:
            yield forms(title, rounds) | {"target": None}


def factor(row: dict[str, Any]) -> float:
    """How many times faster than the peer, in wall time if it was measured."""
    ratio = row["ratio"]
    return ratio["wall"] if isinstance(ratio, dict) else ratio


def error(row: dict[str, Any]) -> float:
    """The largest difference from the peer: of an integral, of J or K, of an energy in Hartree."""
    largest = row["max_error"]
    return max(map(abs, largest.values())) if isinstance(largest, dict) else abs(largest)


def table(part: str, rows: list[dict[str, Any]]) -> Table:
    by = "primitives" if part == "classes" else "threads"
    table = Table(title=f"{part}: times the peer, by {by}", title_justify="left")
    for column in ("case", "n", "ratio", "target", "", "max error"):
        table.add_column(column, justify="left" if column in ("case", "") else "right")
    for row in rows:
        n, times = str(row.get("primitives", row.get("threads"))), factor(row)
        table.add_row(row["case"], n, f"{times:.2f}", *verdict(times, row["target"]), f"{error(row):.0e}")
    return table


BENCHMARK = Benchmark(
    "eri_cpu",
    __doc__,
    named(classes, jk, fitting, gradient, scf_gradient, forms),
    {
        "--classes": several(CLASSES, "DIGITS"),
        "--threads": several([1, 2]),
        "--quick": SWITCH | {"help": "a few cases of a few seconds"},
    },
    line=lambda row: f"{row['case']}: {factor(row):.2f} times the peer",
    table=table,
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
