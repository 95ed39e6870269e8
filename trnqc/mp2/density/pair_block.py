"""One block of pairs: the orbitals i of a set with the orbitals j of another set, or of the same set.

    for every i: K_ij = B_i B_j^T of all j -> t, T̃ -> energies, Γ_i, P_ab, P_jj'
    for every j: T̃_ij of all i             -> Γ_j, P_ab, P_ii'

P_ij is computed for orbitals of the two sets, P_ab for virtual orbitals of (nearly) the same energy.

The tasks of a block share nothing but the amplitudes. Threads take one orbital after the other, and their sums are
added in the order of the orbitals, so that the digits do not depend on the number of threads. Of the pairs of one set,
those with i >= j are computed, and T̃_ji^ba = T̃_ij^ab gives the others.
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np

from trnqc.mp2.density.sectors import Sector


@dataclass(frozen=True, eq=False)
class Side:
    """A set of occupied orbitals of one spin.

    Attributes
    ----------
    rows
        The range of orbitals.
    B
        Their factors [n, nvir, naux].
    eps_occ, eps_vir
        Energies of the orbitals of the set, and of all virtual orbitals of the spin, Hartree.
    degenerate
        Ranges of virtual orbitals whose energies are (nearly) the same.
    """

    rows: slice
    B: np.ndarray
    eps_occ: np.ndarray
    eps_vir: np.ndarray
    degenerate: tuple[slice, ...]

    def virtual_density(self, weighted: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Return Σ_x T̃[a, x] t[b, x], where a and b are the same or of one degenerate range, else zero."""
        density = np.diag(np.einsum("ax,ax->a", weighted, t))
        for same in self.degenerate:
            density[same, same] = weighted[same] @ t[same].T
        return density


@dataclass(frozen=True, eq=False)
class SideSums:
    """What a block contributes to Γ [n, nvir, naux], P_ij [n, n] and P_ab [nvir, nvir] of a set."""

    gamma: np.ndarray
    p_occ: np.ndarray
    p_vir: np.ndarray

    @classmethod
    def zeros(cls, side: Side) -> SideSums:
        """Return sums without a term."""
        n, nvir, _ = side.B.shape
        return cls(np.zeros_like(side.B), np.zeros((n, n)), np.zeros((nvir, nvir)))


class PairBlock:
    """The amplitudes of a block, and the sums that are computed from them.

    Attributes
    ----------
    energies
        Sums of K t and of K_ij^ba t over the pairs, ij and ji counted separately, [2].
    sums
        Of the left and of the right set: the same object twice where both are one set. Γ remains zero without
        `with_gamma`, and all sums of a set that `sides` leaves out.
    """

    def __init__(
        self,
        sector: Sector,
        left: Side,
        right: Side,
        with_gamma: bool = True,
        sides: tuple[bool, bool] = (True, True),
    ) -> None:
        self.sector, self.left, self.right, self.with_gamma = sector, left, right, with_gamma
        self.one_set = sector.same and left.rows == right.rows
        self.sides = (True, True) if self.one_set else sides
        (m, a, _), (n, b, _) = left.B.shape, right.B.shape
        self.pairs = m * n * (2 if sector.same and not self.one_set else 1)
        self.energies = np.zeros(2)
        ours = SideSums.zeros(left)
        self.sums = ours, ours if self.one_set else SideSums.zeros(right)
        self._t, self._weighted = np.empty((2, m, a, n, b))
        self._virtual = left.eps_vir[:, None] + right.eps_vir
        self._occupied = left.eps_occ[:, None] + right.eps_occ

    def run(self, pool: Executor) -> PairBlock:
        """Compute all sums on the threads of a pool, whose matrix products have one thread each; returns self."""
        ours, theirs = self.sums
        for energies, p_vir, p_occ in pool.map(self._of_left, range(len(self.left.B))):
            self.energies += energies
            ours.p_vir[...] += p_vir
            theirs.p_occ[...] -= p_occ
        for p_vir, p_occ in pool.map(self._of_right, range(len(self.right.B))):
            theirs.p_vir[...] += p_vir
            ours.p_occ[...] -= p_occ
        return self

    def _of_left(self, i: int) -> tuple[np.ndarray, np.ndarray | float, np.ndarray | float]:
        """Amplitudes of orbital i of the left set; returns its energy sums, P_ab of the left and P_jj' of the right."""
        count = i + 1 if self.one_set else len(self.right.B)
        columns = self.right.B[:count].reshape(-1, self.right.B.shape[2])
        integrals = (self.left.B[i] @ columns.T).reshape(len(self._virtual), count, -1)
        energies = np.zeros(2)
        with np.errstate(all="ignore"):  # `pair_sums` looks for elements that are not finite.
            for j in range(count):
                energies += self._amplitude(i, j, integrals[:, j])
        t, weighted = self._t[i, :, :count], self._weighted[i, :, :count]
        flat = weighted.reshape(len(weighted), -1)
        p_vir: np.ndarray | float = 0.0
        p_occ: np.ndarray | float = 0.0
        if self.sides[0]:
            p_vir = self.left.virtual_density(flat, t.reshape(flat.shape))
            if self.with_gamma:
                self.sums[0].gamma[i] += flat @ columns
        if self.sides[1] and not self.one_set:
            p_occ = np.matmul(weighted, t.transpose(0, 2, 1)).sum(axis=0)
        return energies, p_vir, p_occ

    def _of_right(self, j: int) -> tuple[np.ndarray | float, np.ndarray | float]:
        """Γ of orbital j of the right set, in place; returns P_ab of the right and P_ii' of the left."""
        first = j + 1 if self.one_set else 0  # The other pairs of one set are among those of the left orbitals.
        t, weighted = self._t[:, :, j].copy(), self._weighted[:, :, j].copy()
        p_vir: np.ndarray | float = 0.0
        p_occ: np.ndarray | float = 0.0
        if self.sides[1]:
            flat = weighted[first:].reshape(-1, weighted.shape[2])
            p_vir = self.right.virtual_density(flat.T, t[first:].reshape(flat.shape).T)
            if self.with_gamma:
                self.sums[1].gamma[j] += flat.T @ self.left.B[first:].reshape(-1, self.left.B.shape[2])
        if self.sides[0]:
            p_occ = weighted.reshape(len(weighted), -1) @ t.reshape(len(t), -1).T
        return p_vir, p_occ

    def _amplitude(self, i: int, j: int, integrals: np.ndarray) -> np.ndarray:
        """t and T̃ of a pair from K [a, b]; returns its sums of K t and of K_ij^ba t."""
        k, sector = integrals.copy(), self.sector
        t = k / (self._occupied[i, j] - self._virtual)
        weighted, exchange = sector.direct * t, 0.0
        if sector.same:
            transposed = t.T.copy()
            exchange = np.vdot(k, transposed)
            weighted -= sector.exchange * transposed
        self._t[i, :, j], self._weighted[i, :, j] = t, weighted
        if self.one_set and i != j:
            self._t[j, :, i], self._weighted[j, :, i] = t.T, weighted.T
        return np.array([np.vdot(k, t), exchange]) * (2.0 if sector.same and not (self.one_set and i == j) else 1.0)
