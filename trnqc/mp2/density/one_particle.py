"""What MP2 adds to the one-particle density, and its part by the amplitudes alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trnqc.errors import InputError
from trnqc.mp2.density.pair_sums import PairSums
from trnqc.mp2.density.sectors import SpinEnergies
from trnqc.mp2.factors.factors import Factors
from trnqc.mp2.reference.spins import SpinOrbitals


@dataclass(frozen=True, eq=False)
class CorrelationDensity:
    """The difference [nmo, nmo] between the MP2 density and that of the reference, for each spin (for one spin of a
    closed shell).

    `energies` are the unscaled correlation energies of opposite and same spin, Hartree; `relaxed` tells whether the
    density contains the response of the orbitals.
    """

    spins: tuple[SpinOrbitals, ...]
    per_spin: tuple[np.ndarray, ...]
    energies: SpinEnergies
    relaxed: bool

    def rdm1(self, ao_repr: bool = False, reference: bool = True) -> np.ndarray:
        """Return the density in PySCF's form: [n, n], summed over spins, for a closed shell; [2, n, n] for two
        spins.

        It is in the molecular orbitals of the reference unless `ao_repr`. With the density of the reference, the trace
        is the number of electrons.
        """
        blocks = [p + np.diag(1.0 * s.occupied) if reference else p for s, p in zip(self.spins, self.per_spin)]
        if ao_repr:
            blocks = [spin.to_atomic(block) for spin, block in zip(self.spins, blocks)]
        return 2 * blocks[0] if len(blocks) == 1 else np.array(blocks)


def unrelaxed(spins: Sequence[SpinOrbitals], sums: PairSums) -> tuple[np.ndarray, ...]:
    """The densities [nmo, nmo] of the amplitudes, which are zero outside of the blocks of correlated orbitals."""
    densities = []
    for spin, p_occ, p_vir in zip(spins, sums.p_occ, sums.p_vir):
        density = np.zeros((spin.nmo, spin.nmo))
        density[np.ix_(spin.active_occ, spin.active_occ)] = (p_occ + p_occ.T) / 2
        density[np.ix_(spin.active_vir, spin.active_vir)] = (p_vir + p_vir.T) / 2
        densities.append(density)
    return tuple(densities)


def check_factors(spins: tuple[SpinOrbitals, ...], factors: Sequence[Factors]) -> None:
    """Raise InputError if factors and orbitals do not belong together."""
    expected = [(len(spin.active_occ), len(spin.active_vir)) for spin in spins]
    found = [tuple(f.shape[:2]) for f in factors]
    if expected != found:
        raise InputError(f"factors B of {expected} occupied and virtual orbitals by spin were expected, found {found}")
