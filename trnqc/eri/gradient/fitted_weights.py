"""Weights of derivatives of (pq|P) and (P|Q) in the gradient of a fitted energy; see `fitted_jk_gradient`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.linalg
from pyscf import gto, lib

from trnqc.eri.fitting.fitted_integrals import MetricFactor
from trnqc.eri.fitting.thread_pool import single_threaded_pool
from trnqc.eri.integrals import ThreeCentre
from trnqc.errors import InputError, MemoryLimit
from trnqc.host.memory import gigabytes

# Eigenvalues of a density below this share of the largest are rounding errors.
NEGLIGIBLE = 1e-14
# The fewest fitting functions whose integrals a thread computes at once: each call takes milliseconds.
FUNCTIONS = 32
# Bytes of packed integrals that a thread computes at once, where these are of more functions.
BYTES = 1.28e8


@dataclass(frozen=True, eq=False)
class DensityPair:
    """Two densities of one spin case, and the factor of their exchange.

    Parameters
    ----------
    first, second : ndarray [n, nao, nao]
        D1 and D2: one spin-summed matrix each, or those of alpha and beta electrons.
    exchange
        1/2 for spin-summed densities, else 1.
    """

    first: np.ndarray
    second: np.ndarray
    exchange: float

    @classmethod
    def of(cls, mol: gto.Mole, d1: Any, d2: Any) -> DensityPair:
        """Check densities [nao, nao] or [2, nao, nao]."""
        nao = mol.nao_nr()
        first, second = (np.asarray(d, dtype=np.float64) for d in (d1, d2))
        if first.shape != second.shape or first.shape not in ((nao, nao), (2, nao, nao)):
            raise InputError(
                f"expected two densities [{nao}, {nao}] or [2, {nao}, {nao}], found {list(first.shape)} and "
                f"{list(second.shape)}"
            )
        for name, one in (("d1", first), ("d2", second)):
            scale = np.abs(one).max(initial=0.0)
            if not np.isfinite(scale):
                raise InputError(f"{name} has elements that are not finite: the step that computed it has failed")
            if np.abs(one - one.swapaxes(-1, -2)).max(initial=0.0) > 1e-8 * scale:
                raise InputError(f"expected symmetric densities, but {name} differs from its transpose")
        factor = 0.5 if first.ndim == 2 else 1.0
        return cls(first.reshape(-1, nao, nao), second.reshape(-1, nao, nao), factor)


@dataclass(frozen=True, eq=False)
class _Exchange:
    """The exchange of one spin: D1 = W diag(w) W^T, the other density, and T[k, s, P] = sum_r W_rk C^P_rs."""

    orbitals: np.ndarray
    occupations: np.ndarray
    other: np.ndarray
    transformed: np.ndarray


class FittedWeights:
    """The weights of derivatives of (pq|P) and of (P|Q) in the derivative of the fitted energy."""

    def __init__(self, mol: gto.Mole, auxmol: gto.Mole, pair: DensityPair, memory: float, threads: int) -> None:
        self.factor = pair.exchange
        self.totals = pair.first.sum(axis=0), pair.second.sum(axis=0)
        nao, naux = mol.nao_nr(), auxmol.nao_nr()
        spins = [_low_rank(*densities) for densities in zip(pair.first, pair.second)]
        elements = 2 * naux * nao * sum(len(w) for _, w, _ in spins)
        if 8 * elements > memory:
            raise MemoryLimit(
                f"the fitted gradient of {nao} orbitals and {naux} fitting functions takes {gigabytes(8 * elements)}, "
                f"allowed are {gigabytes(memory)}: raise max_memory"
            )
        half = [np.empty((len(w), nao, naux)) for _, w, _ in spins]
        projections = np.empty((2, naux))
        _transform(mol, auxmol, [w for w, _, _ in spins], self.totals, half, projections, threads)
        metric = MetricFactor.of(mol, auxmol)
        self.coefficients = _solved(metric, projections)
        self.exchange = [_Exchange(*spin, _solved(metric, array)) for spin, array in zip(spins, half)]

    def three_centre(self, functions: np.ndarray) -> np.ndarray:
        """Return the weights [nao, nao, n] of (pq|P) for n fitting functions P."""
        nao, n = len(self.totals[0]), len(functions)
        lefts = [-2 * self.factor * spin.orbitals * spin.occupations for spin in self.exchange]
        rights = np.empty((sum(left.shape[1] for left in lefts), nao, n))
        begin = 0
        for spin in self.exchange:
            end = begin + len(spin.occupations)
            np.matmul(spin.other, spin.transformed[:, :, functions], out=rights[begin:end])
            begin = end
        weights = (np.concatenate(lefts, axis=1) @ rights.reshape(-1, nao * n)).reshape(nao, nao, n)
        # Row by row, so that temporary arrays stay in the cache.
        swapped = np.ascontiguousarray(self.coefficients[::-1, functions])
        for row, d1, d2 in zip(weights, *self.totals):
            row += np.column_stack([d1, d2]) @ swapped
        return weights

    def two_centre(self) -> np.ndarray:
        """Return the weights [naux, naux] of (P|Q)."""
        c1, c2 = self.coefficients
        weights = -np.multiply.outer(c1, c2)
        for spin in self.exchange:
            for occupation, rows in zip(spin.occupations, spin.transformed):
                weights += (self.factor * occupation) * (rows.T @ (spin.other @ rows))
        return weights


def _low_rank(d1: np.ndarray, d2: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the eigenvectors and eigenvalues of the density of lower rank, and the other density."""
    systems = []
    for density, other in ((d1, d2), (d2, d1)):
        w, u = np.linalg.eigh((density + density.T) / 2)
        large = np.abs(w) > NEGLIGIBLE * np.abs(w).max(initial=0.0)
        systems.append((u[:, large], w[large], other))
    return min(systems, key=lambda system: len(system[1]))


def _transform(
    mol: gto.Mole,
    auxmol: gto.Mole,
    orbitals: Sequence[np.ndarray],
    densities: Sequence[np.ndarray],
    half: Sequence[np.ndarray],
    projections: np.ndarray,
    threads: int,
) -> None:
    """Write sum_r W_rk (P|rs) into half [k, s, P], and sum_rs (P|rs) D_rs into projections [2, P]."""
    integrals, loc, nao = ThreeCentre(mol, auxmol), auxmol.ao_loc_nr(), mol.nao_nr()
    i, j = np.tril_indices(nao)
    # A pair i > j stands for two elements of the density.
    folded = np.array([(d + d.T)[i, j] * np.where(i == j, 0.5, 1.0) for d in densities])
    most = max(FUNCTIONS, BYTES / (8 * max(len(i), 1)))
    edges = [0]
    for shell in range(1, auxmol.nbas + 1):
        if shell == auxmol.nbas or loc[shell + 1] - loc[edges[-1]] > most:
            edges.append(shell)

    def transform(shells: tuple[int, int]) -> None:
        first, last = loc[shells[0]], loc[shells[1]]
        packed = integrals(shells)
        projections[:, first:last] = folded @ packed.T
        square, parts = np.empty((nao, nao)), [np.empty((last - first, *to.shape[:2])) for to in half]
        for n, row in enumerate(packed):
            lib.unpack_tril(row, out=square)
            for w, part in zip(orbitals, parts):
                np.matmul(w.T, square, out=part[n])
        for to, part in zip(half, parts):
            to[:, :, first:last] = part.transpose(1, 2, 0)

    with single_threaded_pool(threads) as pool:
        list(pool.map(transform, pairwise(edges)))


def _solved(metric: MetricFactor, rows: np.ndarray) -> np.ndarray:
    """Return rows [..., naux] times the inverse of the metric, in their memory where the metric is not singular."""
    flat = rows.reshape(-1, rows.shape[-1])
    if not metric.is_lower:
        return ((flat @ metric.matrix) @ metric.matrix.T).reshape(rows.shape)
    solved = scipy.linalg.cho_solve((metric.matrix, True), flat.T, overwrite_b=True, check_finite=False)
    return np.ascontiguousarray(solved.T).reshape(rows.shape)
