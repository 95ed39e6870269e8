"""Relaxed densities of MP2 on restricted open-shell Hartree-Fock with semicanonical orbitals.

    semicanonical orbitals of both spins -> pair sums and single excitations -> P, M of each spin
    M of both spins in the ROHF orbitals -> Z-vector of rotations between doubly, singly and unoccupied orbitals

The energy depends on the rotations of ROHF orbitals that change the density. If orbital q changes by Σ_p C_p U_pq, it
changes by 2 Σ_pq M_pq U_pq, where for each spin, in any orbitals,

    M = F P + W + G[P] n

F is the Fock matrix of the spin, n the matrix of its occupations, and P its density including the single excitations
t_ia = f_ia / (ε_i - ε_a): P_ia = t_ia, P_ij = -Σ_a t_ia t_ja, P_ab = Σ_i t_ia t_ib beside the terms of the pairs. The
response of the reference is a density P_pq = z_pq (n_q - n_p) of each spin, with which M_pq - M_qp vanishes. Frozen and
correlated orbitals of the same occupation are told apart by F_pq^α + F_pq^β = 0, and both spins have the same P_pq.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyscf import gto

from trnqc.errors import TrnqcError
from trnqc.host.clock import measured
from trnqc.mp2.density.lagrangian import Lagrangian
from trnqc.mp2.density.one_particle import CorrelationDensity
from trnqc.mp2.density.pair_sums import PairSums, pair_sums
from trnqc.mp2.density.relaxation import LEAST_GAP as LEAST_DIFFERENCE
from trnqc.mp2.density.relaxation import Relaxation, in_all_orbitals, prepare
from trnqc.mp2.execution import Execution
from trnqc.mp2.factors.factors import Factors
from trnqc.mp2.factors.ranks import on_every_rank
from trnqc.mp2.reference.orbitals import ActiveOrbitals
from trnqc.mp2.reference.semicanonical import fock_matrices
from trnqc.mp2.reference.spins import SpinOrbitals
from trnqc.mp2.response.minimal import minimal_response
from trnqc.mp2.response.response import response_of
from trnqc.mp2.response.zvector import DEFAULTS, ZVectorOptions, solve_z_vector
from trnqc.mp2.store import JobStore

# Hartree. Smaller diagonal elements of the equations are replaced by this in the preconditioner.
LEAST_GAP = 0.1


@dataclass(frozen=True, eq=False)
class OpenShell:
    """The orbitals of an ROHF reference with the occupations of each spin, and its semicanonical orbitals.

    Semicanonical orbitals of a spin diagonalise its Fock matrix among occupied and among virtual orbitals. `rotations`
    [nmo, nmo] are these in terms of the ROHF orbitals; `fock` [nmo, nmo] is in ROHF orbitals, Hartree.
    """

    restricted: tuple[SpinOrbitals, ...]
    semicanonical: tuple[SpinOrbitals, ...]
    rotations: tuple[np.ndarray, ...]
    fock: tuple[np.ndarray, ...]


def open_shell(
    mo_coeff: np.ndarray, mo_occ: np.ndarray, fock: np.ndarray, overlap: np.ndarray, orbitals: Sequence[ActiveOrbitals]
) -> OpenShell:
    """Describe an ROHF reference from its orbitals, both Fock matrices [2, nao, nao], and its semicanonical
    orbitals.

    The frozen orbitals are counted among those of the ROHF object.
    """
    restricted, semicanonical, rotations, in_orbitals = [], [], [], []
    for occupied, f, spin in zip((mo_occ > 0, mo_occ > 1), fock, orbitals):
        in_orbitals.append(mo_coeff.T @ f @ mo_coeff)
        diagonal = in_orbitals[-1].diagonal()
        active = np.ones(len(mo_occ), dtype=bool)
        frozen_occ, frozen_vir = list(spin.frozen_occ), list(spin.frozen_vir)
        active[frozen_occ + frozen_vir] = False
        restricted.append(SpinOrbitals(mo_coeff, diagonal, occupied, active))
        c = np.hstack([mo_coeff[:, frozen_occ], spin.c_occ, spin.c_vir, mo_coeff[:, frozen_vir]])
        energies = np.concatenate([diagonal[frozen_occ], spin.eps_occ, spin.eps_vir, diagonal[frozen_vir]])
        number = np.arange(len(occupied))
        own_active = (number >= len(frozen_occ)) & (number < len(number) - len(frozen_vir))
        semicanonical.append(SpinOrbitals(c, energies, number < occupied.sum(), own_active))
        rotations.append(mo_coeff.T @ overlap @ c)
    return OpenShell(tuple(restricted), tuple(semicanonical), tuple(rotations), tuple(in_orbitals))


def densities_with_singles(shell: OpenShell, sums: PairSums) -> list[np.ndarray]:
    """Return the unrelaxed density of each spin in ROHF orbitals, single excitations included."""
    densities = []
    for spin, rotation, fock, p_occ, p_vir in zip(
        shell.semicanonical, shell.rotations, shell.fock, sums.p_occ, sums.p_vir
    ):
        o, v = spin.active_occ, spin.active_vir
        coupling = (rotation.T @ fock @ rotation)[np.ix_(o, v)]
        t = coupling / np.subtract.outer(spin.energies[o], spin.energies[v])
        density = np.zeros_like(fock)
        density[np.ix_(o, o)] = (p_occ + p_occ.T) / 2 - t @ t.T
        density[np.ix_(v, v)] = (p_vir + p_vir.T) / 2 + t.T @ t
        density[np.ix_(o, v)], density[np.ix_(v, o)] = t, t.T
        densities.append(rotation @ density @ rotation.T)
    return densities


def densities_with_frozen(
    shell: OpenShell, densities: Sequence[np.ndarray], w: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """Return the densities with their elements between frozen and correlated orbitals of the same occupation.

    The mean Fock matrix of both spins, which is diagonal among orbitals of the same occupation, tells such orbitals
    apart. Raises TrnqcError if two of the orbitals have the same diagonal element.
    """
    occupation = sum(spin.occupied.astype(int) for spin in shell.restricted)
    apart = np.logical_or(*(np.not_equal.outer(spin.active, spin.active) for spin in shell.restricted))
    p, q = np.nonzero(np.tril(apart & np.equal.outer(occupation, occupation)))
    energies = (shell.fock[0] + shell.fock[1]).diagonal() / 2
    gap = energies[p] - energies[q]
    if gap.size and np.abs(gap).min() < LEAST_DIFFERENCE:
        n = np.abs(gap).argmin()
        raise TrnqcError(
            f"one of the orbitals {q[n]} and {p[n]} is frozen, and both have the same energy to {LEAST_DIFFERENCE:g} "
            "Hartree, so that the relaxed density is not defined: freeze both or neither"
        )
    total = sum(f @ density + one for f, density, one in zip(shell.fock, densities, w))
    elements = -(total - total.T)[p, q] / gap / 2
    results = [density.copy() for density in densities]
    for density in results:
        density[p, q] += elements
        density[q, p] += elements
    return results


def in_restricted_orbitals(shell: OpenShell, w: Sequence[Lagrangian]) -> list[np.ndarray]:
    """Return W of each spin as a matrix [nmo, nmo] of ROHF orbitals."""
    parts = zip(shell.semicanonical, shell.rotations, w)
    return [rotation @ in_all_orbitals(spin, one) @ rotation.T for spin, rotation, one in parts]


class RestrictedRotations:
    """The rotations between ROHF orbitals of different occupation, as `trnqc.mp2.response.rotations.Rotations`.

    The response to x_pq is the density P_pq = x_pq (n_q - n_p) of each spin. The equations are for M_pq - M_qp, where p
    has the lower occupation.
    """

    def __init__(self, shell: OpenShell) -> None:
        self._shell = shell
        alpha, beta = (s.occupied.astype(float) for s in shell.restricted)
        self._pairs = np.nonzero(np.less.outer(alpha + beta, alpha + beta))
        higher, lower = self._pairs
        self._differences = [n[lower] - n[higher] for n in (alpha, beta)]
        gaps = [f.diagonal()[higher] - f.diagonal()[lower] for f in shell.fock]
        gap = sum(d * g for d, g in zip(self._differences, gaps))
        self.gap = np.maximum(np.abs(gap), LEAST_GAP)

    def blocks(self, x: np.ndarray) -> list[np.ndarray]:
        """Return P_ai of the density of each spin."""
        return [p[np.ix_(~spin.occupied, spin.occupied)] for spin, p in zip(self._shell.restricted, self._densities(x))]

    def fock_part(self, x: np.ndarray) -> np.ndarray:
        """Return the part of F P."""
        return self.antisymmetric([f @ (p + p.T) for f, p in zip(self._shell.fock, self._densities(x))])

    def response_part(self, columns: Sequence[np.ndarray]) -> np.ndarray:
        """Return the part of G[P] n."""
        matrices = [np.zeros_like(fock) for fock in self._shell.fock]
        for matrix, spin, g in zip(matrices, self._shell.restricted, columns):
            matrix[:, spin.occupied] = g
        return self.antisymmetric(matrices)

    def antisymmetric(self, matrices: Sequence[np.ndarray]) -> np.ndarray:
        """Return M_pq - M_qp of all rotations, for the sum M of matrices [nmo, nmo]."""
        total = sum(matrices[1:], matrices[0])
        return (total - total.T)[self._pairs]

    def _densities(self, x: np.ndarray) -> list[np.ndarray]:
        """P_pq of each spin, for the pairs of rotations only."""
        matrices = []
        for difference, fock in zip(self._differences, self._shell.fock):
            matrix = np.zeros_like(fock)
            matrix[self._pairs] = x * difference
            matrices.append(matrix)
        return matrices


def restricted_open_density(
    mf: Any,
    orbitals: Sequence[ActiveOrbitals],
    factors: Sequence[Factors],
    auxmol: gto.Mole,
    execution: Execution,
    *,
    scaling: tuple[float, float] = (1.0, 1.0),
    relaxed: bool = False,
    options: ZVectorOptions = DEFAULTS,
    store: JobStore | None = None,
) -> CorrelationDensity:
    """Compute the density of MP2 on an ROHF reference, in the ROHF orbitals; see `relax_restricted_open`."""
    if relaxed:
        return relax_restricted_open(
            mf, orbitals, factors, auxmol, execution, scaling=scaling, options=options, store=store, for_gradient=False
        ).density
    shell = open_shell(mf.mo_coeff, mf.mo_occ, fock_matrices(mf), mf.get_ovlp(), orbitals)
    sums = pair_sums(on_every_rank(factors, execution), scaling, execution, store)
    densities = tuple(densities_with_singles(shell, sums))
    return CorrelationDensity(shell.restricted, densities, sums.energies, relaxed=False)


@measured("Z-vector")
def relax_restricted_open(
    mf: Any,
    orbitals: Sequence[ActiveOrbitals],
    factors: Sequence[Factors],
    auxmol: gto.Mole,
    execution: Execution,
    *,
    scaling: tuple[float, float] = (1.0, 1.0),
    options: ZVectorOptions = DEFAULTS,
    store: JobStore | None = None,
    for_gradient: bool = True,
) -> Relaxation:
    """Compute the relaxed density of MP2 on an ROHF reference, in the ROHF orbitals.

    `orbitals` are from `semicanonical_orbitals`; the other arguments and the errors are those of `relax`. The density
    contains the part of the single excitations, the energies of the result do not.
    """
    shell = open_shell(mf.mo_coeff, mf.mo_occ, fock_matrices(mf), mf.get_ovlp(), orbitals)
    parts = prepare(mf, shell.semicanonical, factors, auxmol, execution, scaling, store, for_gradient)
    w = in_restricted_orbitals(shell, parts.lagrangians)
    densities = densities_with_frozen(shell, densities_with_singles(shell, parts.sums), w)
    rotations = RestrictedRotations(shell)
    relaxed = solve_z_vector(
        rotations.antisymmetric([f @ p for f, p in zip(shell.fock, densities)] + w),
        densities,
        shell.restricted,
        rotations,
        response_of(mf, shell.restricted, execution.threads, parts.memory, execution.ranks),
        options,
        minimal=minimal_response(mf, shell.restricted, parts.memory),
        report=lambda cycle: execution.report("orbital response", cycle, 0),
    )
    density = CorrelationDensity(shell.restricted, relaxed.densities, parts.sums.energies, relaxed=True)
    return Relaxation(
        density,
        shell.semicanonical,
        shell.fock,
        tuple(w),
        parts.sums,
        parts.two_centre,
        parts.auxmol,
        relaxed.columns,
    )
