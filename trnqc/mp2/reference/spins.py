"""All orbitals of one spin, with the masks of those that are occupied and those that are correlated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from trnqc.errors import InputError
from trnqc.mp2.reference.orbitals import ActiveOrbitals, SpinFrozen, correlated_orbitals


@dataclass(frozen=True, eq=False)
class SpinOrbitals:
    """The orbitals [nao, nmo] of one spin, frozen ones included, with energies [nmo] in Hartree and masks [nmo].

    A closed shell is described by one object, which stands for both spins.
    """

    coefficients: np.ndarray
    energies: np.ndarray
    occupied: np.ndarray
    active: np.ndarray

    @property
    def nmo(self) -> int:
        """Number of orbitals."""
        return len(self.energies)

    @property
    def nocc(self) -> int:
        """Number of occupied orbitals, frozen ones included."""
        return int(self.occupied.sum())

    @property
    def c_occ(self) -> np.ndarray:
        """Coefficients of all occupied orbitals."""
        return self.coefficients[:, self.occupied]

    @property
    def c_vir(self) -> np.ndarray:
        """Coefficients of all virtual orbitals."""
        return self.coefficients[:, ~self.occupied]

    @property
    def active_occ(self) -> np.ndarray:
        """Indices of the correlated occupied orbitals."""
        return np.flatnonzero(self.occupied & self.active)

    @property
    def active_vir(self) -> np.ndarray:
        """Indices of the correlated virtual orbitals."""
        return np.flatnonzero(~self.occupied & self.active)

    def to_atomic(self, matrix: np.ndarray) -> np.ndarray:
        """Transform a matrix [nmo, nmo] of orbitals to atomic orbitals, C M C^T."""
        return self.coefficients @ matrix @ self.coefficients.T

    def rotated(self, block: np.ndarray) -> np.ndarray:
        """Return the symmetric matrix [nmo, nmo] of block[a, i] and its transpose, which is zero elsewhere."""
        matrix = np.zeros((self.nmo, self.nmo))
        matrix[np.ix_(~self.occupied, self.occupied)] = block
        return matrix + matrix.T


def spin_orbitals(mo_coeff: Any, mo_energy: Any, mo_occ: Any, frozen: SpinFrozen = None) -> tuple[SpinOrbitals, ...]:
    """Describe the orbitals of a closed-shell (one entry) or an unrestricted reference (two entries), frozen ones
    included.

    The arguments are as on PySCF's objects, [nao, nmo], [nmo] and [nmo], with a leading spin index for two spins;
    `frozen` is None, a number or a list of indices, for two spins also a pair of these. Raises InputError or
    MoleculeError if `frozen` does not describe orbitals, or no pair of electrons is left to correlate. One of two spins
    may have no correlated electrons.
    """
    occupations = np.asarray(mo_occ)
    if occupations.ndim == 1 and not set(np.unique(occupations)) <= {0.0, 2.0}:
        raise InputError(
            "occupations of 2 and 0 were expected for orbitals without a spin index, found "
            f"{sorted(set(occupations.tolist()))}: `restricted_open` has the densities of restricted open shells"
        )
    correlated = correlated_orbitals(mo_coeff, mo_energy, mo_occ, frozen)
    if occupations.ndim == 1:
        mo_coeff, mo_energy, occupations = [mo_coeff], [mo_energy], occupations[None]
    return tuple(_one_spin(*spin) for spin in zip(mo_coeff, mo_energy, occupations, correlated))


def _one_spin(coefficients: Any, energies: Any, occupations: np.ndarray, correlated: ActiveOrbitals) -> SpinOrbitals:
    active = np.ones(len(occupations), dtype=bool)
    active[[*correlated.frozen_occ, *correlated.frozen_vir]] = False
    return SpinOrbitals(np.asarray(coefficients, float), np.asarray(energies, float), occupations > 0, active)
