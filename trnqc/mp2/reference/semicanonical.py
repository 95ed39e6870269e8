"""Semicanonical orbitals of a restricted open-shell reference, and the energy of its single excitations.

ROHF orbitals, Fock matrices of both spins -> rotations within the occupied and the virtual space -> ActiveOrbitals

The orbitals of each spin diagonalise the occupied and the virtual block of its Fock matrix. MP2 then has the equations
of an unrestricted reference and the energy of single excitations, because the occupied-virtual block does not vanish
(P. J. Knowles, J. S. Andrews, R. D. Amos, N. C. Handy, J. A. Pople, Chem. Phys. Lett. 186, 130 (1991);
W. J. Lauderdale, J. F. Stanton, J. Gauss, J. D. Watts, R. J. Bartlett, Chem. Phys. Lett. 187, 21 (1991)).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trnqc.mp2.reference.orbitals import ActiveOrbitals, SpinFrozen, active_mask, check_spins, frozen_by_spin


def fock_matrices(mf: Any) -> np.ndarray:
    """The Fock matrices [2, nao, nao] of both spins of a converged ROHF object, Hartree."""
    fock = mf.get_fock(dm=mf.make_rdm1())
    return np.array((fock.focka, fock.fockb))


def semicanonical_orbitals(
    mo_coeff: np.ndarray, mo_occ: np.ndarray, fock: np.ndarray, frozen: SpinFrozen
) -> tuple[tuple[ActiveOrbitals, ActiveOrbitals], float]:
    """Rotate ROHF orbitals to semicanonical orbitals of both spins.

    Parameters
    ----------
    mo_coeff, mo_occ
        Coefficients [nao, nmo] and occupations [nmo], 0, 1 or 2.
    fock
        Fock matrices [2, nao, nao] in atomic orbitals, Hartree.
    frozen
        The frozen orbitals, with the indices of `mo_coeff`. They are not rotated.

    Returns
    -------
    tuple
        The correlated orbitals of both spins, and the energy of single excitations in Hartree,
        sum_ia f_ia^2 / (eps_i - eps_a) over both spins and the correlated orbitals.
    """
    occupied = np.asarray(mo_occ) > 0, np.asarray(mo_occ) > 1
    parts = [
        _one_spin(np.asarray(mo_coeff, dtype=float), *spin)
        for spin in zip(occupied, fock, frozen_by_spin(frozen), ("alpha", "beta"))
    ]
    (alpha, beta), singles = (orbitals for orbitals, _ in parts), sum(energy for _, energy in parts)
    check_spins(alpha, beta)
    return (alpha, beta), float(singles)


def _one_spin(
    c: np.ndarray, occupied: np.ndarray, fock: np.ndarray, frozen: Any, spin: str
) -> tuple[ActiveOrbitals, float]:
    active = active_mask(occupied, frozen, spin)
    c_occ, eps_occ = _diagonal(c[:, occupied & active], fock)
    c_vir, eps_vir = _diagonal(c[:, ~occupied & active], fock)
    coupling = c_occ.T @ fock @ c_vir
    singles = np.sum(coupling**2 / (eps_occ[:, None] - eps_vir))
    left_out = (tuple(np.flatnonzero(mask & ~active).tolist()) for mask in (occupied, ~occupied))
    return ActiveOrbitals(c_occ, c_vir, eps_occ, eps_vir, *left_out), float(singles)


def _diagonal(c: np.ndarray, fock: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Orbitals that diagonalise the Fock matrix in the space of `c`, and their energies."""
    energies, rotation = np.linalg.eigh(c.T @ fock @ c)
    return c @ rotation, energies
