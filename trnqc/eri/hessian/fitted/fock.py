"""First derivatives of fitted J and K by the positions of all atoms, at constant densities.

With c = V^-1 (P|..) and X the occupied orbitals, every derivative is a matrix M and its transpose:

    J^A = sum_P (uv|P)^A c_P + (uv|P) [V^-1 u^A]_P
    K^A = M + M^T,   M_uv = sum_Pi (ui|P)^A c_P,iv + sum_PQi (d_A P|Q) c_Q,ui c_P,iv

The derivatives of (ui|P) by the atom of a function in i would take a product for each atom. They are summed over i
first, h_P,wv = sum_i X_wi c_P,iv, so that the work does not grow with the number of atoms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from pyscf import lib

from trnqc.eri.fitting.fitted_integrals import COLUMNS
from trnqc.eri.gradient.fitted.half_transform import ComputedRows
from trnqc.eri.hessian.fitted.coefficients import FittedCoefficients
from trnqc.eri.hessian.fitted.integral_derivatives import IntegralDerivatives
from trnqc.host.thread_pool import single_threaded_pool


def fock_derivatives(
    derivatives: IntegralDerivatives, coefficients: FittedCoefficients, with_j: bool, with_k: bool, threads: int
) -> tuple[Any, Any]:
    """Compute the derivatives of J of the sum of the densities, [natm, 3, nao, nao], and of K of each density,
    [n, natm, 3, nao, nao], in Hartree/Bohr.

    What is not wanted is None. The bits do not depend on the number of threads.
    """
    work, nao = _Work(derivatives, coefficients, with_j, with_k), derivatives.mol.nao_nr()
    shape = (derivatives.mol.natm, 3, nao, nao)
    vj, vk = np.zeros(shape), np.zeros((len(coefficients.orbitals) if with_k else 0, *shape))
    changes = np.zeros((derivatives.auxmol.nao_nr(), *shape[:2]))
    with single_threaded_pool(threads) as pool:
        for (atom, shells), (own, half, k) in zip(derivatives.tasks, pool.map(work.of_orbitals, derivatives.tasks)):
            vj[atom, :, slice(*derivatives.slices[atom])] -= own
            changes[derivatives.fitting_functions(shells)[0], atom] = half
            if with_k:
                vk[:, atom] -= k
        for atom, (j, half, k) in zip(derivatives.fitting_atoms, pool.map(work.of_fitting, derivatives.fitting_atoms)):
            vj[atom] -= j
            changes[slice(*derivatives.aux_slices[atom]), atom] -= half
            if with_k:
                vk[:, atom] -= k
    vj += vj.swapaxes(2, 3)
    vk += vk.swapaxes(3, 4)
    if with_j:
        vj += _of_changes(derivatives, coefficients, changes, threads)
    return (vj if with_j else None), (vk if with_k else None)


def _of_changes(
    derivatives: IntegralDerivatives, coefficients: FittedCoefficients, changes: np.ndarray, threads: int
) -> np.ndarray:
    """Return sum_P (uv|P) [V^-1 u^A]_P, [natm, 3, nao, nao], from the derivatives of (P|ij) D_ij, [naux, natm, 3]."""
    for atom in derivatives.fitting_atoms:
        own = slice(*derivatives.aux_slices[atom])
        for axis, metric in enumerate(derivatives.metric):
            changes[own, atom, axis] += metric[own] @ coefficients.total
            changes[:, atom, axis] += metric[own].T @ coefficients.total[own]
    solved = coefficients.metric.solve(changes, COLUMNS, threads).reshape(len(changes), -1)
    mol, auxmol, omega = derivatives.mol, derivatives.auxmol, derivatives.omega
    with mol.with_range_coulomb(omega), auxmol.with_range_coulomb(omega):
        integrals = ComputedRows(mol, auxmol)
    with single_threaded_pool(threads) as pool:
        parts = pool.map(lambda part: solved[slice(*part)].T @ integrals(*part), integrals.ranges)
        packed = sum(parts, start=np.zeros(1))
    return lib.unpack_tril(packed).reshape(*changes.shape[1:], *(2 * [mol.nao_nr()]))


@dataclass(frozen=True, eq=False)
class _Work:
    """The sums over integrals of one atom. All are by the electron's coordinate, of the opposite sign."""

    derivatives: IntegralDerivatives
    coefficients: FittedCoefficients
    with_j: bool
    with_k: bool

    def of_orbitals(self, task: tuple[int, tuple[int, int]]) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
        """Return rows u of the atom in M of J, [3, u, nao]; minus the change of (P|ij) D_ij, [P, 3]; and M of K."""
        atom, shells = task
        basis = self.derivatives.basis
        integrals = self.derivatives.of_orbitals(atom, shells)
        rows, to_aux = self.derivatives.fitting_functions(shells)
        n, v, _, u = integrals.shape
        own = slice(*self.derivatives.slices[atom])
        density = (basis.transform @ self.coefficients.density[:, own]).ravel()
        by_axis = [np.ascontiguousarray(integrals[:, :, axis]).reshape(n, v * u) for axis in range(3)]
        half = to_aux.T @ np.stack([-2 * (one @ density) for one in by_axis], axis=1)
        j = (to_aux @ self.coefficients.total[rows]) @ integrals.reshape(n, -1)
        j = (basis.transform.T @ j.reshape(v, -1)).reshape(-1, 3, u).transpose(1, 2, 0)
        return j, half, [self._exchange(spin, atom, integrals, rows, to_aux) for spin in self._spins]

    @property
    def _spins(self) -> range:
        return range(len(self.coefficients.orbitals) if self.with_k else 0)

    def _exchange(self, spin: int, atom: int, integrals: np.ndarray, rows: slice, to_aux: Any) -> np.ndarray:
        """Return M of K, [3, nao, nao]."""
        basis, x = self.derivatives.basis, self.coefficients.orbitals[spin]
        n, v, _, u = integrals.shape
        own, nocc = slice(*self.derivatives.slices[atom]), x.shape[1]
        fitted = self.coefficients.half[spin][rows]
        fitted = (to_aux @ fitted.reshape(len(fitted), -1)).reshape(n, nocc, -1)
        inner = np.matmul(x[own], fitted).reshape(n * u, -1)
        result = np.empty((3, v, inner.shape[1]))
        for axis in range(3):
            np.matmul(integrals[:, :, axis].transpose(1, 0, 2).reshape(v, n * u), inner, out=result[axis])
        result = np.array([basis.transform.T @ one for one in result])
        moved = np.matmul(integrals.reshape(n, v, 3 * u).swapaxes(1, 2), basis.transform @ x)
        outer = moved.transpose(1, 0, 2).reshape(3 * u, n * nocc) @ fitted.reshape(n * nocc, -1)
        result[:, own] += outer.reshape(3, u, -1)
        return result

    def of_fitting(self, atom: int) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
        """Return half of the atom's share of J, [3, nao, nao]; the change of (P|ij) D_ij, [P, 3]; and M of K."""
        packed = self.derivatives.of_fitting(atom)
        own, to = slice(*self.derivatives.aux_slices[atom]), self.derivatives.basis.transform
        j = [lib.unpack_tril(0.5 * (self.coefficients.total[own] @ axis)) for axis in packed]
        density = to @ self.coefficients.density @ to.T
        half = packed @ lib.pack_tril(density + density.T - np.diag(density.diagonal()))
        matrices = [[self._moved(spin, one, axis, own) for axis, one in enumerate(packed)] for spin in self._spins]
        return np.array([to.T @ one @ to for one in j]), half.T, [np.array(one) for one in matrices]

    def _moved(self, spin: int, packed: np.ndarray, axis: int, own: slice) -> np.ndarray:
        """Return M of K by the position of fitting functions, [nao, nao]."""
        to, x, c = self.derivatives.basis.transform, self.coefficients.orbitals[spin], self.coefficients.half[spin]
        metric = self.derivatives.metric[axis][own]
        fitted = (metric @ c.reshape(len(c), -1)).reshape(-1, *c.shape[1:])
        cartesian = to @ x
        for place, row in zip(fitted, packed):
            place -= (to.T @ (lib.unpack_tril(row) @ cartesian)).T
        flat = c[own].reshape(-1, c.shape[2])
        return -(fitted.reshape(flat.shape).T @ flat)
