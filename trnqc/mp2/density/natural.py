"""Natural orbitals of a one-particle density, and frozen natural orbitals, which shorten the virtual space.

density of MP2 -> eigenvectors: natural orbitals
               -> eigenvectors of its virtual block: those of small occupation frozen, the others made canonical
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trnqc.errors import InputError
from trnqc.mp2.density.one_particle import CorrelationDensity
from trnqc.mp2.reference.spins import SpinOrbitals


def natural_orbitals(
    density: np.ndarray, mo_coeff: np.ndarray, overlap: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the occupations [nmo] of natural orbitals, descending, and the natural orbitals [nao, nmo].

    The density is in molecular orbitals, [nmo, nmo], or [2, nmo, nmo] for two spins, which are added first. `mo_coeff`
    is [nao, nmo], or [2, nao, nmo] if the spins have different orbitals; these need the `overlap` [nao, nao] of the
    atomic orbitals. Raises InputError if shapes do not belong together, or the overlap is missing.
    """
    density, mo_coeff = np.asarray(density), np.asarray(mo_coeff)
    if density.ndim == 3 and mo_coeff.ndim == 2 and len(density) == 2:  # Both spins of ROHF have the same orbitals.
        density = density.sum(axis=0)
    if density.ndim not in (2, 3) or density.shape[-2:] != (mo_coeff.shape[-1],) * 2 or density.ndim != mo_coeff.ndim:
        raise InputError(
            "the density has to be [nmo, nmo] with orbitals [nao, nmo], or both with a leading spin index, found "
            f"{density.shape} and {mo_coeff.shape}"
        )
    if density.ndim == 3:
        if overlap is None:
            raise InputError("the overlap of the atomic orbitals is needed to add the densities of two spins")
        between = mo_coeff[0].T @ overlap @ mo_coeff[1]
        density, mo_coeff = density[0] + between @ density[1] @ between.T, mo_coeff[0]
    occupations, vectors = np.linalg.eigh((density + density.T) / 2)
    return occupations[::-1].copy(), mo_coeff @ vectors[:, ::-1]


def frozen_natural_orbitals(
    density: CorrelationDensity,
    threshold: float = 1e-6,
    fraction: float | None = None,
    nvir_active: int | Sequence[int] | None = None,
) -> tuple[Any, Any]:
    """Choose the natural virtual orbitals that matter: return the indices of the frozen orbitals, and all orbitals
    [nao, nmo].

    Virtual natural orbitals are kept if their occupations, which count both spins, exceed `threshold`; or so many that
    their occupations add up to at most `fraction` of all; or `nvir_active`, for two spins also a pair of numbers. The
    arguments are those of PySCF's ``make_fno`` (thresh, pct_occ, nvir_act). The indices contain the orbitals that were
    frozen before. Occupied orbitals stay as they were, the kept virtual ones diagonalise the Fock matrix, and the
    frozen ones come last. For two spins both results are lists of two arrays. The density must be unrelaxed.

    C. Sosa, J. Geertsen, G. W. Trucks, R. J. Bartlett, J. A. Franz, Chem. Phys. Lett. 159, 148 (1989); A. G. Taube and
    R. J. Bartlett, J. Chem. Phys. 128, 164101 (2008).
    """
    count = len(density.spins)
    kept: list[Any] = list(np.broadcast_to(nvir_active, count)) if nvir_active is not None else [None] * count
    chosen = [_one_spin(spin, p, threshold, fraction, n) for spin, p, n in zip(density.spins, density.per_spin, kept)]
    if count == 1:
        return chosen[0]
    return [frozen for frozen, _ in chosen], [coefficients for _, coefficients in chosen]


def _one_spin(
    spin: SpinOrbitals, density: np.ndarray, threshold: float, fraction: float | None, nvir_active: int | None
) -> tuple[np.ndarray, np.ndarray]:
    virtual = spin.active_vir
    occupations, vectors = np.linalg.eigh(2 * density[np.ix_(virtual, virtual)])
    occupations, vectors = occupations[::-1], vectors[:, ::-1]
    keep = _number_kept(occupations, threshold, fraction, nvir_active)
    inside = vectors[:, :keep]
    _, canonical = np.linalg.eigh(inside.T @ (spin.energies[virtual, None] * inside))
    c, frozen = spin.coefficients, ~spin.active
    parts = (
        c[:, spin.occupied & frozen],
        c[:, spin.active_occ],
        c[:, virtual] @ inside @ canonical,
        c[:, virtual] @ vectors[:, keep:],
        c[:, ~spin.occupied & frozen],
    )
    core, correlated = parts[0].shape[1], spin.nocc + keep
    return np.array([*range(core), *range(correlated, spin.nmo)], dtype=int), np.hstack(parts)


def _number_kept(occupations: np.ndarray, threshold: float, fraction: float | None, nvir_active: int | None) -> int:
    """Number of virtual orbitals that stay active, for occupations in descending order."""
    if nvir_active is not None:
        return min(len(occupations), int(nvir_active))
    if fraction is None:
        return int(np.count_nonzero(occupations > threshold))
    reached = np.cumsum(occupations / occupations.sum())
    return int(np.count_nonzero((reached <= fraction) | np.isclose(reached, fraction)))
