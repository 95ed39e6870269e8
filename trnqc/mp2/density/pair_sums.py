"""One pass over all pairs: energies, unrelaxed densities and Γ of every spin.

    blocks of pairs (pair_pass)  -> energies, Γ, P_ij and P_ab of orbitals of the same energies
    Γ, B                         -> the other elements of P_ij and P_ab

For every spin σ, with the weights of `sectors` in T̃ and a sum over the spins of j,

    Γ[i, a, Q] = Σ_jb T̃_ij^ab B[j, b, Q]         P_ab =  Σ_ijc T̃_ij^ac t_ij^bc
                                                 P_ij = -Σ_kab T̃_ik^ab t_jk^ab

Most elements of the densities need no further sum over pairs. Because K = t (ε_i + ε_k - ε_a - ε_b), the matrices

    Y_ij = Σ_aQ Γ[i, a, Q] B[j, a, Q]            Y_ab = Σ_iQ Γ[i, a, Q] B[i, b, Q]

give P_pq = (Y_pq - Y_qp) / (ε_p - ε_q). Sums over pairs remain for diagonal elements and orbitals of (nearly) the same
energy. All pairs are visited once, i >= j, and only the amplitudes of one block of pairs are kept.

A backend of NKI kernels computes Γ, which takes most of the multiply-adds, in a pass of its own. The host computes the
amplitudes too, in fp64, for energies and for the sums over pairs that remain.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np

from trnqc.errors import TrnqcError
from trnqc.host.thread_pool import single_threaded_pool
from trnqc.mp2.density.gamma import Gamma
from trnqc.mp2.density.pair_pass import PairPass
from trnqc.mp2.density.sectors import DensitySector, SpinEnergies, sectors, spin_energies
from trnqc.mp2.density.sets import orbital_sets
from trnqc.mp2.execution import Execution
from trnqc.mp2.factors.factors import Factors, SpinFactors
from trnqc.mp2.pairs.denominators import denominator_warnings
from trnqc.mp2.pairs.pairs import warn
from trnqc.mp2.pairs.sectors import sectors_of
from trnqc.mp2.store import JobStore


@dataclass(frozen=True, eq=False)
class PairSums:
    """The sums of a pass over all pairs; tuples have one entry for every spin.

    These are the unscaled energies of opposite and same spin, the unrelaxed densities P_ij [nocc, nocc] and P_ab
    [nvir, nvir] of the correlated orbitals, Γ[i, a, Q], and Y_ab = Σ_iQ Γ[i, a, Q] B[i, b, Q], [nvir, nvir], Hartree.
    `ran_on` describes what computed Γ.
    """

    energies: SpinEnergies
    p_occ: tuple[np.ndarray, ...]
    p_vir: tuple[np.ndarray, ...]
    gamma: tuple[Gamma, ...]
    y_vir: tuple[np.ndarray, ...]
    ran_on: str


def pair_sums(
    factors: Sequence[Factors], scaling: tuple[float, float], execution: Execution, store: JobStore | None = None
) -> PairSums:
    """Compute energies, unrelaxed densities and Γ.

    Parameters
    ----------
    factors
        Of a closed shell, or of the spins α and β. B is in memory or on disk.
    scaling
        Factors (c_os, c_ss) of the energies of which these are the densities.
    execution
        Its backend computes Γ if it has `mp2_gamma`, in its precision; else the host does, in fp64. Several ranks share
        the pairs, with the same digits.
    store
        Where Γ and the sums of finished sets of orbitals are kept, so that an interrupted job continues; only rank 0
        passes it. Γ of a backend that computes it is not kept.

    Raises
    ------
    MemoryLimit
        If the smallest blocks of pairs do not fit the memory limit.
    TrnqcError
        If a number is not finite, because a denominator vanishes; the message names the orbitals.

    Warns
    -----
    ResultWarning
        If a denominator is close to zero, or the gap between occupied and virtual orbitals is not positive.
    """
    doubts = denominator_warnings(sectors_of(factors[0] if len(factors) == 1 else SpinFactors(*factors)))
    all_sectors = sectors(len(factors), scaling)
    run = PairPass(factors, all_sectors, execution, store)
    with single_threaded_pool(execution.threads) as pool:
        run.run(pool)
    ran_on = run.ran_on
    for sector in all_sectors:
        if run.on_device and (sector.direct or sector.exchange):
            ran_on = _gamma_on_device(run, sector)
    p_occ, p_vir = ([of(spin) for spin in range(len(factors))] for of in (run.p_occ, run.p_vir))
    with single_threaded_pool(execution.threads) as pool:
        y_vir = tuple(_add_between_energies(run, n, p_occ[n], p_vir[n], pool) for n in range(len(factors)))
    energies = np.array([by_set.sum(axis=0) for by_set in run.energies])
    if not all(np.isfinite(array).all() for array in (energies, *p_occ, *p_vir)):
        raise TrnqcError(
            "the MP2 density has elements that are not finite: " + ("; ".join(doubts) or "the factors are not finite")
        )
    warn(tuple(doubts))
    by_spin = spin_energies(len(factors), energies)
    return PairSums(by_spin, tuple(p_occ), tuple(p_vir), tuple(run.gamma), y_vir, ran_on)


def _gamma_on_device(run: PairPass, sector: DensitySector) -> str:
    """Add Γ of a sector, computed by the backend; return a description of the code that ran."""
    execution, right = run.execution, None if sector.same else run.factors[sector.right]

    def add(side: int, rows: slice, values: np.ndarray) -> None:
        run.gamma[sector.right if side else sector.left].add(rows, values)

    return execution.choice.backend.mp2_gamma(
        run.factors[sector.left],
        right,
        add,
        direct=sector.direct,
        exchange=sector.exchange,
        precision=execution.choice.precision,
        max_memory=run.room if np.isfinite(run.room) else None,
        progress=lambda done, total: execution.report("Γ", done, total),
    )


def _add_between_energies(run: PairPass, spin: int, p_occ: np.ndarray, p_vir: np.ndarray, pool: Executor) -> np.ndarray:
    """Fill in P_ij and P_ab between orbitals of different energies; returns Y_ab."""
    factors, gamma, sets = run.factors[spin], run.gamma[spin], run.sets[spin]
    y_occ, y_vir = np.zeros_like(p_occ), np.zeros_like(p_vir)
    for columns in sets:
        b = factors.rows(columns)
        for rows in sets:
            y_occ[rows, columns] = gamma[rows].reshape(rows.stop - rows.start, -1) @ b.reshape(len(b), -1).T
        for term in pool.map(lambda g, b: g @ b.T, gamma[columns], b):
            y_vir += term
    _couple(p_occ, y_occ, factors.eps_occ, orbital_sets(factors.eps_occ, 1, run.gap))
    _couple(p_vir, y_vir, factors.eps_vir, orbital_sets(factors.eps_vir, 1, run.gap))
    return y_vir


def _couple(density: np.ndarray, y: np.ndarray, energies: np.ndarray, sets: Sequence[slice]) -> None:
    """Set the elements of a density between orbitals of different ranges to (Y_pq - Y_qp) / (ε_p - ε_q)."""
    between = np.ones_like(density, dtype=bool)
    for same in sets:
        between[same, same] = False
    density[between] = (y - y.T)[between] / np.subtract.outer(energies, energies)[between]
