"""Exchange-correlation terms of a Hessian on a grid that moves with the atoms.

points of each atom, derivatives of their weights (grid_response.py) -> terms with the points at rest (quadrature.py)
-> the points move with their atom -> + second derivatives of the weights times the energy density
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pyscf import gto

from trnqc.errors import UnsupportedError
from trnqc.xc.grid_response import MovingPoints, energy_density, moving_points
from trnqc.xc.hessian.quadrature import Functional, HessianQuadrature
from trnqc.xc.partition_derivatives import moved_with


class MovingGridQuadrature:
    """What `HessianQuadrature` computes, as derivatives of the quadrature itself.

    Each point moves with its atom, and the weights of all points depend on the positions of all atoms.

    `grids` is a grid of PySCF for the molecule, which has been built; the other arguments are those of
    `HessianQuadrature`. Methods raise UnsupportedError for a grid of other points than `build` makes, and for a
    partition of space other than those of Becke and Stratmann.
    """

    def __init__(self, mol: gto.Mole, grids: Any, functional: Functional, dms: np.ndarray, threads: int) -> None:
        self.mol, self.grids, self.functional, self.dms, self.threads = mol, grids, functional, dms, threads

    def energy(self) -> np.ndarray:
        """Compute second derivatives of the energy at constant densities, [natm, natm, 3, 3] in Hartree/Bohr^2."""
        total = np.zeros((self.mol.natm, self.mol.natm, 3, 3))
        numint, code = self.functional.numint, self.functional.code
        for own in moving_points(self.grids):
            terms = self._at_rest(own).energy()
            total += moved_with(moved_with(terms, own.owner, 0), own.owner, 1)
            total += own.second(energy_density(numint, self.mol, own.points, code, self.dms))
        return total

    def fock(self) -> np.ndarray:
        """Compute first derivatives of the potential's matrices by all atoms, [spins, natm, 3, nao, nao]."""
        nao = self.mol.nao_nr()
        total = np.zeros((len(self.dms), self.mol.natm, 3, nao, nao))
        for own in moving_points(self.grids):
            total += moved_with(self._at_rest(own).fock(), own.owner, 1)
        return total

    def _at_rest(self, own: MovingPoints) -> HessianQuadrature:
        found, expected = np.count_nonzero(self.grids.atm_idx == own.owner), len(own.points)
        if found != expected:
            raise UnsupportedError(
                f"the grid has {found} points that belong to atom {own.owner}, and its settings describe {expected}: "
                "grid_response needs the points that grids.build() makes"
            )
        grid = own.points, own.weights
        return HessianQuadrature(self.mol, grid, self.functional, self.dms, self.threads, own.derivatives)
