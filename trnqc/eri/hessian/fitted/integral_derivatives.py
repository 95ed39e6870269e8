"""First derivatives of three- and two-centre integrals as arrays, of the functions of one atom at a time.

The integrals are those over the shells of the derivatives (derivative_basis.py), which are Cartesian. Derivatives are
by the electron's coordinate; those by the position of the nucleus have the opposite sign.
"""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise

import numpy as np
from pyscf import gto
from scipy import sparse

from trnqc.eri.gradient.derivative_basis import DerivativeBasis, derivative_basis
from trnqc.eri.integrals import int2c2e, int3c2e

# Fitting functions whose integrals are computed at once: enough for fast matrix products.
FUNCTIONS = 160


class IntegralDerivatives:
    """Derivatives of (uv|P) and (P|Q) of a molecule and its fitting functions, on the same atoms.

    `omega` is in 1/Bohr: positive for erf(omega r)/r, negative for erfc(-omega r)/r, 0 for 1/r.
    """

    def __init__(self, mol: gto.Mole, auxmol: gto.Mole, omega: float) -> None:
        self.mol, self.auxmol, self.omega = mol, auxmol, omega
        self.basis, self.aux_basis = derivative_basis(mol), derivative_basis(auxmol)
        self._joint = _joined(self.basis)
        self.slices, self.aux_slices = mol.aoslice_by_atom()[:, 2:], auxmol.aoslice_by_atom()[:, 2:]

    @cached_property
    def ranges(self) -> list[tuple[int, int]]:
        """Ranges of fitting shells."""
        loc, edges = self.auxmol.ao_loc_nr(), [0]
        for shell in range(1, self.auxmol.nbas + 1):
            if shell == self.auxmol.nbas or loc[shell + 1] - loc[edges[-1]] > FUNCTIONS:
                edges.append(shell)
        return list(pairwise(edges))

    @property
    def tasks(self) -> list[tuple[int, tuple[int, int]]]:
        """Atoms with functions, each with every range of fitting shells."""
        atoms = [atom for atom, (begin, end) in enumerate(self.slices) if end > begin]
        return [(atom, shells) for atom in atoms for shells in self.ranges]

    @property
    def fitting_atoms(self) -> list[int]:
        """Atoms with fitting functions."""
        return [atom for atom, (begin, end) in enumerate(self.aux_slices) if end > begin]

    def fitting_functions(self, shells: tuple[int, int]) -> tuple[slice, sparse.csr_matrix]:
        """Return the fitting functions of a range of shells, and their matrix in Cartesian functions."""
        plain, cartesian = (self._slice(m, shells) for m in (self.auxmol, self.aux_basis.cartesian))
        return plain, self.aux_basis.transform[cartesian, plain]

    def of_orbitals(self, atom: int, shells: tuple[int, int]) -> np.ndarray:
        """Compute (d_x u v|P) for the functions u of an atom, [P, v, 3, u].

        v and P are Cartesian, and P are the functions of a range of shells.
        """
        own = self._derivative_shells(self.basis, self.mol, atom)
        slices = (*own, self.basis.mol.nbas, self._joint.nbas, *shells)
        integrals = int3c2e(self._joint, self.aux_basis.cartesian, "s1", slices, omega=self.omega, threads=1).T
        rows, columns = self._slice(self.basis.mol, own), slice(*self.slices[atom])
        axes = np.concatenate([axis[rows, columns].toarray() for axis in self.basis.gradient], axis=1)
        shape = (*integrals.shape[:2], 3, axes.shape[1] // 3)
        return (integrals.reshape(-1, integrals.shape[2]) @ axes).reshape(shape)

    def of_fitting(self, atom: int) -> np.ndarray:
        """Compute (uv|d_x P) for the fitting functions of an atom, [3, P, u >= v], with Cartesian u and v."""
        own = self._derivative_shells(self.aux_basis, self.auxmol, atom)
        cartesian = self.basis.cartesian
        slices = (0, cartesian.nbas, 0, cartesian.nbas, *own)
        integrals = int3c2e(cartesian, self.aux_basis.mol, "s2ij", slices, omega=self.omega, threads=1).T
        rows, columns = self._slice(self.aux_basis.mol, own), slice(*self.aux_slices[atom])
        return np.array([axis[rows, columns].T @ integrals for axis in self.aux_basis.gradient])

    @cached_property
    def metric(self) -> np.ndarray:
        """(d_x P|Q), [3, naux, naux]."""
        n, matrix = self.aux_basis.mol.nao_cart(), self._metric
        return np.array([axis.T @ (matrix[:n, n:] @ self.aux_basis.transform) for axis in self.aux_basis.gradient])

    @cached_property
    def twice_in_metric(self) -> np.ndarray:
        """(d_x P|d_y Q), [3, 3, naux, naux]."""
        n, gradient = self.aux_basis.mol.nao_cart(), self.aux_basis.gradient
        matrix = self._metric[:n, :n]
        return np.array([[one.T @ (matrix @ two) for two in gradient] for one in gradient])

    @cached_property
    def _metric(self) -> np.ndarray:
        return int2c2e(_joined(self.aux_basis), omega=self.omega, threads=1)

    @staticmethod
    def _slice(mol: gto.Mole, shells: tuple[int, int]) -> slice:
        return slice(*(int(n) for n in mol.ao_loc_nr()[list(shells)]))

    @staticmethod
    def _derivative_shells(basis: DerivativeBasis, mol: gto.Mole, atom: int) -> tuple[int, int]:
        """Return the range of the shells of an atom's derivatives. A shell of s functions has one derivative shell, all
        others have two.
        """
        counts = np.concatenate([[0], np.cumsum(np.where(mol._bas[:, gto.ANG_OF] > 0, 2, 1))])
        first, last = mol.aoslice_by_atom()[atom, :2]
        return int(counts[first]), int(counts[last])


def _joined(basis: DerivativeBasis) -> gto.Mole:
    """Return one molecule with the shells of the derivatives, followed by those of the molecule itself."""
    joined = basis.mol.copy(deep=False)
    joined._bas = np.vstack([basis.mol._bas, basis.cartesian._bas])
    return joined
