"""The terms u^A V^-1 u^B of the Hessian of a fitted energy, from first derivatives of integrals.

integrals (d u v|P) of an atom -> pairs of occupied orbitals -> u^A [naux, 3 natm, pairs] -> L^-1 u^A -> products
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from pyscf import lib

from trnqc.eri.fitting.fitted_integrals import COLUMNS
from trnqc.eri.hessian.fitted.coefficients import FittedCoefficients
from trnqc.eri.hessian.fitted.integral_derivatives import IntegralDerivatives
from trnqc.host.thread_pool import single_threaded_pool

# Parts into which threads divide the rows of a product. The sums of the parts do not depend on the number of threads.
PARTS = 32


def products_of_changes(
    derivatives: IntegralDerivatives, coefficients: FittedCoefficients, with_k: bool, memory: float, threads: int
) -> tuple[np.ndarray, np.ndarray]:
    """Compute sum_PQ u^A_P V^-1_PQ u^B_Q of the Coulomb energy, and the sum of such terms over pairs of orbitals,
    [natm, natm, 3, 3] in Hartree/Bohr^2.

    The sum over pairs, zero unless `with_k`, is over both orders of two orbitals of one spin. Without exchange the
    coefficients may lack `half`. Where u^A does not fit into `memory` bytes, the integrals are computed several times.
    The bits do not depend on the number of threads.
    """
    natm = derivatives.mol.natm
    total = np.zeros((derivatives.auxmol.nao_nr(), natm, 3, 1))
    exchange = np.zeros((3 * natm, 3 * natm))
    for n, x in enumerate(coefficients.orbitals):
        for i, j in _pairs(x.shape[1], with_k, memory / (8 * total.size)):
            changes = _of_integrals(derivatives, x, (i, j), threads)
            total[..., 0] += changes[..., i == j].sum(axis=-1)
            if with_k:
                fitted = np.array([(one @ x)[i, j] for one in coefficients.half[n]])
                _subtract_metric(derivatives, changes, fitted)
                changes *= np.where(i == j, 1.0, np.sqrt(2.0))
                exchange += _products(coefficients.metric.fit(changes, COLUMNS, threads), threads)
    _subtract_metric(derivatives, total, coefficients.total[:, None])
    coulomb = _products(coefficients.metric.fit(total, COLUMNS, threads), threads)
    return _blocks(coulomb, natm), _blocks(exchange, natm)


def _pairs(nocc: int, with_k: bool, most: float) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield pairs of orbitals i >= j, in portions of the allowed size; without exchange only the pairs i = j."""
    i, j = np.tril_indices(nocc) if with_k else (np.arange(nocc), np.arange(nocc))
    step = int(max(1, most))
    for begin in range(0, len(i), step):
        yield i[begin : begin + step], j[begin : begin + step]


def _of_integrals(
    derivatives: IntegralDerivatives, x: np.ndarray, pairs: tuple[np.ndarray, np.ndarray], threads: int
) -> np.ndarray:
    """Compute derivatives of (P|ij) for pairs of orbitals of x, [naux, natm, 3, pairs]."""
    natm, cartesian = derivatives.mol.natm, derivatives.basis.transform @ x
    result = np.zeros((derivatives.auxmol.nao_nr(), natm, 3, len(pairs[0])))

    def of_orbitals(task: tuple[int, tuple[int, int]]) -> None:
        atom, shells = task
        rows, to_aux = derivatives.fitting_functions(shells)
        own = x[slice(*derivatives.slices[atom])]
        by_pair = _of_pairs(derivatives.of_orbitals(atom, shells), cartesian, own, pairs)
        result[rows, atom] = (to_aux.T @ by_pair.reshape(len(by_pair), -1)).reshape(-1, *by_pair.shape[1:])

    def of_fitting(atom: int) -> None:
        rows = range(*derivatives.aux_slices[atom])
        for axis, packed in enumerate(derivatives.of_fitting(atom)):
            for row, one in zip(rows, packed):
                moved = cartesian.T @ (lib.unpack_tril(one) @ cartesian)
                result[row, atom, axis] -= moved[pairs]

    with single_threaded_pool(threads) as pool:
        list(pool.map(of_orbitals, derivatives.tasks))
        list(pool.map(of_fitting, derivatives.fitting_atoms))
    return result


def _subtract_metric(derivatives: IntegralDerivatives, changes: np.ndarray, fitted: np.ndarray) -> None:
    """Subtract V^A c from changes [naux, natm, 3, n], for c [naux, n]."""
    for atom in derivatives.fitting_atoms:
        own = slice(*derivatives.aux_slices[atom])
        for axis, metric in enumerate(derivatives.metric):
            changes[own, atom, axis] += metric[own] @ fitted
            changes[:, atom, axis] += metric[own].T @ fitted[own]


def _of_pairs(
    integrals: np.ndarray, cartesian: np.ndarray, own: np.ndarray, pairs: tuple[np.ndarray, np.ndarray]
) -> np.ndarray:
    """Return the derivatives of (ij|P) by the atom of u from (d_x u v|P) [P, v, 3, u]; [P, 3, pairs]."""
    n, v, _, u = integrals.shape
    half = np.matmul(integrals.reshape(n, v, 3 * u).swapaxes(1, 2), cartesian).reshape(n, 3, u, -1)
    moved = np.matmul(own.T, half)
    return -(moved[:, :, pairs[0], pairs[1]] + moved[:, :, pairs[1], pairs[0]])


def _products(half: np.ndarray, threads: int) -> np.ndarray:
    """Return the products of the derivatives with one another, [3 natm, 3 natm], from [naux, natm, 3, n]."""
    rows = half.reshape(len(half), half.shape[1] * 3, -1)
    step = max(1, -(-len(rows) // PARTS))

    def part(begin: int) -> np.ndarray:
        block = rows[begin : begin + step]
        return np.asarray(np.matmul(block, block.swapaxes(1, 2)).sum(axis=0))

    with single_threaded_pool(threads) as pool:
        return np.sum([*pool.map(part, range(0, len(rows), step))], axis=0)


def _blocks(matrix: np.ndarray, natm: int) -> np.ndarray:
    return matrix.reshape(natm, 3, natm, 3).swapaxes(1, 2)
