"""Weights G[p, q, P] of blocks of fitting functions P, as products of orbitals with half-transformed weights."""

from __future__ import annotations

from math import prod

import numpy as np
from scipy.linalg.blas import dgemm

from trnqc.host.arrays import empty
from trnqc.host.thread_pool import single_threaded_pool

# Rows p of a task: enough for fast matrix products, and several tasks for each thread.
ROWS = 128


class BlockProducts:
    """The products G[p, q, P] = sum_k left[p, k] right[k, q, P] + sum_t D[t, p, q] c[t, P] of one block after
    another.

    All blocks have the same memory, because the page faults of a new array take as long as the product. `left` [nao, k]
    are orbitals; without densities D [t, nao, nao] there is no second term. Threads share the rows p.
    """

    def __init__(self, left: np.ndarray, threads: int, densities: np.ndarray | None = None) -> None:
        self._left, self._threads, self._densities = np.ascontiguousarray(left), threads, densities
        self._right, self._weights = _Memory(), _Memory()

    def right(self, functions: int) -> np.ndarray:
        """Return memory [k, nao, n] for the half-transformed weights of a block of n functions."""
        nao, k = self._left.shape
        return self._right((k, nao, functions))

    def weights(self, right: np.ndarray, coefficients: np.ndarray | None = None) -> np.ndarray:
        """Compute G [nao, nao, n] from `right` [k, nao, n] and c [t, n], in memory that the next call overwrites."""
        nao, n = right.shape[1:]
        weights, flat = self._weights((nao, nao * n)), right.reshape(len(right), nao * n)

        def fill(first: int) -> None:
            last = min(first + ROWS, nao)
            rows, add = weights[first:last], 0.0
            if self._densities is not None and coefficients is not None:
                add = 1.0
                _outer(self._densities[:, first:last], coefficients, rows.reshape(-1, nao, n))
            if self._left.shape[1]:
                # BLAS reads the transposes of C-contiguous arrays, and adds to the rows in place.
                product = dgemm(1.0, flat.T, self._left[first:last].T, add, rows.T, overwrite_c=True)
                assert np.shares_memory(product, rows)
            elif not add:
                rows[:] = 0.0

        with single_threaded_pool(self._threads) as pool:
            list(pool.map(fill, range(0, nao, ROWS)))
        return weights.reshape(nao, nao, n)


def _outer(densities: np.ndarray, coefficients: np.ndarray, out: np.ndarray) -> None:
    """Write sum_t D[t, p, q] c[t, P] to `out`."""
    np.multiply(densities[0, :, :, None], coefficients[0], out=out)
    for density, c in zip(densities[1:], coefficients[1:]):
        out += density[:, :, None] * c


class _Memory:
    """One array of the pool of `trnqc.host.arrays`, as large as the largest that was asked for."""

    def __init__(self) -> None:
        self._flat = np.empty(0)

    def __call__(self, shape: tuple[int, ...]) -> np.ndarray:
        size = prod(shape)
        if len(self._flat) < size:
            self._flat = empty((size,), np.float64)
        return self._flat[:size].reshape(shape)
