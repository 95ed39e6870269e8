"""The relaxed density of canonical orbitals, with what gradients need besides.

factors -> pair_sums -> P_ij, P_ab, Γ -> lagrangian: W -> frozen orbitals, Z-vector -> P of all orbitals
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pyscf import gto

from trnqc.errors import InputError, TrnqcError
from trnqc.fitted.metric import MetricFactor
from trnqc.host.clock import measured
from trnqc.host.thread_pool import single_threaded_pool
from trnqc.mp2.density.lagrangian import Lagrangian, lagrangians
from trnqc.mp2.density.one_particle import CorrelationDensity, check_factors, unrelaxed
from trnqc.mp2.density.pair_sums import PairSums, pair_sums
from trnqc.mp2.execution import Execution
from trnqc.mp2.factors.factors import Factors
from trnqc.mp2.factors.metric import metric_of
from trnqc.mp2.factors.ranks import on_every_rank
from trnqc.mp2.factors.shell_blocks import by_angular_momentum
from trnqc.mp2.reference.spins import SpinOrbitals
from trnqc.mp2.response.minimal import minimal_response
from trnqc.mp2.response.response import response_of
from trnqc.mp2.response.rotations import CanonicalRotations
from trnqc.mp2.response.zvector import DEFAULTS, ZVectorOptions, solve_z_vector
from trnqc.mp2.store import JobStore

# Hartree. A frozen and a correlated orbital whose energies differ by less cannot be told apart.
LEAST_GAP = 1e-6
# Rows of Γ[P, Q] of one task of a thread.
_ROWS = 352


@dataclass(frozen=True, eq=False)
class Relaxation:
    """A relaxed density, and the other quantities of gradients.

    `correlated` are the orbitals of each spin to which Γ refers. The Fock matrix and W (zero where it has no columns)
    of each spin are in the orbitals of the density, [nmo, nmo], Hartree. `sums` has Γ[i, a, P] in the raw auxiliary
    functions, in the order of `auxmol`. `two_centre` is Γ[P, Q] = Σ_ia Γ[i, a, P] C[i, a, Q] with C = (ia|.) V^-1,
    summed over spins (one spin's for a closed shell); None if only the density was wanted. `columns` is the response
    G[P]_qi [nmo, nocc] of the Fock matrix to the relaxed density, of each spin, Hartree.
    """

    density: CorrelationDensity
    correlated: tuple[SpinOrbitals, ...]
    fock: tuple[np.ndarray, ...]
    lagrangians: tuple[np.ndarray, ...]
    sums: PairSums
    two_centre: np.ndarray | None
    auxmol: gto.Mole
    columns: tuple[np.ndarray, ...]


@measured("Z-vector")
def relax(
    mf: Any,
    spins: Sequence[SpinOrbitals],
    factors: Sequence[Factors],
    auxmol: gto.Mole,
    execution: Execution,
    *,
    scaling: tuple[float, float] = (1.0, 1.0),
    options: ZVectorOptions = DEFAULTS,
    reference_gradient: Sequence[np.ndarray] | None = None,
    store: JobStore | None = None,
    for_gradient: bool = True,
) -> Relaxation:
    """Compute the relaxed density and keep the other quantities of gradients; arguments are as in
    `trnqc.mp2.density.density.correlation_density`.

    If the energy of the reference is not stationary with respect to its orbitals, `reference_gradient` is its Fock
    matrix of each spin between virtual and occupied orbitals. Without `for_gradient`, Γ[P, Q] is not computed.
    """
    spins = tuple(spins)
    parts = prepare(mf, spins, factors, auxmol, execution, scaling, store, for_gradient)
    densities = [_with_frozen(*p) for p in zip(spins, unrelaxed(spins, parts.sums), parts.lagrangians)]
    rotations = CanonicalRotations(spins)
    constant = rotations.flat([_orbital_gradient(*p) for p in zip(spins, parts.lagrangians)])
    if reference_gradient is not None:
        constant = constant + rotations.flat(reference_gradient)
    relaxed = solve_z_vector(
        constant,
        densities,
        spins,
        rotations,
        response_of(mf, spins, execution.threads, parts.memory, execution.ranks),
        options,
        minimal=minimal_response(mf, spins, parts.memory),
        report=lambda cycle: execution.report("orbital response", cycle, 0),
    )
    result = CorrelationDensity(spins, relaxed.densities, parts.sums.energies, relaxed=True)
    fock = tuple(np.diag(spin.energies) for spin in spins)
    w = tuple(in_all_orbitals(*p) for p in zip(spins, parts.lagrangians))
    return Relaxation(result, spins, fock, w, parts.sums, parts.two_centre, parts.auxmol, relaxed.columns)


@dataclass(frozen=True, eq=False)
class UnrelaxedParts:
    """The parts of a relaxed density before the response of the orbitals, see `Relaxation`, and the bytes of the memory
    limit that are left on rank 0.
    """

    sums: PairSums
    lagrangians: tuple[Lagrangian, ...]
    two_centre: np.ndarray | None
    auxmol: gto.Mole
    memory: float


@measured("pair densities")
def prepare(
    mf: Any,
    spins: tuple[SpinOrbitals, ...],
    factors: Sequence[Factors],
    auxmol: gto.Mole,
    execution: Execution,
    scaling: tuple[float, float],
    store: JobStore | None = None,
    for_gradient: bool = True,
) -> UnrelaxedParts:
    """Compute the pair sums and the derivative by the orbitals; arguments as in `relax`."""
    check_factors(spins, factors)
    factors = on_every_rank(factors, execution)
    auxmol = by_angular_momentum(auxmol)
    metric = metric_of(auxmol)
    if any(f.shape[2] != metric.naux for f in factors):
        raise InputError(f"factors with {metric.naux} auxiliary functions were expected, found {factors[0].shape[2]}")
    sums = pair_sums(factors, scaling, execution, store)
    two_centre = _two_centre(factors, sums, metric, execution.threads) if for_gradient else None
    gammas = tuple(gamma.to_auxiliary(metric, execution.threads) for gamma in sums.gamma)
    sums = replace(sums, gamma=gammas)
    held = sum(f.bytes_in_memory for f in factors) + sum(gamma.bytes_in_memory for gamma in gammas)
    # All ranks decide alike what fits.
    left = replace(execution, memory=execution.ranks.at_first(lambda: execution.memory - held))
    w = lagrangians(mf.mol, auxmol, spins, gammas, sums.y_vir, left)
    return UnrelaxedParts(sums, w, two_centre, auxmol, left.memory)


def in_all_orbitals(spin: SpinOrbitals, w: Lagrangian) -> np.ndarray:
    """Return W as a matrix [nmo, nmo], with zeros in the columns of frozen orbitals."""
    matrix = np.zeros((spin.nmo, spin.nmo))
    matrix[:, spin.active_occ], matrix[:, spin.active_vir] = w.occ, w.vir
    return matrix


def _two_centre(factors: Sequence[Factors], sums: PairSums, metric: MetricFactor, threads: int) -> np.ndarray:
    """Γ[P, Q], from Γ and B before the metric is divided out of Γ.

    The matrix Σ_ia Γ[i, a, P] B[i, a, Q] is symmetric, as the amplitudes of ij and ji are transposes of each other.
    """
    total = np.zeros((metric.naux, metric.naux))
    blocks = [slice(p, min(p + _ROWS, metric.naux)) for p in range(0, metric.naux, _ROWS)]
    with single_threaded_pool(threads) as pool:
        for f, gamma in zip(factors, sums.gamma):
            for i in range(f.shape[0]):
                g, b = gamma[i : i + 1][0], np.asarray(f.B[i : i + 1][0], dtype=np.float64)

                def add(rows: slice, g: np.ndarray = g, b: np.ndarray = b) -> None:
                    total[rows, : rows.stop] += g[:, rows].T @ b[:, : rows.stop]

                list(pool.map(add, blocks))
    lower = np.tril(total, -1)
    total = lower + lower.T + np.diag(total.diagonal())
    return metric.expand_rows(metric.expand_rows(total).T.copy()).T


def _with_frozen(spin: SpinOrbitals, density: np.ndarray, w: Lagrangian) -> np.ndarray:
    """The density with its blocks between frozen and correlated orbitals, occupied and virtual."""
    density, eps = density.copy(), spin.energies
    for active, occupied, lagrangian in (
        (spin.active_occ, spin.occupied, w.occ),
        (spin.active_vir, ~spin.occupied, w.vir),
    ):
        frozen = np.flatnonzero(occupied & ~spin.active)
        gap = np.subtract.outer(eps[frozen], eps[active])
        if gap.size and np.abs(gap).min() < LEAST_GAP:
            f, p = np.unravel_index(np.abs(gap).argmin(), gap.shape)
            raise TrnqcError(
                f"the frozen orbital {frozen[f]} and the correlated orbital {active[p]} have the same energy to "
                f"{LEAST_GAP:g} Hartree, so that the relaxed density is not defined: freeze both or neither"
            )
        block = -lagrangian[frozen] / gap
        density[np.ix_(frozen, active)] = block
        density[np.ix_(active, frozen)] = block.T
    return density


def _orbital_gradient(spin: SpinOrbitals, w: Lagrangian) -> np.ndarray:
    """W_ai - W_ia between all virtual and all occupied orbitals."""
    matrix = in_all_orbitals(spin, w)
    return (matrix - matrix.T)[np.ix_(~spin.occupied, spin.occupied)]
