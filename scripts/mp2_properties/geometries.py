"""Geometries optimised with gradients of DF-MP2, and the same with PySCF's gradients of conventional MP2.

    python -m scripts.mp2_properties.geometries NH2/cc-pvtz --conventional
    python -m scripts.mp2_properties.geometries aspirin/cc-pvdz --fitted --start FILE.xyz

A molecule is one of scripts/mp2_properties/molecules.py or of trnqc; `--start` gives it other coordinates.
The chemical core is frozen; radicals have UHF references. PySCF's `geometric_solver` (geomeTRIC) drives both, with its
own criteria. With `--conventional` the optimisation is repeated with `pyscf.mp` and exact integrals, so that what is
left is the error of the fit. The record has a row for each step, so that an optimisation which is interrupted shows how
far it came.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from pyscf import data, gto, lib, mp, scf
from rich.console import Console

import trnqc
from scripts.measuring import write_json
from scripts.mp2_properties.molecules import MOLECULES
from scripts.registry import SWITCH, Benchmark, Part, Row, Rows, main, number
from trnqc.mp2.reference.molecule import build_mole, load_geometry
from trnqc.mp2.reference.orbitals import chemical_core

# Hartree: the orbitals are converged so far that the gradient has an error far below geomeTRIC's criteria.
SCF_TOLERANCE = 1e-10


def molecule(name: str, basis: str) -> gto.Mole:
    """A molecule of the checks or of trnqc, in any basis."""
    if name in MOLECULES:
        checked = MOLECULES[name]
        return gto.M(atom=checked.atoms, spin=checked.spin, basis=basis, verbose=0)
    return build_mole(load_geometry(name), basis)


def reference(mol: gto.Mole, fitted: bool) -> Any:
    """The SCF object, not run, with J and K of trnqc."""
    mf = (scf.UHF if mol.spin else scf.RHF)(mol)
    mf = trnqc.accelerate(mf.density_fit() if fitted else mf)
    mf.conv_tol, mf.conv_tol_grad = SCF_TOLERANCE, 0.1 * SCF_TOLERANCE**0.5
    return mf


def ours(mol: gto.Mole, fitted: bool) -> Any:
    """Our DF-MP2 as a scanner of energies and gradients."""
    method = trnqc.DFMP2(reference(mol, fitted).run(), frozen=chemical_core(mol))
    return method.nuc_grad_method().as_scanner()


def conventional(mol: gto.Mole) -> Any:
    """PySCF's MP2 with exact integrals as a scanner of energies and gradients."""
    mf = (scf.UHF if mol.spin else scf.RHF)(mol)
    mf.conv_tol, mf.conv_tol_grad = SCF_TOLERANCE, 0.1 * SCF_TOLERANCE**0.5
    method = (mp.UMP2 if mol.spin else mp.MP2)(mf.run(), frozen=chemical_core(mol))
    return method.run().nuc_grad_method().as_scanner()


class Recorded(lib.GradScanner):
    """A scanner that notes energy, forces and seconds of every step, and calls `keep` with the notes."""

    def __init__(self, scanner: Any, keep: Any) -> None:
        self.scanner, self.keep = scanner, keep
        self.mol, self.verbose, self.stdout = scanner.mol, 0, scanner.stdout
        self.steps: list[dict[str, float]] = []

    def __call__(self, mol: gto.Mole) -> tuple[float, np.ndarray]:
        """Return the total energy and the gradient of a geometry."""
        wall, cpu = time.perf_counter(), time.process_time()
        energy, gradient = self.scanner(mol)
        self.mol = mol
        self.steps.append(
            {
                "energy_hartree": float(energy),
                "largest_force_hartree_per_bohr": float(np.abs(gradient).max()),
                "rms_force_hartree_per_bohr": float(np.sqrt(np.mean(gradient**2))),
                "wall_s": time.perf_counter() - wall,
                "cpu_s": time.process_time() - cpu,
            }
        )
        self.keep(self)
        return energy, gradient

    @property
    def converged(self) -> bool:
        """Whether the SCF of the last geometry has converged."""
        return bool(self.scanner.converged)


def optimised(title: str, scanner: Any, part: Path, console: Console, most_steps: int) -> dict[str, Any]:
    """Optimise; the facts, which are written to `part` after each step."""
    from pyscf.geomopt import geometric_solver

    facts: dict[str, Any] = {"converged": False}

    def keep(recorded: Recorded) -> None:
        step = recorded.steps[-1]
        facts.update(number_of_steps=len(recorded.steps), wall_s=sum(s["wall_s"] for s in recorded.steps))
        facts.update(coordinates_bohr=recorded.mol.atom_coords().tolist(), steps=recorded.steps)
        write_json(facts, part)
        console.print(
            f"{title}, step {len(recorded.steps)}: {step['energy_hartree']:.8f} Hartree, largest force "
            f"{step['largest_force_hartree_per_bohr']:.1e}, {step['wall_s']:.1f} s"
        )

    with contextlib.redirect_stdout(io.StringIO()):
        facts["converged"], _ = geometric_solver.kernel(Recorded(scanner, keep), maxsteps=most_steps)
    return facts


def distances(positions: np.ndarray) -> np.ndarray:
    """All distances between atoms, Ångström."""
    pairs = np.triu_indices(len(positions), 1)
    return np.linalg.norm(positions[pairs[0]] - positions[pairs[1]], axis=1) * data.nist.BOHR


def rows(asked: argparse.Namespace) -> Rows:
    """The one row of a case."""
    # geomeTRIC prints much, which `optimised` swallows.
    console = Console(soft_wrap=True, file=sys.stdout)
    mol, part = molecule(*asked.case.split("/")), asked.out.with_suffix(".part.json")
    if asked.start:
        mol.set_geom_(np.array(load_geometry(asked.start).coordinates), unit="Angstrom")
    row: Row = {"reference": ("UHF" if mol.spin else "RHF") + ", density-fitted" * asked.fitted}
    row["trnqc"] = optimised(f"{asked.case}, trnqc", ours(mol, asked.fitted), part, console, asked.most_steps)
    if asked.conventional:
        row["PySCF"] = optimised(f"{asked.case}, PySCF", conventional(mol), part, console, asked.most_steps)
        geometries = {who: np.array(row[who]["coordinates_bohr"]) for who in ("trnqc", "PySCF")}
        row["distances_angstrom"] = {who: distances(positions).tolist() for who, positions in geometries.items()}
    part.unlink()
    yield row


def cases(asked: argparse.Namespace) -> dict[str, Part]:
    """The one case."""
    return {asked.case: rows}


BENCHMARK = Benchmark(
    "mp2_geometries",
    __doc__,
    {},
    {
        "case": {"metavar": "MOLECULE/BASIS"},
        "--fitted": SWITCH | {"help": "density-fitted Hartree-Fock"},
        "--conventional": SWITCH | {"help": "again with PySCF's MP2 and exact integrals"},
        "--start": {"type": Path, "metavar": "FILE", "help": "xyz file of the first geometry, Angstrom"},
        "--most-steps": number(100),
    },
    line=lambda row: f"{row['reference']}: {row['trnqc']['number_of_steps']} steps",
    facts=lambda asked: {"threads": lib.num_threads()},
    cases=cases,
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
