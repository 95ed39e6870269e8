"""The one-particle density of MP2, unrelaxed or relaxed.

factors -> pair_sums -> P_ij, P_ab, Γ -> lagrangian: W -> frozen orbitals, Z-vector -> P of all orbitals
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pyscf import gto

from trnqc.errors import InputError, TrnqcError, UnsupportedError
from trnqc.mp2.density.fitted_response import response_of
from trnqc.mp2.density.lagrangian import Lagrangian, lagrangians
from trnqc.mp2.density.pair_sums import PairSums, pair_sums
from trnqc.mp2.density.response import Response
from trnqc.mp2.density.sectors import SpinEnergies
from trnqc.mp2.density.spins import SpinOrbitals
from trnqc.mp2.density.zvector import DEFAULTS, ZVectorOptions, solve_z_vector
from trnqc.mp2.execution import Execution
from trnqc.mp2.factors.factors import Factors
from trnqc.mp2.factors.metric import Metric, factorise
from trnqc.mp2.factors.shell_blocks import by_angular_momentum

# Hartree. A frozen and a correlated orbital whose energies differ by less cannot be told apart.
LEAST_GAP = 1e-6


@dataclass(frozen=True, eq=False)
class CorrelationDensity:
    """What MP2 adds to the one-particle density of the reference.

    Attributes
    ----------
    spins
        All orbitals; one entry for a closed shell, else α and β.
    per_spin
        Difference density [nmo, nmo] of each spin; that of one spin for a closed shell.
    energies
        Unscaled correlation energies of opposite and same spin, Hartree.
    relaxed
        Whether the density contains the response of the orbitals.
    """

    spins: tuple[SpinOrbitals, ...]
    per_spin: tuple[np.ndarray, ...]
    energies: SpinEnergies
    relaxed: bool

    def rdm1(self, ao_repr: bool = False, reference: bool = True) -> np.ndarray:
        """Return the one-particle density matrix in PySCF's form.

        Parameters
        ----------
        ao_repr
            Whether in atomic orbitals; else in the molecular orbitals of the reference.
        reference
            Whether the density of the reference is included. The trace is then the number of electrons.

        Returns
        -------
        numpy.ndarray
            [n, n], summed over spins, for a closed shell; [2, n, n] for two spins.
        """
        blocks = [p + np.diag(1.0 * s.occupied) if reference else p for s, p in zip(self.spins, self.per_spin)]
        if ao_repr:
            blocks = [spin.to_atomic(block) for spin, block in zip(self.spins, blocks)]
        return 2 * blocks[0] if len(blocks) == 1 else np.array(blocks)


@dataclass(frozen=True, eq=False)
class Relaxation:
    """A relaxed density with what gradients need besides.

    Attributes
    ----------
    density
        The relaxed density.
    lagrangians
        W of each spin.
    sums
        The pass over pairs, with Γ[i, a, P] in the raw auxiliary functions.
    two_centre
        Γ[P, Q] = Σ_ia Γ[i, a, P] C[i, a, Q] with C = (ia|.) V^-1, summed over spins; one spin's for a closed shell.
    auxmol
        The auxiliary functions in the order of P.
    response
        The response of the Fock matrix.
    """

    density: CorrelationDensity
    lagrangians: tuple[Lagrangian, ...]
    sums: PairSums
    two_centre: np.ndarray
    auxmol: gto.Mole
    response: Response


def correlation_density(
    mf: Any,
    spins: Sequence[SpinOrbitals],
    factors: Sequence[Factors],
    auxmol: gto.Mole,
    execution: Execution,
    *,
    scaling: tuple[float, float] = (1.0, 1.0),
    relaxed: bool = False,
    options: ZVectorOptions = DEFAULTS,
) -> CorrelationDensity:
    """Compute the MP2 correction to the one-particle density.

    Parameters
    ----------
    mf
        PySCF's SCF object, whose response is used for a relaxed density.
    spins
        All orbitals, from `spin_orbitals`.
    factors
        B[i, a, Q] of the correlated orbitals of each spin.
    auxmol
        The auxiliary functions with which the factors were computed.
    execution
        Threads, memory limit, and the backend of Γ, see `pair_sums`. All other products run on the host in fp64.
    scaling
        Factors (c_os, c_ss) of the energy of which this is the density: (1, 1) for MP2.
    relaxed
        Whether the response of the orbitals is included, so that expectation values are derivatives of the energy.

    Raises
    ------
    InputError
        If factors and orbitals do not belong together.
    NotConverged
        If the Z-vector equations do not converge.
    TrnqcError
        If the SCF solution is not a minimum, or a frozen orbital is degenerate with a correlated one.
    UnsupportedError
        If the job has several ranks.
    MemoryLimit, StorageError

    Notes
    -----
    The unrelaxed density is that of the amplitudes alone, the relaxed one the derivative of the energy with respect to
    a one-electron operator. docs/properties.md has the equations.
    """
    spins = tuple(spins)
    _check(spins, factors, execution)
    if relaxed:
        return relax(mf, spins, factors, auxmol, execution, scaling=scaling, options=options).density
    sums = pair_sums(factors, scaling, execution)
    return CorrelationDensity(spins, unrelaxed(spins, sums), sums.energies, relaxed=False)


def relax(
    mf: Any,
    spins: Sequence[SpinOrbitals],
    factors: Sequence[Factors],
    auxmol: gto.Mole,
    execution: Execution,
    *,
    scaling: tuple[float, float] = (1.0, 1.0),
    options: ZVectorOptions = DEFAULTS,
) -> Relaxation:
    """Compute the relaxed density and keep what gradients need; arguments as in `correlation_density`."""
    spins = tuple(spins)
    _check(spins, factors, execution)
    auxmol = by_angular_momentum(auxmol)
    metric = factorise(auxmol.intor("int2c2e", hermi=1))
    if any(f.shape[2] != metric.naux for f in factors):
        raise InputError(f"factors with {metric.naux} auxiliary functions were expected, found {factors[0].shape[2]}")
    sums = pair_sums(factors, scaling, execution)
    two_centre = _two_centre(factors, sums, metric)
    gammas = tuple(gamma.to_auxiliary(metric, execution.threads) for gamma in sums.gamma)
    sums = replace(sums, gamma=gammas)
    held = sum(part.bytes_in_memory for part in factors) + sum(part.bytes_in_memory for part in gammas)
    left = replace(execution, memory=execution.memory - held)
    w = lagrangians(mf.mol, auxmol, spins, gammas, left)
    densities = [_with_frozen(*parts) for parts in zip(spins, unrelaxed(spins, sums), w)]
    response = response_of(mf, spins, left.threads, left.memory)
    right = [
        -_orbital_gradient(spin, lagrangian, columns)
        for spin, lagrangian, columns in zip(spins, w, response.columns(densities))
    ]
    z = solve_z_vector(right, spins, response, options, lambda cycle: execution.report("orbital response", cycle, 0))
    for spin, density, block in zip(spins, densities, z):
        density[np.ix_(~spin.occupied, spin.occupied)] += block
        density[np.ix_(spin.occupied, ~spin.occupied)] += block.T
    result = CorrelationDensity(spins, tuple(densities), sums.energies, relaxed=True)
    return Relaxation(result, w, sums, two_centre, auxmol, response)


def unrelaxed(spins: Sequence[SpinOrbitals], sums: PairSums) -> tuple[np.ndarray, ...]:
    """The densities [nmo, nmo] of the amplitudes, whose only blocks are those of correlated orbitals."""
    densities = []
    for spin, p_occ, p_vir in zip(spins, sums.p_occ, sums.p_vir):
        density = np.zeros((spin.nmo, spin.nmo))
        density[np.ix_(spin.active_occ, spin.active_occ)] = (p_occ + p_occ.T) / 2
        density[np.ix_(spin.active_vir, spin.active_vir)] = (p_vir + p_vir.T) / 2
        densities.append(density)
    return tuple(densities)


def _check(spins: tuple[SpinOrbitals, ...], factors: Sequence[Factors], execution: Execution) -> None:
    if execution.ranks.size > 1:
        raise UnsupportedError(
            f"densities and gradients are computed by one process, found a job of {execution.ranks.size} ranks"
        )
    expected = [(len(spin.active_occ), len(spin.active_vir)) for spin in spins]
    found = [tuple(f.shape[:2]) for f in factors]
    if expected != found:
        raise InputError(f"factors B of {expected} occupied and virtual orbitals by spin were expected, found {found}")


def _two_centre(factors: Sequence[Factors], sums: PairSums, metric: Metric) -> np.ndarray:
    """Γ[P, Q], from Γ and B before the metric is divided out of Γ."""
    total = np.zeros((metric.naux, metric.naux))
    for f, gamma in zip(factors, sums.gamma):
        for i in range(f.shape[0]):
            rows = slice(i, i + 1)
            total += gamma[rows][0].T @ np.asarray(f.B[rows][0], dtype=np.float64)
    return metric.divide_from_right(metric.divide_from_right(total).T.copy()).T


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


def _orbital_gradient(spin: SpinOrbitals, w: Lagrangian, columns: np.ndarray) -> np.ndarray:
    """X[a, i] = W_ai - W_ia + G[P]_ai between all virtual and all occupied orbitals."""
    x = columns.copy()
    occupied = np.cumsum(spin.occupied) - 1
    virtual = np.cumsum(~spin.occupied) - 1
    x[:, occupied[spin.active_occ]] += w.occ
    x = x[~spin.occupied]
    x[virtual[spin.active_vir]] -= w.vir[spin.occupied].T
    return x
