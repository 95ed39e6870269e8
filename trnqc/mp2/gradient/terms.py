"""The terms of the MP2 gradient: densities contracted with derivatives of integrals.

    one electron:  Σ (D + P) h^x - Σ ω S^x
    two electrons: E2^x(D/2 + P, D), exact or fitted as in the SCF
    correlation:   Σ Γ[mu, nu, P] (mu nu|P)^x - Σ Γ[P, Q] (P|Q)^x

The two-electron term is bilinear, E2(A, B) = Σ (pq|rs) (A_pq B_rs - A_pr B_qs / 2) for a closed shell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from pyscf import gto

from trnqc.eri.gradient.fitted.products import BlockProducts
from trnqc.host.thread_pool import single_threaded_pool
from trnqc.mp2.density.relaxation import Relaxation
from trnqc.mp2.gradient.derivatives import Derivatives
from trnqc.mp2.reference.spins import SpinOrbitals

# Bytes of a block of the three-index density in atomic orbitals where memory sets no limit.
_COMFORTABLE_BLOCK = 2.5e8
# The share of the memory that is left which such a block may take, as its factors take as much again.
_SHARE = 0.3


def one_electron_gradient(mf: Any, densities: EffectiveDensities, derivatives: Derivatives) -> np.ndarray:
    """Contract derivatives of the core Hamiltonian and of the overlap; [natm, 3], Hartree/Bohr."""
    mol, gradients = mf.mol, mf.nuc_grad_method()
    total = (densities.reference + densities.correlation).sum(axis=0)
    # The derivative of an overlap integral acts on both of its functions, and ω is symmetric.
    by_function = -2 * np.einsum("xmn,mn->mx", gradients.get_ovlp(mol), densities.energy_weighted)
    slices = mol.aoslice_by_atom()[:, 2:]
    return derivatives.core(gradients, total) + [by_function[begin:end].sum(axis=0) for begin, end in slices]


def two_electron_gradient(mf: Any, densities: EffectiveDensities, derivatives: Derivatives) -> np.ndarray:
    """Contract derivatives of the two-electron integrals of the SCF with D/2 + P and D; [natm, 3], Hartree/Bohr."""
    left, right = densities.reference / 2 + densities.correlation, densities.reference
    if len(right) == 1:
        left, right = left[0], right[0]
    derivatives.execution.ranks.at("two-electron gradient")
    return derivatives.jk(mf, left, right)


def correlation_gradient(mol: gto.Mole, relaxation: Relaxation, derivatives: Derivatives) -> np.ndarray:
    """Contract Γ with derivatives of three- and two-centre integrals; [natm, 3], Hartree/Bohr."""
    spins, auxmol, execution = relaxation.correlated, relaxation.auxmol, derivatives.execution
    factor = 2.0 if len(spins) == 1 else 1.0
    left = np.concatenate([2 * factor * s.coefficients[:, s.active_occ] for s in spins], axis=1)
    virtual = [s.coefficients[:, s.active_vir] for s in spins]
    products = BlockProducts(left, execution.threads)

    rows = [(gamma, i, c_vir) for gamma, c_vir in zip(relaxation.sums.gamma, virtual) for i in range(gamma.shape[0])]

    def density(functions: np.ndarray) -> np.ndarray:
        right = products.right(len(functions))

        def transform(number: int) -> None:
            gamma, i, c_vir = rows[number]
            np.matmul(c_vir, gamma[i : i + 1][0][:, functions], out=right[number])

        with single_threaded_pool(execution.threads) as pool:
            list(pool.map(transform, range(len(rows))))
        return products.weights(right)

    held = sum(gamma.bytes_in_memory for gamma in relaxation.sums.gamma)
    ranks = execution.ranks
    # The blocks have to be the same on all ranks.
    block = ranks.at_first(lambda: min(_COMFORTABLE_BLOCK, _SHARE * max(execution.memory - held, 0)))
    ranks.at("correlation gradient")
    three = derivatives.three_centre(mol, auxmol, density, block)
    assert relaxation.two_centre is not None, "relaxed for a gradient"
    return three - factor * derivatives.two_centre(auxmol, relaxation.two_centre)


@dataclass(frozen=True, eq=False)
class EffectiveDensities:
    """Densities in atomic orbitals: D of the SCF and the relaxed difference density of MP2, [spin, nao, nao], and ω
    [nao, nao].

    A closed shell has one matrix, summed over spins. The energy-weighted density ω is summed over spins, Hartree.
    """

    reference: np.ndarray
    correlation: np.ndarray
    energy_weighted: np.ndarray


def effective_densities(relaxation: Relaxation) -> EffectiveDensities:
    """Assemble the densities of a gradient from a relaxed density."""
    density = relaxation.density
    factor = 2.0 if len(density.spins) == 1 else 1.0
    parts = zip(density.spins, density.per_spin, relaxation.fock, relaxation.lagrangians, relaxation.columns)
    weighted = sum(part[0].to_atomic(_energy_weighted(*part)) for part in parts)
    return EffectiveDensities(
        factor * np.array([spin.c_occ @ spin.c_occ.T for spin in density.spins]),
        factor * np.array([spin.to_atomic(p) for spin, p in zip(density.spins, density.per_spin)]),
        factor * np.asarray(weighted),
    )


def _energy_weighted(
    spin: SpinOrbitals, density: np.ndarray, fock: np.ndarray, w: np.ndarray, columns: np.ndarray
) -> np.ndarray:
    """ω [nmo, nmo] of one spin, made symmetric."""
    omega = fock * spin.occupied + fock @ density + w
    omega[:, spin.occupied] += columns
    return (omega + omega.T) / 2
