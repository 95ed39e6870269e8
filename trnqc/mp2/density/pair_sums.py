"""One pass over all pairs: energies, unrelaxed densities and Γ of every spin.

    blocks of pairs: K = B_i B_j^T -> t, T̃ -> energies
                                      T̃ B_j -> Γ_i,  T̃^T B_i -> Γ_j
                                      Σ T̃ t -> P_ab, and P_ij inside a set
    Γ, B -> P_ij between sets

For every spin σ, with the weights of `sectors` in T̃ and a sum over the spins of j,

    Γ[i, a, Q] = Σ_jb T̃_ij^ab B[j, b, Q]         P_ab =  Σ_ijc T̃_ij^ac t_ij^bc
                                                 P_ij = -Σ_kab T̃_ik^ab t_jk^ab

The elements P_ij between different sets of orbitals need no amplitudes of the same k at the same time: because
K = t (ε_i + ε_k - ε_a - ε_b), the matrix Y_ij = Σ_aQ Γ[i, a, Q] B[j, a, Q] gives P_ij = (Y_ij - Y_ji) / (ε_i - ε_j).
All pairs are therefore visited once, i >= j, and no amplitudes are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trnqc.errors import TrnqcError
from trnqc.host.blas import blas_threads, single_threaded
from trnqc.host.threads import in_parallel
from trnqc.mp2.density.gamma import Gamma
from trnqc.mp2.density.sectors import Sector, SpinEnergies, sectors, spin_energies
from trnqc.mp2.density.sets import PairMemory, orbital_sets, require_block
from trnqc.mp2.execution import Execution
from trnqc.mp2.factors.factors import Factors


@dataclass(frozen=True, eq=False)
class PairSums:
    """What a pass over all pairs gives; tuples have one entry for every spin.

    Attributes
    ----------
    energies
        Unscaled energies of opposite and same spin.
    p_occ, p_vir
        Unrelaxed densities P_ij [nocc, nocc] and P_ab [nvir, nvir] of the correlated orbitals.
    gamma
        Γ[i, a, Q].
    """

    energies: SpinEnergies
    p_occ: tuple[np.ndarray, ...]
    p_vir: tuple[np.ndarray, ...]
    gamma: tuple[Gamma, ...]


def pair_sums(factors: Sequence[Factors], scaling: tuple[float, float], execution: Execution) -> PairSums:
    """Compute energies, unrelaxed densities and Γ.

    Parameters
    ----------
    factors
        Of a closed shell, or of the spins α and β. B is in memory or on disk.
    scaling
        Factors (c_os, c_ss) of the energies of which these are the densities.

    Raises
    ------
    MemoryLimit
        If the smallest blocks of pairs do not fit the memory limit.
    TrnqcError
        If a number is not finite, because a denominator vanishes.
    """
    run = _Pass(factors, execution)
    all_sectors = sectors(len(factors), scaling)
    energies = np.array([run.visit(sector) for sector in all_sectors])
    run.couple_sets()
    numbers = [energies, *run.p_occ, *run.p_vir]
    if not all(np.isfinite(array).all() for array in numbers):
        raise TrnqcError(
            "the MP2 density has elements that are not finite: an orbital-energy denominator vanishes, or the factors "
            "are not finite"
        )
    return PairSums(spin_energies(len(factors), energies), tuple(run.p_occ), tuple(run.p_vir), tuple(run.gamma))


class _Pass:
    """The sums while pairs are visited."""

    def __init__(self, factors: Sequence[Factors], execution: Execution) -> None:
        self.factors, self.execution = factors, execution
        memory = PairMemory(tuple(f.shape for f in factors), execution.threads)
        left = execution.memory - sum(f.bytes_in_memory for f in factors)
        on_disk = not memory.holds_gamma(left)
        room = left - (0 if on_disk else memory.factors)
        width = max(1, min(memory.comfortable(), memory.width(room)))
        self.sets = [orbital_sets(f.eps_occ, width) for f in factors]
        require_block(memory, self.sets, room)
        self.gamma = [Gamma(f.shape, on_disk) for f in factors]
        self.p_occ = [np.zeros((f.shape[0],) * 2) for f in factors]
        self.p_vir = [np.zeros((f.shape[1],) * 2) for f in factors]
        self._total = sum(f.shape[0] for f in factors) ** 2
        self._done = 0

    def visit(self, sector: Sector) -> np.ndarray:
        """Add all pairs of a sector; return the sums [direct, exchange] of its energy."""
        total = np.zeros(2)
        left, right = self.factors[sector.left], self.factors[sector.right]
        for rows in self.sets[sector.left]:
            b_left = _read(left, rows)
            for columns in self.sets[sector.right]:
                if sector.same and columns.start > rows.start:
                    break
                diagonal = sector.same and columns == rows
                b_right = b_left if diagonal else _read(right, columns)
                block = _Block(sector, rows, columns, b_left, b_right, diagonal)
                with blas_threads(self.execution.threads), np.errstate(all="ignore"):
                    total += self._add(block) * (2.0 if sector.same and not diagonal else 1.0)
                self._report(block)
        return total

    def couple_sets(self) -> None:
        """Fill in P_ij between orbitals of different sets."""
        for factors, gamma, sets, p_occ in zip(self.factors, self.gamma, self.sets, self.p_occ):
            y = np.zeros_like(p_occ)
            for columns in sets:
                b = _read(factors, columns).reshape(columns.stop - columns.start, -1)
                for rows in sets:
                    y[rows, columns] = gamma[rows].reshape(rows.stop - rows.start, -1) @ b.T
            eps = factors.eps_occ
            between = np.ones_like(y, dtype=bool)
            for rows in sets:
                between[rows, rows] = False
            p_occ[between] = (y - y.T)[between] / np.subtract.outer(eps, eps)[between]

    def _add(self, block: _Block) -> np.ndarray:
        sector = block.sector
        t, weighted, sums = self._amplitudes(block)
        (m, n), (a, b) = (len(block.b_left), len(block.b_right)), (t.shape[1], t.shape[3])
        rows, columns = block.b_left.reshape(m * a, -1), block.b_right.reshape(n * b, -1)
        flat = weighted.reshape(m * a, n * b)
        self.gamma[sector.left].add(block.rows, (flat @ columns).reshape(block.b_left.shape))
        self.p_occ[sector.left][block.rows, block.rows] -= weighted.reshape(m, -1) @ t.reshape(m, -1).T
        for w, amplitudes in zip(weighted.reshape(m, a, n * b), t.reshape(m, a, n * b)):
            self.p_vir[sector.left] += w @ amplitudes.T
        if not block.diagonal:
            self.gamma[sector.right].add(block.columns, (flat.T @ rows).reshape(block.b_right.shape))
            by_right = weighted.reshape(m * a, n, b), t.reshape(m * a, n, b)
            for j, j_all in enumerate(range(*block.columns.indices(len(self.p_occ[sector.right])))):
                w = np.ascontiguousarray(by_right[0][:, j])
                self.p_vir[sector.right] += w.T @ by_right[1][:, j]
                self.p_occ[sector.right][j_all, block.columns] -= np.einsum("xb,xkb->k", w, by_right[1])
        return sums

    def _amplitudes(self, block: _Block) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return t and T̃ as [i, a, j, b], and the sums of K t and of K_ij^ba t."""
        left, right = self.factors[block.sector.left], self.factors[block.sector.right]
        m, a, naux = block.b_left.shape
        n, b, _ = block.b_right.shape
        integrals = (block.b_left.reshape(m * a, naux) @ block.b_right.reshape(n * b, naux).T).reshape(m, a, n, b)
        weighted = np.empty_like(integrals)
        virtual = left.eps_vir[:, None] + right.eps_vir
        occupied = left.eps_occ[block.rows, None] + right.eps_occ[block.columns]
        sums = np.zeros((m * n, 2))

        def part(number: int) -> None:
            i, j = divmod(number, n)
            k = integrals[i, :, j].copy()
            t = k / (occupied[i, j] - virtual)
            sums[number, 0] = np.vdot(k, t)
            integrals[i, :, j] = t
            t *= block.sector.direct
            if block.sector.same:
                sums[number, 1] = np.vdot(k.T, integrals[i, :, j])
                t -= block.sector.exchange * integrals[i, :, j].T
            weighted[i, :, j] = t

        with single_threaded():
            in_parallel(part, m * n, self.execution.threads)
        return integrals, weighted, sums.sum(axis=0)

    def _report(self, block: _Block) -> None:
        pairs = len(block.b_left) * len(block.b_right)
        self._done += pairs if block.diagonal else 2 * pairs
        self.execution.report("densities", min(self._done, self._total), self._total)


@dataclass(frozen=True, eq=False)
class _Block:
    """Pairs of two sets of orbitals, with their rows of B."""

    sector: Sector
    rows: slice
    columns: slice
    b_left: np.ndarray
    b_right: np.ndarray
    diagonal: bool


def _read(factors: Factors, rows: slice) -> np.ndarray:
    return np.ascontiguousarray(factors.B[rows], dtype=np.float64)
