"""The effective densities of the MP2 gradient: those that multiply derivatives of one-electron integrals.

With P the relaxed difference density of a spin and W the derivative of the energy with respect to its orbitals
(`density.lagrangian`), the derivative of the overlap is multiplied by minus

    ω = F n + F P + W + G[P] n

made symmetric, where F is the Fock matrix, n is 1 for occupied orbitals and 0 for virtual ones, and W has columns for
the correlated orbitals only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trnqc.mp2.density.relaxation import Relaxation
from trnqc.mp2.reference.spins import SpinOrbitals


@dataclass(frozen=True, eq=False)
class EffectiveDensities:
    """Densities in atomic orbitals, one matrix for each spin; for a closed shell the one that is summed over spins.

    Attributes
    ----------
    reference
        Density D of the SCF, [spin, nao, nao].
    correlation
        Relaxed difference density of MP2, [spin, nao, nao].
    energy_weighted
        ω [nao, nao], summed over spins, Hartree.
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
