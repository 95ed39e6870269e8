"""How fast are the generated integral kernels, J and K, three-centre integrals, their gradients and a whole job?

    python -m scripts.bench_eri [--parts classes jk fitting gradient job] [--threads 1 2] [--quick]
                                 [--vectors avx2] [--out FILE]

    classes   dense batches of one class, one and three primitives a shell, against libcint of PySCF's wheel, one thread
    jk        J and K of one density against PySCF's direct build with the same screening threshold
    fitting   three-centre integrals against PySCF's incore.aux_e2
    gradient  derivatives of three-centre integrals times weights against PySCF's integrals and their sums, one round
    job       density-fitted RHF and MP2 of caffeine/cc-pVTZ from the geometry on, against PySCF as installed

The contestants take turns in one run; medians, and ratios as medians of the ratios within each round. Classes are
timed by thread CPU seconds, the rest by both clocks. A part takes the place of what the file holds of it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from scripts import vectors
from scripts.measuring import record_file, write_part
from scripts.workloads.quartets import quartet
from trnqc.jit import find_compiler

CLASSES = ("0000", "1000", "1010", "1111", "2111", "2121", "2211", "2221", "2222", "3322", "3333")
PRIMITIVES = (1, 3)
# molecule/basis: (rounds, least ratio wished for)
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
JOB = {"caffeine/cc-pvtz": 3.0}
QUICK = {"classes": ("0000", "1111", "2222"), "jk": ("water5/cc-pvdz",), "fitting": (), "gradient": (), "job": ()}


def class_target(digits: str, primitives: int) -> float | None:
    """Times libcint's rate: 8 at (11|11), 6 for classes with d functions, 12 where contracted."""
    if sum(map(int, digits)) < 4 or "3" in digits:
        return None
    return 12.0 if primitives > 1 else 8.0 if digits == "1111" else 6.0


def classes(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    from scripts.eri.classes_bench import class_rate

    for digits in QUICK["classes"] if asked.quick else CLASSES:
        for primitives in PRIMITIVES:
            yield class_rate(quartet(digits), primitives) | {
                "case": digits,
                "primitives": primitives,
                "target": class_target(digits, primitives),
            }


def jk(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    from scripts.eri.jk import case

    for title, (rounds, target) in JK.items():
        if not asked.quick or title in QUICK["jk"]:
            for threads in asked.threads:
                yield case(title, threads, rounds) | {"target": target}


def fitting(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    from scripts.eri.three_centre import three_centre

    for title, target in FITTING.items() if not asked.quick else ():
        molecule, basis, auxiliary = title.split("/")
        for threads in asked.threads:
            yield three_centre(molecule, basis, auxiliary, threads=threads) | {"case": title, "target": target}


def gradient(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    from scripts.eri.fitted_gradient import fitted_gradient

    for title, target in GRADIENT.items() if not asked.quick else ():
        molecule, basis, auxiliary = title.split("/")
        for threads in asked.threads:
            yield fitted_gradient(molecule, basis, auxiliary, threads=threads) | {"target": target}


def job(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    from scripts.eri.whole_job import whole_job

    for title, target in JOB.items() if not asked.quick else ():
        molecule, basis = title.split("/")
        yield whole_job(molecule, basis, threads=max(asked.threads), rounds=asked.job_rounds) | {
            "case": title,
            "target": target,
        }


PARTS: dict[str, Callable[[argparse.Namespace], Iterator[dict[str, Any]]]] = {
    "classes": classes,
    "jk": jk,
    "fitting": fitting,
    "gradient": gradient,
    "job": job,
}


def factor(row: dict[str, Any]) -> float:
    """How many times faster than the peer: by wall clock where there is one."""
    ratio = row["ratio"]
    return ratio["wall"] if isinstance(ratio, dict) else ratio


def error(row: dict[str, Any]) -> float:
    """The largest difference from the peer: of an integral, of J or K, of an energy in Hartree."""
    errors = row["max_error"]
    return max(map(abs, errors.values())) if isinstance(errors, dict) else abs(errors)


def show(console: Console, part: str, rows: list[dict[str, Any]]) -> None:
    table = Table(
        title=f"{part}: times the peer, by {'primitives' if part == 'classes' else 'threads'}", title_justify="left"
    )
    for column in ("case", "n", "ratio", "target", "", "max error"):
        table.add_column(column, justify="left" if column in ("case", "") else "right")
    for row in rows:
        target, times = row["target"], factor(row)
        verdict = "" if target is None else "reached" if times >= target else "missed"
        table.add_row(
            row["case"],
            str(row.get("primitives", row.get("threads"))),
            f"{times:.2f}",
            "" if target is None else f"{target:g}",
            verdict,
            f"{error(row):.0e}",
        )
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--job-rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a few cases of a few seconds")
    parser.add_argument("--out", type=Path, default=record_file("eri_cpu"))
    vectors.add_argument(parser)
    asked, console = parser.parse_args(), Console(soft_wrap=True)
    vectors.keep_to(asked.vectors)
    out = vectors.beside(asked.out)
    for part in asked.parts:
        rows = []
        for row in PARTS[part](asked):
            rows.append(row)
            console.print(f"{part} {row['case']}: {factor(row):.2f} times the peer")
        show(console, part, rows)
        write_part(out, part, rows, compiler=find_compiler().label)
    console.print(f"written to {out}")


if __name__ == "__main__":
    main()
