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


def unrelaxed(spins: Sequence[SpinOrbitals], sums: PairSums) -> tuple[np.ndarray, ...]:
    """The densities [nmo, nmo] of the amplitudes, whose only blocks are those of correlated orbitals."""
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
