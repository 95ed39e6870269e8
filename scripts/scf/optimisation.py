"""A geometry optimised by geomeTRIC with energies and gradients of trnqc, and again with those of PySCF.

    python -m scripts.scf.optimisation aspirin/def2-svp/b3lyp/fitted [--who trnqc PySCF] [--start FILE.xyz]

Both start from the same geometry, one after the other in one process, with all kernels compiled before and with the
criteria of PySCF's `geometric_solver`. The record has wall and CPU seconds of every step, and the largest distance
between the same atom in both geometries after superposition. It is written after each step, so that an optimisation
which is interrupted shows how far it came.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from pyscf import data, lib
from rich.console import Console

from scripts.measuring import record_file, write_part
from scripts.mp2_properties.geometries import optimised
from scripts.scf import job
from trnqc.mp2.reference.molecule import load_geometry

WHO = ("trnqc", "PySCF")


def largest_displacement(one: np.ndarray, other: np.ndarray) -> float:
    """Return the largest distance between the same atom in two geometries, after superposition by Kabsch's method."""
    one, other = one - one.mean(axis=0), other - other.mean(axis=0)
    u, _, v = np.linalg.svd(other.T @ one)
    proper = np.array([1.0, 1.0, np.sign(np.linalg.det(u @ v))])
    return float(np.linalg.norm(other @ ((u * proper) @ v) - one, axis=1).max())


def optimisation(who: str, case: str, start: Path | None, part: Path, console: Console) -> dict[str, Any]:
    """Return what one contestant's optimisation gave: steps with their seconds, their sums, and the geometry."""
    name, basis, functional, way = case.split("/")
    mol = job.molecule(name, basis)
    if start:
        mol.set_geom_(np.array(load_geometry(start).coordinates), unit="Angstrom")
    scanner = job.scf_object(who, mol, functional, way).nuc_grad_method().as_scanner()
    facts = optimised(f"{case}, {who}", scanner, part, console, most_steps=100)
    return facts | {"cpu_s": sum(step["cpu_s"] for step in facts["steps"])}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("case", metavar="MOLECULE/BASIS/FUNCTIONAL/WAY", help="hf is a functional, ways: fitted direct")
    parser.add_argument("--who", nargs="+", choices=WHO, default=WHO)
    parser.add_argument("--start", type=Path, metavar="FILE", help="xyz file of the first geometry, Angstrom")
    parser.add_argument("--out", type=Path, default=record_file("optimisation"), help="default: %(default)s")
    # geomeTRIC prints much, which `optimised` swallows.
    asked, console = parser.parse_args(), Console(soft_wrap=True, file=sys.stdout)
    row: dict[str, Any] = {}
    for who in asked.who:
        part = asked.out.with_suffix(f".{who}.part.json")
        row[who] = optimisation(who, asked.case, asked.start, part, console)
        console.print(f"{who}: {row[who]['number_of_steps']} steps, {row[who]['cpu_s']:.0f} CPU seconds")
    if len(row) == len(WHO):
        ours, theirs = (np.array(row[who]["coordinates_bohr"]) * data.nist.BOHR for who in WHO)
        row["largest_displacement_angstrom"] = largest_displacement(ours, theirs)
        row["ratio_cpu"] = row["PySCF"]["cpu_s"] / row["trnqc"]["cpu_s"]
        console.print(
            f"{row['ratio_cpu']:.2f} times the rate, {row['largest_displacement_angstrom']:.1e} Angstrom apart"
        )
    write_part(asked.out, asked.case, [row], threads=lib.num_threads())
    for who in asked.who:
        asked.out.with_suffix(f".{who}.part.json").unlink()


if __name__ == "__main__":
    main()
