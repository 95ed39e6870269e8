"""Analytic gradients and relaxed dipoles of DF-MP2 beside central differences of the energy.

    python -m scripts.mp2_properties.finite_differences [--molecules H2O NH3 ...] [--out FILE]

For each molecule, on conventional and density-fitted Hartree-Fock, with and without frozen core, for MP2 and SCS-MP2:

    E'(0) by steps h and 2h    D(h) = (E(h) - E(-h)) / 2h
    extrapolation              (4 D(h) - D(2h)) / 3, whose error is of order h^4 (Richardson)

of all coordinates of all nuclei, and of a uniform electric field in x, y and z. The gradients should agree to
1e-7 Hartree/Bohr, and the positions of the electrons, of which the dipole consists, to 1e-6 a.u. The gradient of
Hartree-Fock itself is listed too.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.table import Table

from scripts.mp2_properties.methods import SCALINGS, SCF_TOLERANCES, Method, Variant, run_scf
from scripts.mp2_properties.molecules import MOLECULES, Molecule, displaced, unit_field
from scripts.registry import Benchmark, Rows, main, several

# Bohr, and atomic units of the electric field: rounding errors of the energy over the step, and step^4, are both small.
GRADIENT_STEP, FIELD_STEP = 2e-3, 1e-3
# Hartree/Bohr and Bohr.
GRADIENT_BOUND, DIPOLE_BOUND = 1e-7, 1e-6
HF = "HF"

Energies = dict[tuple[int, str], float]
"""Total energies by number of frozen orbitals and scaling; (0, "HF") is that of the reference."""


def energies_of(mf: Any, molecule: Molecule) -> Energies:
    """Energies of all variants of an SCF."""
    energies: Energies = {(0, HF): float(mf.e_tot)}
    for frozen in sorted({0, molecule.core}):
        energies |= {(frozen, name): e for name, e in Method(mf, frozen).energies().items()}
    return energies


def slopes(energies_at: Callable[[float], Energies], step: float) -> dict[tuple[int, str], float]:
    """Derivatives by central differences with two steps, extrapolated."""
    e = {n: energies_at(n * step) for n in (-2, -1, 1, 2)}
    return {key: (8 * (e[1][key] - e[-1][key]) - (e[2][key] - e[-2][key])) / (12 * step) for key in e[1]}


def numerical(molecule: Molecule, fitted: bool) -> tuple[dict[tuple[int, str], np.ndarray], ...]:
    """Gradients [natm, 3] and positions of the electrons [3] of all variants by finite differences."""
    mol = molecule.mole()
    density = run_scf(molecule, mol, fitted).make_rdm1()

    def moved(coordinate: int) -> Callable[[float], Energies]:
        return lambda step: energies_of(run_scf(molecule, displaced(mol, coordinate, step), fitted, density), molecule)

    def in_field(direction: int) -> Callable[[float], Energies]:
        return lambda step: energies_of(
            run_scf(molecule, mol, fitted, density, field=unit_field(direction, step)), molecule
        )

    gradients = [slopes(moved(n), GRADIENT_STEP) for n in range(3 * mol.natm)]
    positions = [slopes(in_field(n), FIELD_STEP) for n in range(3)]
    return (
        {key: np.reshape([g[key] for g in gradients], (-1, 3)) for key in gradients[0]},
        {key: np.array([p[key] for p in positions]) for key in positions[0]},
    )


def rows_of(name: str, molecule: Molecule) -> list[dict[str, Any]]:
    """The largest differences of all variants of a molecule."""
    rows = []
    for fitted in (False, True):
        mf = run_scf(molecule, molecule.mole(), fitted)
        gradients, positions = numerical(molecule, fitted)
        reference = float(np.abs(mf.nuc_grad_method().kernel() - gradients[0, HF]).max())
        for frozen in sorted({0, molecule.core}):
            method = Method(mf, frozen)
            for scaling in SCALINGS:
                gradient, position = method.gradient_and_position(scaling)
                rows.append(
                    {
                        "molecule": name,
                        "basis": molecule.basis,
                        "spin": molecule.spin,
                        "variant": Variant(fitted, frozen, scaling).label,
                        "functions": len(mf.mo_coeff[0]) if molecule.spin == 0 else len(mf.mo_coeff[0][0]),
                        "largest_component": float(np.abs(gradient).max()),
                        "gradient_error": float(np.abs(gradient - gradients[frozen, scaling]).max()),
                        "dipole_error": float(np.abs(position - positions[frozen, scaling]).max()),
                        "gradient_sum": float(np.abs(gradient.sum(axis=0)).max()),
                        "pyscf_hf_gradient_error": reference,
                    }
                )
    return rows


def table(part: str, rows: list[dict[str, Any]]) -> Table:
    """One line for each variant."""
    table = Table(title="Analytic minus numerical, largest component", title_justify="left")
    for column in ("molecule", "variant", "gradient, Ha/bohr", "dipole, a.u.", "HF gradient"):
        table.add_column(column, justify="left" if column in ("molecule", "variant") else "right")
    for row in rows:
        errors = (row[f"{what}_error"] for what in ("gradient", "dipole", "pyscf_hf_gradient"))
        table.add_row(row["molecule"], row["variant"], *(f"{error:.1e}" for error in errors))
    return table


def rows(asked: argparse.Namespace) -> Rows:
    """The variants of each molecule."""
    for name in asked.molecules:
        yield from rows_of(name, MOLECULES[name])


BENCHMARK = Benchmark(
    "mp2_finite_differences",
    __doc__,
    {"differences": rows},
    {"--molecules": several(list(MOLECULES), choices=list(MOLECULES))},
    keys=("molecule", "variant"),
    place=("", "rows"),
    line=lambda row: f"{row['molecule']}, {row['variant']}",
    table=table,
    facts=lambda asked: {
        "scf": SCF_TOLERANCES,
        "steps": {"gradient_bohr": GRADIENT_STEP, "field_au": FIELD_STEP},
        "bounds": {"gradient_hartree_per_bohr": GRADIENT_BOUND, "dipole_au": DIPOLE_BOUND},
    },
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
