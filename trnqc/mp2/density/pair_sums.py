"""One pass over all pairs: energies, unrelaxed densities and Γ of every spin.

    blocks of pairs (pair_block) -> energies, Γ, P_ij and P_ab of orbitals of the same energies
    Γ, B                         -> the other elements of P_ij and P_ab

For every spin σ, with the weights of `sectors` in T̃ and a sum over the spins of j,

    Γ[i, a, Q] = Σ_jb T̃_ij^ab B[j, b, Q]         P_ab =  Σ_ijc T̃_ij^ac t_ij^bc
                                                 P_ij = -Σ_kab T̃_ik^ab t_jk^ab

Most elements of the densities need no further sum over pairs. Because K = t (ε_i + ε_k - ε_a - ε_b), the matrices

    Y_ij = Σ_aQ Γ[i, a, Q] B[j, a, Q]            Y_ab = Σ_iQ Γ[i, a, Q] B[i, b, Q]

give P_pq = (Y_pq - Y_qp) / (ε_p - ε_q). Sums over pairs remain for diagonal elements and orbitals of (nearly) the same
energy. All pairs are visited once, i >= j, and no amplitudes are kept.

A backend of NKI kernels computes Γ, which takes most of the multiply-adds, in a pass of its own. The host computes the
amplitudes too, in fp64, for energies and for the sums over pairs that remain.
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
from trnqc.mp2.density.sets import LEAST_GAP, PairMemory, degenerate, orbital_sets, require_block
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
    ran_on
        What computed Γ.
    """

    energies: SpinEnergies
    p_occ: tuple[np.ndarray, ...]
    p_vir: tuple[np.ndarray, ...]
    gamma: tuple[Gamma, ...]
    ran_on: str


def pair_sums(factors: Sequence[Factors], scaling: tuple[float, float], execution: Execution) -> PairSums:
    """Compute energies, unrelaxed densities and Γ.

    Parameters
    ----------
    factors
        Of a closed shell, or of the spins α and β. B is in memory or on disk.
    scaling
        Factors (c_os, c_ss) of the energies of which these are the densities.
    execution
        Its backend computes Γ if it has `mp2_gamma`, in its precision; else the host does, in fp64.

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
    ran_on = "NumPy, fp64"
    for sector in all_sectors:
        if run.on_device and (sector.direct or sector.exchange):
            ran_on = run.gamma_on_device(sector)
    with single_threaded_pool(execution.threads) as pool:
        run.couple(pool)
    numbers = [energies, *run.p_occ, *run.p_vir]
    if not all(np.isfinite(array).all() for array in numbers):
        raise TrnqcError(
            "the MP2 density has elements that are not finite: an orbital-energy denominator vanishes, or the factors "
            "are not finite"
        )
    spin_sums = spin_energies(len(factors), energies)
    return PairSums(spin_sums, tuple(run.p_occ), tuple(run.p_vir), tuple(run.gamma), ran_on)


class _Pass:
    """The sums while pairs are visited."""

    def __init__(self, factors: Sequence[Factors], execution: Execution) -> None:
        self.factors, self.execution = factors, execution
        memory = PairMemory(tuple(f.shape for f in factors), execution.threads)
        left = execution.memory - sum(f.bytes_in_memory for f in factors)
        on_disk = not memory.holds_gamma(left)
        room = left - (0 if on_disk else memory.factors)
        width = max(1, min(memory.comfortable(), memory.width(room)))
        self.on_device = execution.choice.backend.has_gamma
        self.gap = LEAST_GAP[execution.choice.precision if self.on_device else "fp64"]
        self.sets = [orbital_sets(f.eps_occ, width, self.gap) for f in factors]
        self.degenerate = [degenerate(f.eps_vir, self.gap) for f in factors]
        require_block(memory, self.sets, room)
        self._room = room
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
                block = PairBlock(sector, left, right, with_gamma=not self.on_device).run(pool)
                total += block.energies
                self._add(sector.left, rows, block.sums[0])
                if not one_set:
                    self._add(sector.right, columns, block.sums[1])
                self._done += block.pairs
                self.execution.report("densities", self._done, self._total)
        return total

    def gamma_on_device(self, sector: Sector) -> str:
        """Add Γ of a sector, computed by the backend; return what ran."""
        execution, right = self.execution, None if sector.same else self.factors[sector.right]

        def add(side: int, rows: slice, values: np.ndarray) -> None:
            self.gamma[sector.right if side else sector.left].add(rows, values)

        return execution.choice.backend.mp2_gamma(
            self.factors[sector.left],
            right,
            add,
            direct=sector.direct,
            exchange=sector.exchange,
            precision=execution.choice.precision,
            max_memory=self._room if np.isfinite(self._room) else None,
            progress=lambda done, total: execution.report("Γ", done, total),
        )

    def couple(self, pool: Executor) -> None:
        """Fill in P_ij between orbitals of different sets, and P_ab of virtual orbitals of different energies."""
        for spin, (factors, gamma, sets) in enumerate(zip(self.factors, self.gamma, self.sets)):
            y_occ, y_vir = np.zeros_like(self.p_occ[spin]), np.zeros_like(self.p_vir[spin])
            for columns in sets:
                b = _read(factors, columns)
                for rows in sets:
                    y_occ[rows, columns] = gamma[rows].reshape(rows.stop - rows.start, -1) @ b.reshape(len(b), -1).T
                for term in pool.map(lambda g, b: g @ b.T, gamma[columns], b):
                    y_vir += term
            _couple(self.p_occ[spin], y_occ, factors.eps_occ, sets)
            _couple(self.p_vir[spin], y_vir, factors.eps_vir, orbital_sets(factors.eps_vir, 1, self.gap))

    def _side(self, spin: int, rows: slice) -> Side:
        factors = self.factors[spin]
        return Side(rows, _read(factors, rows), factors.eps_occ[rows], factors.eps_vir, self.degenerate[spin])

    def _add(self, spin: int, rows: slice, sums: SideSums) -> None:
        if not self.on_device:
            self.gamma[spin].add(rows, sums.gamma)
        self.p_occ[spin][rows, rows] += sums.p_occ
        self.p_vir[spin][...] += sums.p_vir


def _read(factors: Factors, rows: slice) -> np.ndarray:
    return np.ascontiguousarray(factors.B[rows], dtype=np.float64)


def _couple(density: np.ndarray, y: np.ndarray, energies: np.ndarray, sets: Sequence[slice]) -> None:
    """Set the elements of a density between orbitals of different sets to (Y_pq - Y_qp) / (ε_p - ε_q)."""
    between = np.ones_like(density, dtype=bool)
    for same in sets:
        between[same, same] = False
    density[between] = (y - y.T)[between] / np.subtract.outer(energies, energies)[between]
