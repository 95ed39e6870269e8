"""Factorisation of the metric (P|Q) of fitting functions, and integrals from which it is divided out, in fp64.

(P|Q) -> factorise: M[P, Q] with (P|Q)^-1 = M M^T -> M^T (P|x) by columns, (x|P) M by rows, and back to functions P

M is L^-T of Cholesky's factor, (P|Q) = L L^T. If (P|Q) is too close to singular, M is U w^-1/2 of the eigenvalues w
that are large enough, and Q has a smaller range than P.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import scipy.linalg

from trnqc.host.arrays import empty
from trnqc.host.rank_updates import add_general_product
from trnqc.host.thread_pool import single_threaded_pool

# Where more columns than this share have integrals, copying these columns takes longer than solving for the others:
# copying 2000 columns of caffeine with cc-pVTZ takes a quarter as long as solving for them.
WORTH = 0.75
# Rows of a block on the diagonal of L by which columns are solved: enough for fast matrix products, and few beside L.
SOLVED = 64
# Columns of L in a block by which rows are solved.
BLOCK = 256


@dataclass(frozen=True, eq=False)
class MetricFactor:
    """M[P, Q] with (P|Q)^-1 = M M^T: L^-T if `matrix` is L, which `is_lower`, else `matrix` itself.

    L is divided out by the inverses of blocks on its diagonal, so that most steps are matrix products. `note` says how
    the matrix was found.
    """

    matrix: np.ndarray
    is_lower: bool
    note: str

    @property
    def nfit(self) -> int:
        """Number of functions P."""
        return self.matrix.shape[0]

    @property
    def naux(self) -> int:
        """Number of functions Q."""
        return self.matrix.shape[1]

    def fit_rows(self, rows: np.ndarray) -> np.ndarray:
        """Replace rows [n, P] by rows M in the first columns of their memory, and return these columns [n, Q]."""
        fitted = rows[:, : self.naux]
        if not self.is_lower:
            fitted[...] = rows @ self.matrix
            return fitted
        for k, inverse in enumerate(self._inverses):
            block = slice(k * BLOCK, k * BLOCK + len(inverse))
            right = rows[:, block]
            if k:
                right = right - rows[:, : block.start] @ self.matrix[block, : block.start].T
            rows[:, block] = right @ inverse.T
        return fitted

    def expand_rows(self, rows: np.ndarray) -> np.ndarray:
        """Return rows [n, Q] M^T, [n, P]. L is divided out in the memory of C-contiguous rows."""
        if not self.is_lower:
            return rows @ self.matrix.T
        # x L = rows is L^T x^T = rows^T, whose matrices BLAS sees in column order.
        return scipy.linalg.blas.dtrsm(1.0, self.matrix.T, rows.T, side=0, lower=0, overwrite_b=1).T

    def fit_columns(self, block: np.ndarray) -> None:
        """Write M^T block to the first rows of a block [P, m]."""
        # In large molecules many pairs of functions are too far from each other to have integrals.
        filled = np.einsum("qp,qp->p", block, block) > 0
        if np.count_nonzero(filled) > WORTH * len(filled):
            self._fit(block)
        else:
            # Columns next to each other are copied together: taking them one by one takes longer than solving.
            runs = _runs(filled)
            ends = np.cumsum([end - begin for begin, end in runs]).tolist()
            places = [(slice(*run), slice(end - run[1] + run[0], end)) for run, end in zip(runs, ends)]
            packed = empty((len(block), int(filled.sum())), block.dtype)
            for place, short in places:
                packed[:, short] = block[:, place]
            self._fit(packed)
            for place, short in places:
                block[:, place] = packed[:, short]

    def fit_ranges(self, integrals: np.ndarray, ranges: Sequence[tuple[int, int]], threads: int) -> np.ndarray:
        """Replace integrals [P, m] by fitted ones [Q, m] in the same memory; one task a range of columns."""
        with single_threaded_pool(threads) as pool:
            list(pool.map(lambda part: self.fit_columns(integrals[:, slice(*part)]), ranges))
        return integrals[: self.naux]

    def fit(self, array: np.ndarray, width: int, threads: int) -> np.ndarray:
        """Return M^T times an array [P, ...], which may be overwritten; a thread takes `width` columns at a time."""
        flat = _flat(array)
        fitted = self.fit_ranges(flat, _ranges(flat.shape[1], width), threads)
        return fitted.reshape(self.naux, *array.shape[1:])

    def expand(self, array: np.ndarray, width: int, threads: int) -> np.ndarray:
        """Return M times an array [Q, ...]; arguments as in `fit`."""
        flat = _flat(array)
        if not self.is_lower:
            return (self.matrix @ flat).reshape(self.nfit, *array.shape[1:])

        def solve(part: tuple[int, int]) -> None:
            block = np.ascontiguousarray(flat[::-1, slice(*part)])
            self._reversed_solver.solve(block)
            flat[:, slice(*part)] = block[::-1]

        with single_threaded_pool(threads) as pool:
            list(pool.map(solve, _ranges(flat.shape[1], width)))
        return flat.reshape(array.shape)

    def solve(self, array: np.ndarray, width: int, threads: int) -> np.ndarray:
        """Return (P|Q)^-1 times an array [P, ...]; arguments as in `fit`."""
        return self.expand(self.fit(array, width, threads), width, threads)

    def _fit(self, block: np.ndarray) -> None:
        if self.is_lower:
            self._solver.solve(block)
        else:
            block[: self.naux] = self.matrix.T @ block

    @cached_property
    def _inverses(self) -> tuple[np.ndarray, ...]:
        return inverses(self.matrix, BLOCK)

    @cached_property
    def _solver(self) -> LowerSolver:
        return LowerSolver.of(self.matrix)

    @cached_property
    def _reversed_solver(self) -> LowerSolver:
        # Both indices of L^T in reverse order give a lower triangle.
        return LowerSolver.of(self.matrix.T[::-1, ::-1])


def factorise(
    metric: np.ndarray, cut: float, least_rcond: float = 0.0, eigh: Callable[[np.ndarray], Any] = scipy.linalg.eigh
) -> MetricFactor:
    """Factorise the symmetric matrix (P|Q), by Cholesky unless that fails or is not accurate, else by eigenvalues.

    Cholesky's factor is accurate if the reciprocal condition number is at least `least_rcond`. Functions with
    eigenvalues up to `cut` Hartree are dropped, and `note` says how many. `eigh` returns eigenvalues and eigenvectors.
    """
    try:
        lower = np.ascontiguousarray(scipy.linalg.cholesky(metric, lower=True))
        if not least_rcond or _rcond(lower, metric) >= least_rcond:
            return MetricFactor(lower, True, "Cholesky")
    except scipy.linalg.LinAlgError:
        pass
    w, u = eigh(metric)
    keep = w > cut
    note = f"eigenvalues: {keep.sum()} of {len(w)} kept, those up to {cut:g} dropped as linearly dependent"
    return MetricFactor(u[:, keep] / np.sqrt(w[keep]), False, note)


def _rcond(lower: np.ndarray, metric: np.ndarray) -> float:
    """Return the reciprocal condition number of a metric with Cholesky's factor L."""
    return float(scipy.linalg.lapack.dpocon(lower, anorm=np.abs(metric).sum(axis=0).max(), uplo="L")[0])


def inverses(lower: np.ndarray, size: int) -> tuple[np.ndarray, ...]:
    """Return the inverses of the blocks [size, size] on the diagonal of a lower triangular matrix."""
    blocks = [lower[i : i + size, i : i + size] for i in range(0, len(lower), size)]
    return tuple(scipy.linalg.solve_triangular(block, np.eye(len(block)), lower=True) for block in blocks)


def _runs(filled: np.ndarray) -> list[tuple[int, int]]:
    """Return the ranges of elements that are true and next to each other."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], filled, [False]]).astype(np.int8)))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist()))


def _flat(array: np.ndarray) -> np.ndarray:
    return array.reshape(len(array), prod(array.shape[1:]))


def _ranges(count: int, width: int) -> list[tuple[int, int]]:
    return [(n, min(n + width, count)) for n in range(0, count, width)]


@dataclass(frozen=True, eq=False)
class LowerSolver:
    """Solves L X = B for a lower triangular matrix L by matrix products alone; the object keeps -L and the inverses of
    the blocks on its diagonal.

    The first half of the rows is solved for, multiplied by the square of L below, and subtracted from the other half.
    The blocks on the diagonal are inverted beforehand, because a BLAS library multiplies much faster than it solves.
    """

    negative: np.ndarray
    inverses: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, lower: np.ndarray) -> LowerSolver:
        """Prepare for L [n, n]."""
        return cls(np.negative(lower, order="C"), tuple(map(np.ascontiguousarray, inverses(lower, SOLVED))))

    def solve(self, rows: np.ndarray) -> None:
        """Replace B [n, m], whose rows are contiguous, by X."""
        if len(self.inverses):
            self._solve(rows, 0, len(self.inverses))

    def _solve(self, rows: np.ndarray, first: int, last: int) -> None:
        """Solve for the rows of some blocks on the diagonal."""
        if last == first + 1:
            block = rows[first * SOLVED : last * SOLVED]
            block[:] = self.inverses[first] @ block
            return
        half = (first + last) // 2
        above, below = slice(first * SOLVED, half * SOLVED), slice(half * SOLVED, last * SOLVED)
        self._solve(rows, first, half)
        add_general_product(rows[below], self.negative[below, above], rows[above])
        self._solve(rows, half, last)
