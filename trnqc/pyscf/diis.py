"""DIIS with matrix products by NumPy's BLAS, which takes a fraction of the time of the one that PySCF brings."""

from __future__ import annotations

from typing import Any

import numpy as np
from pyscf import lib, scf

from trnqc.pyscf.early.quadrature import EarlyQuadrature


class CDIIS(scf.diis.CDIIS):
    """PySCF's commutator DIIS (Pulay, J. Comput. Chem. 3, 556 (1982)), with the same steps.

    PySCF computes the error vectors if orbitals are complex or have symmetries, and if there is damping or rollback.

    When early cycles of the SCF on coarse grids get a correction, the Fock matrices of earlier cycles get it too, so
    that all of them are those of one grid.
    """

    def __init__(self, mf: Any = None, filename: str | None = None, Corth: Any = None) -> None:
        super().__init__(mf, filename, Corth)
        self._early: EarlyQuadrature | None = getattr(mf, "_quadrature", None)
        self._densities: dict[int, np.ndarray] = {}

    def update(self, s: np.ndarray, d: np.ndarray, f: np.ndarray, *args: Any, **options: Any) -> Any:
        """Return the extrapolated Fock matrices [..., nao, nao] for overlap, densities and Fock matrices of a cycle."""
        c = self.Corth
        plain = type(c) is np.ndarray and c.dtype == f.dtype == float and s.ndim == 2 and d.shape == f.shape
        if not plain or self.damp or self.rollback:
            return super().update(s, d, f, *args, **options)
        density = c.T @ s @ np.asarray(d)
        if self._early:
            if (change := self._early.take_change()) is not None:
                # An open shell with one set of orbitals has one matrix for both spins.
                mean = change.mean(axis=0) if change.ndim > f.ndim else change
                self._correct(np.broadcast_to(mean, f.shape))
            self._densities[self._head % self.space] = density
        return lib.diis.DIIS.update(self, f, xerr=_commutator(density, np.asarray(f) @ c))

    def _correct(self, change: np.ndarray) -> None:
        """Add a matrix to all Fock matrices that are kept, and to their error vectors what follows."""
        numbers = range(self.get_num_vec())
        half = change @ self.Corth
        for n in numbers:
            self._store(f"x{n}", self.get_vec(n) + change.ravel())
            self._store(f"e{n}", self.get_err_vec(n) + _commutator(self._densities[n], half))
        errors = [np.asarray(self.get_err_vec(n)) for n in numbers]
        for i in numbers:
            for j in numbers:
                self._H[i + 1, j + 1] = errors[i] @ errors[j]


def _commutator(density: np.ndarray, fock: np.ndarray) -> np.ndarray:
    """F D S - S D F for orthonormal functions C, as a vector, from C^T S D and F C."""
    products = density @ fock
    return (products.swapaxes(-1, -2) - products).ravel()
