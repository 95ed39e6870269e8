"""The molecules on which gradients and dipoles are checked.

Their geometries are near the minimum, but not at it and without symmetry, so that no component vanishes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pyscf import gto


@dataclass(frozen=True)
class Molecule:
    """A molecule of the checks.

    Attributes
    ----------
    atoms
        Symbols and coordinates in Ångström, in PySCF's form.
    core
        Number of orbitals of the chemical core.
    spin
        Number of unpaired electrons.
    basis, fitting
        The orbital basis, and the Coulomb-fitting basis of a density-fitted SCF.
    """

    atoms: str
    core: int
    spin: int = 0
    basis: str = "cc-pvdz"
    fitting: str = "cc-pvdz-jkfit"

    def mole(self) -> gto.Mole:
        """Build PySCF's molecule."""
        return gto.M(atom=self.atoms, basis=self.basis, spin=self.spin, verbose=0)


MOLECULES = {
    "H2O": Molecule("O 0.02 0 0.117; H 0 0.757 -0.469; H 0.01 -0.72 -0.479", 1),
    "NH3": Molecule("N 0 0.01 0.12; H 0.94 0 -0.27; H -0.47 0.814 -0.25; H -0.46 -0.83 -0.28", 1),
    "HCN": Molecule("H 0.05 0 -1.08; C 0 0 0; N 0.02 0.03 1.17", 2),
    "H2CO": Molecule("C 0 0.01 -0.53; O 0.02 0 0.69; H 0.93 0.03 -1.11; H -0.95 0 -1.12", 2),
    "HF": Molecule("H 0.03 0.1 0; F 0 0 0.93", 1),
    "H2S": Molecule("S 0.02 0 0.104; H 0 0.975 -0.82; H 0.01 -0.95 -0.84", 5),
    "PH3": Molecule("P 0 0.01 0.13; H 1.2 0 -0.63; H -0.6 1.03 -0.65; H -0.59 -1.06 -0.64", 5),
    "NH2": Molecule("N 0.02 0 0.142; H 0 0.803 -0.497; H 0.01 -0.77 -0.51", 1, spin=1),
    "CH3": Molecule("C 0.02 0.01 0.08; H 1.07 0 0.02; H -0.53 0.93 0; H -0.54 -0.92 0.03", 1, spin=1),
    # The least eigenvalue of the overlap is 4e-7, and no function is removed.
    "H4": Molecule(
        "; ".join(f"H {0.05 * (-1) ** n} {0.02 * n} {0.6 * n}" for n in range(4)),
        0,
        basis="aug-cc-pvtz",
        fitting="aug-cc-pvtz-jkfit",
    ),
}


def displaced(mol: gto.Mole, coordinate: int, step: float) -> gto.Mole:
    """Return the molecule with one of its 3 natm coordinates changed by `step` Bohr."""
    positions = mol.atom_coords().ravel()
    positions[coordinate] += step
    return mol.set_geom_(positions.reshape(-1, 3), unit="Bohr", inplace=False)


def unit_field(direction: int, strength: float) -> np.ndarray:
    """Return an electric field (atomic units) in the direction x, y or z."""
    return strength * np.eye(3)[direction]
