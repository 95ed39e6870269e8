"""All orbitals of one spin, with the masks of those that are occupied and those that are correlated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trnqc.errors import InputError
from trnqc.mp2.reference.orbitals import active_orbitals


@dataclass(frozen=True, eq=False)
class SpinOrbitals:
    """The orbitals of one spin, frozen orbitals included.

    A closed shell is described by one object, which stands for both spins.

    Attributes
    ----------
    coefficients
        Orbital coefficients [nao, nmo].
    energies
        Orbital energies [nmo], Hartree.
    occupied, active
        Masks [nmo] of the occupied and of the correlated orbitals.
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


def spin_orbitals(mo_coeff: Any, mo_energy: Any, mo_occ: Any, frozen: Any = None) -> tuple[SpinOrbitals, ...]:
    """Describe the orbitals of a closed-shell or an unrestricted reference.

    Parameters
    ----------
    mo_coeff, mo_energy, mo_occ
        As on PySCF's objects: [nao, nmo], [nmo] and [nmo] of a closed shell, or arrays with a leading spin index.
    frozen
        As in PySCF: None, a number or a list of indices; for two spins also a pair of these.

    Returns
    -------
    tuple of SpinOrbitals
        One for a closed shell, two otherwise.

    Raises
    ------
    InputError, MoleculeError
        If `frozen` does not describe orbitals, or none is left to correlate.
    """
    occupations = np.asarray(mo_occ)
    if occupations.ndim == 1:
        if not set(np.unique(occupations)) <= {0.0, 2.0}:
            raise InputError(
                "occupations of 2 and 0 were expected for orbitals without a spin index, found "
                f"{sorted(set(occupations.tolist()))}: densities of restricted open shells are not supported"
            )
        return (_one_spin(mo_coeff, mo_energy, occupations, frozen),)
    pair = _pair_of_frozen(frozen)
    return tuple(_one_spin(*spin) for spin in zip(mo_coeff, mo_energy, occupations, pair))


def _one_spin(coefficients: np.ndarray, energies: np.ndarray, occupations: np.ndarray, frozen: Any) -> SpinOrbitals:
    orbitals = active_orbitals(coefficients, energies, occupations, frozen)
    active = np.ones(orbitals.nmo, dtype=bool)
    active[[*orbitals.frozen_occ, *orbitals.frozen_vir]] = False
    return SpinOrbitals(np.asarray(coefficients, float), np.asarray(energies, float), occupations > 0, active)


def _pair_of_frozen(frozen: Any) -> tuple[Any, Any]:
    """Return the frozen orbitals of each spin."""
    if isinstance(frozen, Sequence | np.ndarray) and len(frozen) == 2 and all(np.ndim(part) == 1 for part in frozen):
        return frozen[0], frozen[1]
    return frozen, frozen
