"""Integrals of density functionals by all ranks, each with some blocks of the grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pyscf import gto

from trnqc.pyscf.shared.work import SharedWork, tags_of
from trnqc.xc.blocks import Blocks
from trnqc.xc.densities import DensityMatrix


class SharedQuadrature:
    """The `trnqc.xc.numint.Team` of rank 0."""

    def __init__(self, shared: SharedWork) -> None:
        self.shared = shared

    @property
    def among(self) -> str:
        """The ranks in words."""
        return self.shared.among

    def semilocal(
        self, ni: Any, blocks: Blocks, xc_code: str, kind: str, densities: Sequence[DensityMatrix], spins: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Compute electrons, energies and potentials; see `trnqc.xc.semilocal.semilocal`."""
        integrals: tuple[np.ndarray, np.ndarray, np.ndarray]
        integrals = self.shared.ask_on(blocks, "semilocal", ni.omega, xc_code, kind, densities, spins)
        return integrals

    def forces(self, ni: Any, mol: gto.Mole, grids: Any, xc_code: str, dm: Any) -> np.ndarray:
        """Compute the gradient of exchange and correlation; see `trnqc.xc.forces.xc_gradient`."""
        arguments = grids.coords, grids.weights, ni.omega, xc_code, np.asarray(dm), tags_of(dm)
        gradient: np.ndarray = self.shared.ask_of(mol, "forces", *arguments)
        return gradient
