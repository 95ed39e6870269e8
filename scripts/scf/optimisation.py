"""A geometry optimised by geomeTRIC with energies and gradients of trnqc, and again with those of PySCF.

    python -m scripts.scf.optimisation aspirin/def2-svp/b3lyp/fitted [--who trnqc PySCF] [--start FILE.xyz]
                                       [--most-steps trnqc=100 PySCF=3]

Both start from the same geometry, one after the other in one process, with all kernels compiled before and with the
criteria of PySCF's `geometric_solver`. The record has wall and CPU seconds of every step, and the largest distance
between the same atom in both geometries after superposition, if both optimisations came to their end. The ratio of CPU
seconds is that of the steps that both have, the first one from the same geometry. What `--who` leaves out keeps its
place in the record.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from pyscf import data, lib
from rich.console import Console

from scripts.mp2_properties.geometries import optimised
from scripts.registry import Benchmark, Part, Row, Rows, main, several, stored
from scripts.scf import job
from trnqc.mp2.reference.molecule import load_geometry

WHO = ("trnqc", "PySCF")


def largest_displacement(one: np.ndarray, other: np.ndarray) -> float:
    """Return the largest distance between the same atom in two geometries, after superposition by Kabsch's method."""
    one, other = one - one.mean(axis=0), other - other.mean(axis=0)
    u, _, v = np.linalg.svd(other.T @ one)
    proper = np.array([1.0, 1.0, np.sign(np.linalg.det(u @ v))])
    return float(np.linalg.norm(other @ ((u * proper) @ v) - one, axis=1).max())


def optimisation(
    who: str, case: str, start: Path | None, most_steps: int, part: Path, console: Console
) -> dict[str, Any]:
    """Return what one contestant's optimisation gave: steps with their seconds, their sums, and the geometry."""
    name, basis, functional, way = case.split("/")
    mol = job.molecule(name, basis)
    if start:
        mol.set_geom_(np.array(load_geometry(start).coordinates), unit="Angstrom")
    scanner = job.scf_object(who, mol, functional, way).nuc_grad_method().as_scanner()
    facts = optimised(f"{case}, {who}", scanner, part, console, most_steps)
    return facts | {"cpu_s": sum(step["cpu_s"] for step in facts["steps"])}


def comparison(row: dict[str, Any]) -> dict[str, Any]:
    """Return the ratio of CPU seconds of both, and the distance of their geometries if both are converged."""
    steps = [row[who]["steps"] for who in WHO]
    both = min(map(len, steps))
    ours, theirs = (sum(step["cpu_s"] for step in own[:both]) for own in steps)
    facts = {"steps_of_both": both, "ratio_cpu": theirs / ours}
    if all(row[who]["converged"] for who in WHO):
        first, second = (np.array(row[who]["coordinates_bohr"]) * data.nist.BOHR for who in WHO)
        facts["largest_displacement_angstrom"] = largest_displacement(first, second)
    return facts


def title(asked: argparse.Namespace) -> str:
    """The name of the case in the record."""
    return str(asked.case) + (f" from {asked.start.stem}" if asked.start else "")


def rows(asked: argparse.Namespace) -> Rows:
    """The one row of a case, with what the record has of contestants that are left out."""
    # geomeTRIC prints much, which `optimised` swallows.
    console = Console(soft_wrap=True, file=sys.stdout)
    most = dict.fromkeys(WHO, 100) | {who: int(n) for who, _, n in (word.partition("=") for word in asked.most_steps)}
    row: Row = stored(asked.out).get("parts", {}).get(title(asked), {"rows": [{}]})["rows"][0]
    for who in asked.who:
        part = asked.out.with_suffix(f".{who}.part.json")
        row[who] = optimisation(who, asked.case, asked.start, most[who], part, console)
        part.unlink()
    yield row | (comparison(row) if all(who in row for who in WHO) else {})


def cases(asked: argparse.Namespace) -> dict[str, Part]:
    """The case by its name in the record."""
    return {title(asked): rows}


def text(row: Row) -> str:
    """Steps and seconds of each contestant, and their ratio."""
    words = [f"{who} {row[who]['number_of_steps']} steps, {row[who]['cpu_s']:.0f} CPU s" for who in WHO if who in row]
    if "ratio_cpu" in row:
        words.append(f"CPU seconds of PySCF over ours in {row['steps_of_both']} steps: {row['ratio_cpu']:.2f}")
    return "; ".join(words)


BENCHMARK = Benchmark(
    "optimisation",
    __doc__,
    {},
    {
        "case": {"metavar": "MOLECULE/BASIS/FUNCTIONAL/WAY", "help": "hf is a functional, ways: fitted direct"},
        "--who": several(WHO, choices=WHO),
        "--start": {"type": Path, "metavar": "FILE", "help": "xyz file of the first geometry, Angstrom"},
        "--most-steps": {"nargs": "+", "metavar": "WHO=N", "default": [], "help": "100 by default"},
    },
    line=text,
    facts=lambda asked: {"threads": lib.num_threads()},
    cases=cases,
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
