"""One pass over all pairs: energies, unrelaxed densities and Γ of every spin.

    blocks of pairs (pair_block) -> energies, Γ, P_ab, P_ij inside a set of orbitals
    Γ, B                         -> P_ij between sets

For every spin σ, with the weights of `sectors` in T̃ and a sum over the spins of j,

    Γ[i, a, Q] = Σ_jb T̃_ij^ab B[j, b, Q]         P_ab =  Σ_ijc T̃_ij^ac t_ij^bc
                                                 P_ij = -Σ_kab T̃_ik^ab t_jk^ab

The elements P_ij between different sets of orbitals need no amplitudes of the same k at the same time: because
K = t (ε_i + ε_k - ε_a - ε_b), the matrix Y_ij = Σ_aQ Γ[i, a, Q] B[j, a, Q] gives P_ij = (Y_ij - Y_ji) / (ε_i - ε_j).
All pairs are therefore visited once, i >= j, and no amplitudes are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np

from trnqc.eri.fitting.thread_pool import single_threaded_pool
from trnqc.errors import TrnqcError
from trnqc.mp2.density.gamma import Gamma
from trnqc.mp2.density.pair_block import PairBlock, Side, SideSums
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
    with single_threaded_pool(execution.threads) as pool:
        energies = np.array([run.visit(sector, pool) for sector in all_sectors])
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
        nocc = [f.shape[0] for f in factors]
        self._total = nocc[0] ** 2 if len(nocc) == 1 else nocc[0] ** 2 + nocc[1] ** 2 + nocc[0] * nocc[1]
        self._done = 0

    def visit(self, sector: Sector, pool: Executor) -> np.ndarray:
        """Add all pairs of a sector; return the sums [direct, exchange] of its energy."""
        total = np.zeros(2)
        for rows in self.sets[sector.left]:
            left = self._side(sector.left, rows)
            for columns in self.sets[sector.right]:
                if sector.same and columns.start > rows.start:
                    break
                one_set = sector.same and columns == rows
                right = left if one_set else self._side(sector.right, columns)
                block = PairBlock(sector, left, right).run(pool)
                total += block.energies
                self._add(sector.left, rows, block.sums[0])
                if not one_set:
                    self._add(sector.right, columns, block.sums[1])
                self._done += block.pairs
                self.execution.report("densities", self._done, self._total)
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

    def _side(self, spin: int, rows: slice) -> Side:
        factors = self.factors[spin]
        return Side(rows, _read(factors, rows), factors.eps_occ[rows], factors.eps_vir)

    def _add(self, spin: int, rows: slice, sums: SideSums) -> None:
        self.gamma[spin].add(rows, sums.gamma)
        self.p_occ[spin][rows, rows] += sums.p_occ
        self.p_vir[spin][...] += sums.p_vir


def _read(factors: Factors, rows: slice) -> np.ndarray:
    return np.ascontiguousarray(factors.B[rows], dtype=np.float64)
