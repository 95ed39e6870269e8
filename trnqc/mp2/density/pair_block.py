"""One block of pairs: the orbitals i of a set with the orbitals j of another set, or of the same set.

    every i, some j at a time:  K_ij = B_i B_j^T -> energies, T̃ -> P_ab
    every orbital of the sets:  T̃ -> Γ, P_ij

P_pq is computed for orbitals of (nearly) the same energy.

The tasks of a block share nothing but the amplitudes. Threads take one task after the other, and the sums are added in
the order of the tasks, so that the digits do not depend on the number of threads. Of the pairs of one set, those with
i >= j are computed, and T̃_ji^ba = T̃_ij^ab gives the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, replace

import numpy as np

from trnqc.backends.cpu.pair_amplitudes import AmplitudeSums, Elements, PairAmplitudes
from trnqc.backends.cpu.pair_products import Slab
from trnqc.host.rank_updates import add_general_product
from trnqc.mp2.density.sectors import DensitySector
from trnqc.mp2.density.sets import PRODUCT_PAIRS

Term = tuple[np.ndarray, np.ndarray]
"""Amplitudes [nvir, x] of one orbital, and the factors [x, naux] by which they are multiplied."""


@dataclass(frozen=True, eq=False)
class OrbitalRange:
    """A range `rows` of occupied orbitals of one spin, with its factors B [n, nvir, naux].

    `eps_occ` are the energies of the range and `eps_vir` those of all virtual orbitals, Hartree. `occupied` and
    `virtual` are the elements (i, i') and (a, a') of the densities beside the diagonals for which sums over pairs are
    needed; i counts from the first orbital of the range.
    """

    rows: slice
    B: np.ndarray
    eps_occ: np.ndarray
    eps_vir: np.ndarray
    occupied: Elements
    virtual: Elements


@dataclass(frozen=True, eq=False)
class SideSums:
    """The sums over pairs of a range: Γ [n, nvir, naux], None if the host does not compute it, and densities.

    The densities are given by their diagonals, followed by their elements `OrbitalRange.occupied` and
    `OrbitalRange.virtual`.
    """

    gamma: np.ndarray | None
    p_occ: np.ndarray
    p_vir: np.ndarray


class AmplitudeBlock:
    """The amplitudes of a block; `energies` [2] are the sums of K t and of K_ij^ba t over its pairs, ij and ji counted
    separately.
    """

    def __init__(
        self,
        sector: DensitySector,
        amplitudes: PairAmplitudes,
        left: OrbitalRange,
        right: OrbitalRange,
        buffer: np.ndarray,
    ) -> None:
        self.sector, self.left, self.right, self._amplitudes = sector, left, right, amplitudes
        self.one_set = sector.same and left.rows == right.rows
        self.energies = np.zeros(2)
        (m, a, _), (n, b, _) = left.B.shape, right.B.shape
        self._w = buffer[: m * a * n * b].reshape(m, a, n, b)

    def run(self, ours: SideSums | None, theirs: SideSums | None, pool: Executor) -> None:
        """Compute the amplitudes, and add all terms to the sums of the left and of the right set.

        The threads of the pool have matrix products of one thread each. A set without sums is left out. For pairs of
        one set, both arguments are the same sums. Between two sets of one spin, the left one takes all of P_ab.
        """
        products = self._products()
        for (i, columns), sums in zip(products, pool.map(self._amplitudes_of, *zip(*products))):
            self.energies += sums.energies.sum(axis=0)
            if ours is not None:
                ours.p_vir[...] += sums.left
                ours.p_occ[i] -= sums.norms.sum()
            if theirs is not None and not self.sector.same:
                theirs.p_vir[...] += sums.right
            if theirs is not None:
                others = slice(columns.start, min(columns.stop, i)) if self.one_set else columns
                theirs.p_occ[others] -= sums.norms[: others.stop - others.start]
        if self.one_set:
            _add(ours, self._of_one_set, self._overlap_in_one_set, self.left, pool)
        else:
            _add(ours, self._of_left, self._overlap_of_left, self.left, pool)
            _add(theirs, self._of_right, self._overlap_of_right, self.right, pool)

    def _products(self) -> list[tuple[int, slice]]:
        """The orbitals i, and the orbitals j whose integrals are computed by one product."""
        n = len(self.right.B)
        ends = [(i, i + 1 if self.one_set else n) for i in range(len(self.left.B))]
        return [(i, slice(j, min(j + PRODUCT_PAIRS, end))) for i, end in ends for j in range(0, end, PRODUCT_PAIRS)]

    def _amplitudes_of(self, i: int, columns: slice) -> AmplitudeSums:
        """Compute T̃ of orbital i with some orbitals j; returns the sums for the energy and for both densities."""
        left, right = self.left, self.right
        integrals = left.B[i] @ right.B[columns].reshape(-1, right.B.shape[2]).T
        slab = Slab(integrals, 0, self.one_set and columns.stop == i + 1)
        e_pair = left.eps_occ[i] + right.eps_occ[columns]
        sums = self._amplitudes.weighted(slab, e_pair, self._w, i, columns.start)
        if self.sector.same:
            sums.energies[:] *= 2.0
            sums.energies[-1] *= 0.5 if slab.symmetric else 1.0
        between = self._amplitudes.virtual_sums(self._w, i, columns, slab.symmetric, (left.virtual, right.virtual))
        of_left = between[0] + between[1] if self.sector.same else between[0]
        return replace(sums, left=np.concatenate([sums.left, of_left]), right=np.concatenate([sums.right, between[1]]))

    def _of_left(self, i: int) -> Iterator[Term]:
        """T̃ of orbital i of the left set as one matrix, and the factors by which it is multiplied for Γ_i."""
        factors = self.right.B[: i + 1] if self.one_set else self.right.B
        factors = factors.reshape(-1, factors.shape[2])
        yield self._w[i].reshape(self._w.shape[1], -1)[:, : len(factors)], factors

    def _of_right(self, j: int) -> Iterator[Term]:
        """The same for orbital j of the right set, with a matrix for each orbital of the left one."""
        for i in range(j + 1 if self.one_set else 0, len(self.left.B)):
            yield self._w[i, :, j].T, self.left.B[i]

    def _of_one_set(self, i: int) -> Iterator[Term]:
        """The same for an orbital of the only set."""
        yield from self._of_left(i)
        yield from self._of_right(i)

    def _overlap_of_left(self, p: int, q: int) -> float:
        """Σ_kab T̃_pk^ab t_qk^ab over the orbitals k of the right set, for orbitals p and q of the left one."""
        return sum(self._amplitudes.overlap(self._w, (p, k), (q, k)) for k in range(len(self.right.B)))

    def _overlap_of_right(self, p: int, q: int) -> float:
        """Σ_kab T̃_kp^ab t_kq^ab over the orbitals k of the left set, for orbitals p and q of the right one."""
        return sum(self._amplitudes.overlap(self._w, (k, p), (k, q)) for k in range(len(self.left.B)))

    def _overlap_in_one_set(self, p: int, q: int) -> float:
        """Σ_kab T̃_pk^ab t_qk^ab of the only set, where T̃_pk is T̃_kp transposed for k > p."""
        total = 0.0
        for k in range(len(self.left.B)):
            first, second = (max(p, k), min(p, k)), (max(q, k), min(q, k))
            total += self._amplitudes.overlap(self._w, first, second, transposed=(k > p) != (k > q))
        return total


def _add(
    sums: SideSums | None,
    terms: Callable[[int], Iterator[Term]],
    overlap: Callable[[int, int], float],
    side: OrbitalRange,
    pool: Executor,
) -> None:
    """Add the terms of Γ and of P_ij to the sums of a set."""
    if sums is None:
        return

    def add_to_gamma(i: int) -> None:
        if sums.gamma is not None:
            for amplitudes, factors in terms(i):
                add_general_product(sums.gamma[i], amplitudes, factors)

    overlaps = pool.map(overlap, *side.occupied.T.tolist())
    list(pool.map(add_to_gamma, range(len(side.B))))
    sums.p_occ[len(side.B) :] -= list(overlaps)
