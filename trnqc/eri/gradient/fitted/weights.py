"""Weights of derivatives of (pq|P) and (P|Q) in the gradient of a fitted energy; see `fitted_jk_gradient`.

With the metric V = L L^T, B^Q = L^-1 (rs|P), one density W w W^T of rank r and the other one A, for each spin:

    X^P = W^T (L^-T B)^P [r, nao],  Y^P = factor w X^P A
    weights of (P|Q): X^P Y^Q,  of (pq|P): -2 W Y^P,  and both have Coulomb terms

If A = W alpha W^T, as in Hartree-Fock, X and Y are [r, r]. Y takes the memory of X, block by block. Ranks that have
some of the rows B^Q share the columns r of X and Y, and add up what these contribute to the weights of (P|Q).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pyscf import gto

from trnqc.eri.fitting.fitted_integrals import metric_factor
from trnqc.eri.gradient.fitted.column_shares import ColumnShares
from trnqc.eri.gradient.fitted.densities import DensityPair, SpinDensities, by_spin
from trnqc.eri.gradient.fitted.half_transform import ComputedRows, FittedRows, half_transformed
from trnqc.eri.gradient.fitted.products import BlockProducts
from trnqc.errors import InputError, MemoryLimit
from trnqc.fitted.metric import MetricFactor
from trnqc.host.memory import gigabytes
from trnqc.host.thread_pool import single_threaded_pool

# Columns for which a thread solves at once: they stay in its cache and are enough for matrix products.
COLUMNS = 1024
# Rows of the symmetric matrix of weights of (P|Q) that are computed at once.
ROWS = 352
# Fitting functions for which a thread multiplies by a density at once.
STEP = 64


@dataclass(frozen=True, eq=False)
class _SpinWeights:
    """The densities of one spin with Y [naux, r, nao], or [naux, r, r] if the other density lies inside."""

    densities: SpinDensities
    transformed: np.ndarray


class FittedWeights:
    """The weights of derivatives of (pq|P) and of (P|Q) in the derivative of the fitted energy.

    `coulomb` and `exchange` are factors of the two energies, and `rows` are the naux rows of nao (nao + 1) / 2 fitted
    integrals L^-1 (rs|P), r >= s; without rows, integrals are computed. Ranks that have some of the rows each ask for
    weights of (pq|P) of some `functions` P, in rising order, and no others. `memory` are bytes for the arrays.
    """

    def __init__(
        self,
        mol: gto.Mole,
        auxmol: gto.Mole,
        pair: DensityPair,
        *,
        coulomb: float = 1.0,
        exchange: float = 1.0,
        rows: FittedRows | None = None,
        functions: Sequence[np.ndarray] | None = None,
        memory: float,
        threads: int,
    ) -> None:
        self._threads, self._factor = threads, exchange * pair.exchange
        low, spins = by_spin(pair) if exchange else (0, [])
        nao, naux = mol.nao_nr(), auxmol.nao_nr()
        _check_memory(nao, naux, spins, memory)
        if rows is not None and (rows.count, rows.pairs) != (naux, nao * (nao + 1) // 2):
            raise InputError(
                f"expected fitted integrals {[naux, nao * (nao + 1) // 2]}, found {[rows.count, rows.pairs]}"
            )
        source = ComputedRows(mol, auxmol) if rows is None else rows
        metric = source.factor or metric_factor(mol, auxmol)
        half, projections = half_transformed(source, spins, pair.totals, threads)
        if not source.fitted:
            half = [metric.fit(array, COLUMNS, threads) for array in half]
            projections = metric.fit(projections.T.copy(), COLUMNS, threads).T
        c1, c2 = metric.expand(projections.T.copy(), COLUMNS, threads).T
        shares = ColumnShares(source.ranks, source.first, naux, functions or [np.arange(naux)])
        self._two_centre, self._place = np.zeros((naux, naux)), np.zeros(naux, np.int64)
        self._place[shares.rows] = np.arange(len(shares.rows))
        self._spins = [self._exchange(spin, array, metric, shares) for spin, array in zip(spins, half)]
        self._two_centre = source.ranks.sum(self._two_centre)
        self._two_centre -= coulomb * np.multiply.outer(c1, c2)
        dense = self._add_coulomb(low, coulomb * np.stack([c2, c1]), shares.rows)
        left = np.concatenate([np.empty((nao, 0)), *(-2 * spin.orbitals for spin in spins)], axis=1)
        self._products = BlockProducts(left, threads, np.stack(pair.totals)[dense] if dense else None)

    def _exchange(
        self, spin: SpinDensities, half: np.ndarray, metric: MetricFactor, shares: ColumnShares
    ) -> _SpinWeights:
        """Return Y of the functions of this rank, and add the weights of (P|Q) by the columns of this rank."""
        columns = shares.columns(spin.rank)
        x = metric.expand(shares.by_columns(half), COLUMNS, self._threads)
        shape, x = x.shape, x.reshape(len(x), -1)
        if x.size:
            # The weights are symmetric. Those of the last rows are computed first, with X of the rows before.
            for first in reversed(range(0, len(x), ROWS)):
                last = min(first + ROWS, len(x))
                y = self._multiplied(spin, columns, x[first:last])
                self._add_rows(y, x[:last])
                x[first:last] = y
        return _SpinWeights(spin, shares.by_rows(x.reshape(shape), spin.rank))

    def _multiplied(self, spin: SpinDensities, columns: slice, x: np.ndarray) -> np.ndarray:
        """Return some rows of Y from the same rows of X, for some columns r."""
        y = np.empty_like(x)
        scale = np.tile(self._factor * spin.occupations[columns], STEP)[:, None]

        def multiply(first: int) -> None:
            part, to = (array[first : first + STEP].reshape(-1, len(spin.other)) for array in (x, y))
            np.matmul(part, spin.other, out=to)
            to *= scale[: len(to)]

        with single_threaded_pool(self._threads) as pool:
            list(pool.map(multiply, range(0, len(x), STEP)))
        return y

    def _add_rows(self, y: np.ndarray, x: np.ndarray) -> None:
        """Add the weights y x^T to the weights of (P|Q); the rows of y are the last rows of x."""
        first = len(x) - len(y)

        def add(begin: int) -> None:
            columns = slice(begin, min(begin + ROWS, len(x)))
            product = y @ x[columns].T
            self._two_centre[first : len(x), columns] += product
            if begin < first:
                self._two_centre[columns, first : len(x)] += product.T

        with single_threaded_pool(self._threads) as pool:
            list(pool.map(add, range(0, len(x), ROWS)))

    def _add_coulomb(self, low: int, coefficients: np.ndarray, functions: np.ndarray) -> list[int]:
        """Add the Coulomb weights to Y where a density is one in terms of orbitals; return which of D1, D2 are not.

        coefficients [2, naux]: those of D1 and of D2 in the weights of (pq|P).
        """
        for spin in self._spins:
            densities, w = spin.densities, spin.densities.occupations
            of_low = np.diag(w) if densities.inside else w[:, None] * densities.orbitals.T
            for y, c in zip(spin.transformed, -0.5 * coefficients.T[functions]):
                y += c[low] * of_low
                if self._inside:
                    y += c[1 - low] * densities.other
        dense = [0, 1] if not self._spins else [] if self._inside else [1 - low]
        self._dense = coefficients[dense]
        return dense

    @property
    def _inside(self) -> bool:
        """Whether both densities of each spin lie in the space of its orbitals."""
        return bool(self._spins) and all(spin.densities.inside for spin in self._spins)

    def three_centre(self, functions: np.ndarray) -> np.ndarray:
        """Return weights [nao, nao, n] of (pq|P) for n fitting functions P, which the next call overwrites."""
        right = self._products.right(len(functions))
        begin = 0
        for spin in self._spins:
            end = begin + spin.densities.rank
            part = spin.transformed[self._place[functions]].transpose(1, 2, 0)
            if spin.densities.inside:
                np.matmul(spin.densities.orbitals, part, out=right[begin:end])
            else:
                right[begin:end] = part
            begin = end
        return self._products.weights(right, self._dense[:, functions])

    def two_centre(self) -> np.ndarray:
        """Return weights [naux, naux] of (P|Q)."""
        return self._two_centre


def _check_memory(nao: int, naux: int, spins: list[SpinDensities], memory: float) -> None:
    needed = 8 * sum(naux * spin.rank * len(spin.other) for spin in spins)
    if needed > memory:
        raise MemoryLimit(
            f"the fitted gradient of {nao} orbitals and {naux} fitting functions takes {gigabytes(needed)}, allowed "
            f"are {gigabytes(memory)}: raise max_memory"
        )
