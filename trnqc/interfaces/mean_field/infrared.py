"""Infrared intensities from the first-order orbitals that a Hessian has anyway.

Hessian object -> layer that takes the derivatives of the dipole from `solve_mo1` -> with normal modes: intensities

In the double harmonic approximation the intensity of a mode is N_A |dmu/dQ|^2 / (12 epsilon_0 c^2), with the derivative
of the dipole mu along the mass-weighted normal coordinate Q (E. B. Wilson, J. C. Decius and P. C. Cross, Molecular
Vibrations, McGraw-Hill, 1955, chapter 7).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pyscf import gto, lib
from scipy import constants

# Intensity in km/mol of a derivative of 1 e / sqrt(amu): 974.88.
KM_PER_MOL = 1e-3 * constants.N_A * constants.e**2 / (12 * constants.epsilon_0 * constants.c**2 * constants.atomic_mass)


def with_dipole_derivatives(hessian: Any) -> Any:
    """PySCF's Hessian object, which has the attribute `dipole_derivatives` after `kernel`: d mu_b / d R_Aa in e,
    [natm, 3, 3].
    """
    return lib.set_class(_Infrared(hessian), (_Infrared, hessian.__class__))


def intensities(dipole_derivatives: np.ndarray, modes: np.ndarray) -> np.ndarray:
    """The intensity of each mode in km/mol.

    `dipole_derivatives` [natm, 3, 3] are in e, and `modes` [mode, natm, 3] the derivatives of Cartesian coordinates
    along normal coordinates, dR/dQ in amu^-1/2.
    """
    along = np.einsum("kza,zab->kb", modes, dipole_derivatives)
    return np.asarray(KM_PER_MOL * np.square(along).sum(axis=1))


class _Infrared(lib.StreamObject):
    """The layer that `with_dipole_derivatives` puts on a Hessian object."""

    __name_mixin__ = "Infrared"
    _keys = frozenset({"dipole_derivatives"})

    def __init__(self, hessian: Any) -> None:
        self.__dict__.update(hessian.__dict__)
        self.dipole_derivatives: np.ndarray | None = None

    def solve_mo1(self, mo_energy: Any, mo_coeff: Any, mo_occ: Any, h1ao: Any, *rest: Any, **options: Any) -> Any:
        """Return first-order orbitals and orbital energies as the Hessian object does."""
        mo1, e1 = super().solve_mo1(mo_energy, mo_coeff, mo_occ, h1ao, *rest, **options)
        spins = [(mo_coeff, mo_occ, mo1)] if np.ndim(mo_occ) == 1 else list(zip(mo_coeff, mo_occ, mo1))
        occupied = [c[:, n > 0] * n[n > 0] ** 0.5 for c, n, _ in spins]
        # Orbitals of both spins have two electrons, in the change of the density too.
        changes = [np.array(change) * n[n > 0] ** 0.5 for _, n, change in spins]
        self.dipole_derivatives = dipole_derivatives(self.mol, occupied, changes)
        return mo1, e1


def dipole_derivatives(mol: gto.Mole, occupied: list[np.ndarray], changes: list[np.ndarray]) -> np.ndarray:
    """The derivatives d mu_b / d R_Aa in e, [natm, 3, 3].

    `occupied` are the orbitals [nao, nocc] of each spin times the square roots of their occupations, so that the
    density is C C^T, and `changes` [natm, 3, nao, nocc] their first-order changes at constant atomic orbitals.
    """
    nao = mol.nao_nr()
    r = mol.intor_symmetric("int1e_r", comp=3)
    # <i| r_b d_a |j>, [b, a, i, j]
    of_ket = mol.intor("int1e_irp", comp=9).reshape(3, 3, nao, nao)
    density = sum(c @ c.T for c in occupied)
    result = np.einsum("z,ab->zab", mol.atom_charges().astype(float), np.eye(3))
    for c, change in zip(occupied, changes):
        result -= 2 * np.einsum("zapi,bpi->zab", change, r @ c)
    for atom, (first, last) in enumerate(mol.aoslice_by_atom()[:, 2:]):
        # A function moves with its atom: its derivative by the position is minus that by the electron's.
        result[atom] += 2 * np.einsum("baij,ij->ab", of_ket[..., first:last], density[:, first:last])
    return np.asarray(result)
