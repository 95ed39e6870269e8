"""The change of the Fock matrix from fitted integrals in memory.

    rows (Q|mu nu) -> squares, H_i,nu = (Q|i nu)          for a group of auxiliary functions Q
    D = C P C^T:      d_Q = Σ D_mu,nu (Q|mu nu)  -> J_i,mu = Σ_Q d_Q H_i,mu
                      V = H D                    -> K_i,mu = Σ_Q,nu V_i,nu (Q|nu mu)

K of all pairs of orbitals costs nao^3 naux operations, its columns of occupied orbitals nocc nao^2 naux. For a rotation
of occupied into virtual orbitals D has low rank, and V costs nocc^2 nao naux.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pyscf import lib

from trnqc.eri.fitting.thread_pool import single_threaded_pool
from trnqc.mp2.density.spins import SpinOrbitals

# Auxiliary functions Q of one task of a thread.
_GROUP = 8

Integrals = Callable[[slice], tuple[np.ndarray, list[np.ndarray]]]
"""From a group of Q: the squares [Q, nao, nao], and H [Q, nocc, nao] of each spin."""


class FittedResponse:
    """G[P] = J[Σ P] - K[P] from fitted integrals in memory.

    Parameters
    ----------
    rows
        Fitted integrals [naux, nao (nao + 1) / 2].
    spins
        All orbitals; one entry for a closed shell.
    threads
        Number of threads. The bits do not depend on it.
    rough
        Whether the integrals are kept in single precision, too, for an approximation of six digits.

    Attributes
    ----------
    rough
        The response in single precision, or None.
    """

    def __init__(self, rows: np.ndarray, spins: Sequence[SpinOrbitals], threads: int, rough: bool = False) -> None:
        self._rows, self._threads, self._spins = rows, threads, tuple(spins)
        self._factor = 2.0 if len(spins) == 1 else 1.0
        self._type: Any = np.float64
        self._integrals: Integrals = self._unpacked
        self.rough = self._in_single_precision() if rough else None

    @staticmethod
    def rough_bytes(naux: int, spins: Sequence[SpinOrbitals]) -> int:
        """Return the bytes of the integrals in single precision."""
        nao = len(spins[0].coefficients)
        return 4 * naux * nao * (nao + sum(spin.nocc for spin in spins))

    def columns(self, densities: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return G[P]_qi [nmo, nocc] of symmetric densities P [nmo, nmo] of each spin."""
        atomic = [spin.to_atomic(p) for spin, p in zip(self._spins, densities)]
        folded = lib.pack_tril(2 * self._factor * np.sum(atomic, axis=0))
        folded[np.cumsum(np.arange(1, len(atomic[0]) + 1)) - 1] /= 2
        of_type = [d.astype(self._type, copy=False) for d in atomic]

        def group(q: slice, halves: list[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
            v = [(h.reshape(-1, len(d)) @ d).reshape(h.shape) for h, d in zip(halves, of_type)]
            return self._rows[q] @ folded, v

        return self._fock(group)

    def rotation(self, z: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return G[P]_qi [nmo, nocc] of densities whose only blocks are P_ai = P_ia = z[a, i], for each spin."""
        right = []
        for spin, block in zip(self._spins, z):
            both = np.hstack([spin.c_vir @ block, spin.c_occ]).astype(self._type, copy=False)
            right.append((both, np.ascontiguousarray(np.roll(both, spin.nocc, axis=1).T)))

        def group(q: slice, halves: list[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
            d, v = np.zeros(len(halves[0])), []
            for h, (both, swapped) in zip(halves, right):
                products = (h.reshape(-1, len(both)) @ both).reshape(*h.shape[:2], -1)
                d += 2 * self._factor * np.einsum("qii->q", products[:, :, : h.shape[1]])
                v.append((products.reshape(-1, len(swapped)) @ swapped).reshape(h.shape))
            return d, v

        return self._fock(group)

    def _fock(
        self, group: Callable[[slice, list[np.ndarray]], tuple[np.ndarray, list[np.ndarray]]]
    ) -> list[np.ndarray]:
        """G[P]_qi of each spin from a function that computes d_Q and V of a group of Q from H."""

        def part(q: slice) -> list[np.ndarray]:
            squares, halves = self._integrals(q)
            d, v = group(q, halves)
            terms = [np.tensordot(d.astype(h.dtype), h, 1) for h in halves]
            update = [np.empty_like(term) for term in terms]
            for n, square in enumerate(squares):
                for term, of_spin, exchange in zip(terms, v, update):
                    term -= np.matmul(of_spin[n], square, out=exchange)
            return terms

        totals = [np.zeros((spin.nocc, len(spin.coefficients))) for spin in self._spins]
        with single_threaded_pool(self._threads) as pool:
            for terms in pool.map(part, self._groups()):
                for total, term in zip(totals, terms):
                    total += term
        return [(g @ spin.coefficients).T for spin, g in zip(self._spins, totals)]

    def _groups(self) -> list[slice]:
        return [slice(q, min(q + _GROUP, len(self._rows))) for q in range(0, len(self._rows), _GROUP)]

    def _unpacked(self, q: slice) -> tuple[np.ndarray, list[np.ndarray]]:
        """The integrals of a group in double precision, which are not kept."""
        squares = lib.unpack_tril(self._rows[q])
        return squares, [np.matmul(spin.c_occ.T, squares) for spin in self._spins]

    def _in_single_precision(self) -> FittedResponse:
        naux, nao = len(self._rows), len(self._spins[0].coefficients)
        squares = np.empty((naux, nao, nao), np.float32)
        halves = [np.empty((naux, spin.nocc, nao), np.float32) for spin in self._spins]
        occupied = [np.ascontiguousarray(spin.c_occ.T, np.float32) for spin in self._spins]

        def fill(q: slice) -> None:
            double = np.empty((nao, nao))
            for n, row in enumerate(self._rows[q], start=q.start):
                squares[n] = lib.unpack_tril(row, out=double)
                for c, half in zip(occupied, halves):
                    np.matmul(c, squares[n], out=half[n])

        with single_threaded_pool(self._threads) as pool:
            list(pool.map(fill, self._groups()))
        rough = FittedResponse(self._rows, self._spins, self._threads)
        rough._type, rough._integrals = np.float32, lambda q: (squares[q], [half[q] for half in halves])
        return rough
