"""The response of fitted J and K to changes of occupied orbitals.

changes U of the occupied orbitals C -> changes of the density (U C^T + C U^T) -> J' C and K' C

With B_Q = L^-1 (P|uv), B_Q C and C^T B_Q C, the products of K' with the occupied orbitals are

    K' C = sum_Q B_Q U (C^T B_Q C) + (B_Q C) (U^T B_Q C)

No density matrices and no virtual orbitals are needed, and the changes of all perturbations share the products.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pyscf import lib
from scipy.linalg.blas import dgemm

from trnqc.errors import MemoryLimit
from trnqc.host.memory import gigabytes
from trnqc.host.thread_pool import single_threaded_pool

# Parts into which threads divide the rows Q. The sums of the parts do not depend on the number of threads.
PARTS = 8


class FittedOrbitalResponse:
    """J' C - x K' C for packed fitted integrals B_Q [naux, nao (nao + 1) / 2], as a term of `OrbitalResponse`.

    `occupied` are the orbitals [nao, nocc] of each spin, and `memory` the bytes of this object. Raises MemoryLimit if
    the products of B_Q with the orbitals do not fit. The bits do not depend on the number of threads.
    """

    def __init__(
        self,
        rows: np.ndarray,
        occupied: Sequence[np.ndarray],
        coulomb: float,
        exchange: float,
        memory: float,
        threads: int,
    ) -> None:
        self._rows, self._factors, self._threads = rows, (coulomb, exchange), threads
        needed = 8.0 * len(rows) * sum(c.size for c in occupied)
        if needed > memory:
            raise MemoryLimit(
                f"fitted integrals of the occupied orbitals take {gigabytes(needed)}, allowed are {gigabytes(memory)}: "
                "raise max_memory"
            )
        self._half = [np.empty((len(rows), c.shape[1], c.shape[0])) for c in occupied]

        def transform(q: int) -> None:
            square = lib.unpack_tril(rows[q])
            for half, c in zip(self._half, occupied):
                np.matmul(c.T, square, out=half[q])

        with single_threaded_pool(threads) as pool:
            list(pool.map(transform, range(len(rows))))
        self._occupied = occupied

    def __call__(self, changes: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return coulomb J' C - exchange K' C, [n, nao, nocc] of each spin, for changes U [n, nao, nocc] of each."""
        coulomb, exchange = self._factors
        results = [np.zeros(u.shape) for u in changes]
        if coulomb:
            for result, j in zip(results, self._coulomb(changes)):
                result += coulomb * j
        if exchange:
            for spin, (result, u) in enumerate(zip(results, changes)):
                result -= exchange * self._exchange(spin, u)
        return results

    def _coulomb(self, changes: Sequence[np.ndarray]) -> list[np.ndarray]:
        naux, n = len(self._rows), len(changes[0])
        projections = np.zeros((naux, n))
        for half, u in zip(self._half, changes):
            projections += half.reshape(naux, -1) @ (2 * u.swapaxes(1, 2).reshape(n, -1).T)
        products = (projections.T @ half.reshape(naux, -1) for half in self._half)
        return [product.reshape(n, *half.shape[1:]).swapaxes(1, 2) for product, half in zip(products, self._half)]

    def _exchange(self, spin: int, u: np.ndarray) -> np.ndarray:
        """Return K' C of one spin, [n, nao, nocc]."""
        n, nao, nocc = u.shape
        columns = np.ascontiguousarray(u.swapaxes(0, 1)).reshape(nao, n * nocc)
        edges = np.linspace(0, len(self._rows), PARTS + 1).astype(int)

        def part(number: int) -> np.ndarray:
            total = np.zeros((nao, n * nocc))
            left, right = np.empty((nao, nao + nocc)), np.empty((nao + nocc, n * nocc))
            for q in range(edges[number], edges[number + 1]):
                half = self._half[spin][q]
                left[:, :nao], left[:, nao:] = lib.unpack_tril(self._rows[q]), half.T
                both = half @ self._occupied[spin]
                np.matmul(columns.reshape(nao * n, nocc), both, out=right[:nao].reshape(nao * n, nocc))
                inner = (half @ columns).reshape(nocc, n, nocc)
                right[nao:].reshape(nocc, n, nocc)[...] = inner.transpose(2, 1, 0)
                # total += left @ right, in the order of columns that BLAS reads.
                dgemm(1.0, right.T, left.T, beta=1.0, c=total.T, overwrite_c=True)
            return total

        with single_threaded_pool(self._threads) as pool:
            total = sum(pool.map(part, range(PARTS)), start=np.zeros((nao, n * nocc)))
        return total.reshape(nao, n, nocc).swapaxes(0, 1)
