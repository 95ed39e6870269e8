"""The change of the Fock matrix from fitted integrals in memory.

    packed rows S_Q = (Q|mu nu) -> H_Q = S_Q C_occ, once          for groups of auxiliary functions Q
    rotation, D = Y C_occ^T + C_occ Y^T with Y = C_vir z:   X_Q = S_Q Y
        d_Q = 4 tr(C_occ^T X_Q)     J C_occ = Σ d_Q H_Q     K C_occ = Σ X_Q (H_Q^T C_occ) + H_Q (X_Q^T C_occ)
    any density D:                                          V_Q = H_Q^T D
        d_Q = 2 Σ D_mu,nu (Q|mu nu)                         C_occ^T K = Σ V_Q S_Q

The factors of d_Q are those of a closed shell, and half as large for two spins. K of all pairs of orbitals costs
nao^3 naux operations, its columns of occupied orbitals nocc nao^2 naux. The products S_Q C_occ and S_Q Y read the
packed rows (`trnqc.eri.fitting.half_transform`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
from pyscf import lib

from trnqc.eri.fitting.half_transform import HalfTransform
from trnqc.host.blas import single_threaded
from trnqc.host.thread_pool import single_threaded_pool
from trnqc.mp2.reference.spins import SpinOrbitals
from trnqc.ranks import ALONE, Ranks, in_order

# Auxiliary functions Q of one task of a thread: enough for fast matrix products, and many tasks.
_GROUP = 16

Halves = list[np.ndarray]
"""H_Q of one spin: a matrix [nao, n nocc] for each group of n functions Q that this rank has."""


class FittedRotations:
    """G[z] = J[Σ P] - K[P] of rotations of orbitals, by matrix products of one floating-point type, from fitted
    integrals [naux, nao (nao + 1) / 2] in double precision.

    `halves` is H_Q of each spin for the groups of this rank, of the type of the products. The bits do not depend on the
    numbers of threads and ranks.
    """

    def __init__(
        self,
        rows: np.ndarray,
        spins: Sequence[SpinOrbitals],
        halves: Sequence[Halves],
        threads: int,
        ranks: Ranks = ALONE,
        dtype: Any = np.float64,
    ) -> None:
        self._rows, self._spins, self._halves = rows, tuple(spins), halves
        self._threads, self._ranks, self._type = threads, ranks, dtype
        self._factor = 2.0 if len(spins) == 1 else 1.0
        self._occupied = [np.ascontiguousarray(spin.c_occ, dtype) for spin in spins]

    def rotation(self, z: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return G[P]_qi [nmo, nocc] of densities P_ai = P_ia = z[a, i], which are zero elsewhere, for each spin."""
        with single_threaded():  # These products are too small to share among threads.
            changes = [spin.c_vir @ block for spin, block in zip(self._spins, z)]

        def part(rows: np.ndarray, halves: list[np.ndarray]) -> list[np.ndarray]:
            rows = rows.astype(self._type, copy=False)
            changed = [transformed(rows, y) for y in changes]
            inner = [(x.T @ c).reshape(len(rows), -1, c.shape[1]) for x, c in zip(changed, self._occupied)]
            diagonals = [np.einsum("qii->qi", e) for e in inner]
            d = sum(2 * self._factor * diagonal.sum(axis=1, keepdims=True) for diagonal in diagonals)
            terms = []
            for x, h, c, e, diagonal in zip(changed, halves, self._occupied, inner, diagonals):
                diagonal -= d
                terms.append(-(x @ (h.T @ c) + h @ e.reshape(-1, c.shape[1])))
            return terms

        return self._sum(part)

    def _sum(self, part: Callable[[np.ndarray, list[np.ndarray]], list[np.ndarray]]) -> list[np.ndarray]:
        """Sum a function of rows and H_Q, [nao, nocc] of each spin, over groups; return [nmo, nocc]."""
        shapes, parts = [spin.c_occ.shape for spin in self._spins], groups(len(self._rows))

        def of_group(n: int) -> np.ndarray:
            terms = part(self._rows[parts[n]], [half[n // self._ranks.size] for half in self._halves])
            return np.concatenate([term.ravel() for term in terms])

        total = np.zeros(sum(rows * columns for rows, columns in shapes))
        with single_threaded_pool(self._threads) as pool:
            for term in in_order(of_group, len(parts), total.shape, self._ranks, pool.map):
                total += term
            ends = np.cumsum([rows * columns for rows, columns in shapes])[:-1]
            by_spin = (g.reshape(shape) for g, shape in zip(np.split(total, ends), shapes))
            return [spin.coefficients.T @ g for spin, g in zip(self._spins, by_spin)]


class FittedResponse(FittedRotations):
    """G[P] = J[Σ P] - K[P] from fitted integrals in memory, in double precision; arguments are as in
    `FittedRotations`.

    With `rough` there are rotations in single precision, too, which take half as much memory besides.
    """

    def __init__(
        self,
        rows: np.ndarray,
        spins: Sequence[SpinOrbitals],
        threads: int,
        ranks: Ranks = ALONE,
        *,
        rough: bool = True,
    ) -> None:
        own = [rows[q] for q in groups(len(rows))[ranks.rank :: ranks.size]]
        with single_threaded_pool(threads) as pool:
            halves = [list(pool.map(partial(transformed, orbitals=spin.c_occ), own)) for spin in spins]
        super().__init__(rows, spins, halves, threads, ranks)
        self._has_rough = rough

    @cached_property
    def rough(self) -> FittedRotations | None:
        """Rotations in single precision, for an approximation of six digits, or None if they are not wanted."""
        if not self._has_rough:
            return None
        rounded = [[h.astype(np.float32) for h in half] for half in self._halves]
        return FittedRotations(self._rows, self._spins, rounded, self._threads, self._ranks, np.float32)

    @staticmethod
    def exact_bytes(naux: int, spins: Sequence[SpinOrbitals]) -> int:
        """Return the bytes of H_Q in double precision; H_Q in single precision takes half as many."""
        return 8 * naux * sum(spin.c_occ.size for spin in spins)

    def columns(self, densities: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return G[P]_qi [nmo, nocc] of symmetric densities P [nmo, nmo] of each spin."""
        atomic = [spin.to_atomic(p) for spin, p in zip(self._spins, densities)]
        nao = len(atomic[0])
        folded = lib.pack_tril(2 * self._factor * np.sum(atomic, axis=0))
        folded[np.cumsum(np.arange(1, nao + 1)) - 1] /= 2

        def part(rows: np.ndarray, halves: list[np.ndarray]) -> list[np.ndarray]:
            d, square = rows @ folded, np.empty((nao, nao))
            left = [(h.T @ density).reshape(len(rows), -1, nao) for h, density in zip(halves, atomic)]
            terms = [np.ascontiguousarray(np.matmul(d, h.reshape(nao, len(rows), -1)).T) for h in halves]
            for n, row in enumerate(rows):
                lib.unpack_tril(row, out=square)
                for v, term in zip(left, terms):
                    term -= v[n] @ square
            return [term.T for term in terms]

        return self._sum(part)


def transformed(rows: np.ndarray, orbitals: np.ndarray) -> np.ndarray:
    """Return S_Q C of packed rows [n, nao (nao + 1) / 2] and orbitals [nao, m] as a matrix [nao, n m]."""
    out = np.empty((len(orbitals), len(rows), orbitals.shape[1]), rows.dtype)
    HalfTransform(orbitals.astype(rows.dtype))(rows, out)
    return out.reshape(len(out), -1)


def groups(naux: int) -> list[slice]:
    """Divide the auxiliary functions into the tasks of threads."""
    return [slice(q, min(q + _GROUP, naux)) for q in range(0, naux, _GROUP)]
