"""Density matrices as sums of symmetric and antisymmetric parts, because the digestion of integrals needs these.

D = S + A with S = (D + D^T) / 2 gives J(D) = J(S) and K(D) = K(S) + K(A). The digestion returns a half H of each K:
K(S) = H + H^T, and K(A) = H - H^T.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from pyscf import lib

from trnqc.arrays import host_array
from trnqc.errors import InputError

# Antisymmetric elements up to this share of a density's largest element count as rounding errors.
ROUNDING = 1e-14


def checked(dm: Any, nao: int, hermi: int) -> np.ndarray:
    """Return densities as an array [..., nao, nao]; raise InputError for anything else, and for an unknown hermi."""
    dm = host_array(dm, "dm", "J and K are NumPy arrays; take .detach()")
    if hermi not in (0, 1, 2):
        raise InputError(f"hermi is 0, 1 or 2, found {hermi!r}")
    if dm.ndim < 2 or dm.shape[-2:] != (nao, nao):
        raise InputError(f"dm is [{nao}, {nao}] or [..., {nao}, {nao}] for this molecule, found {dm.shape}")
    if dm.dtype.kind not in "bfiuc":
        raise InputError(f"dm holds real or complex numbers, found {dm.dtype}")
    if not np.isfinite(dm).all():
        raise InputError("dm has elements that are not finite: the step that computed it has failed")
    return dm


@dataclass(frozen=True, eq=False)
class Parts:
    """Symmetric and antisymmetric parts [parts, nao, nao] of density matrices, without those that are zero.

    `signs` are 1 for symmetric and -1 for antisymmetric matrices; `owners` are the numbers of the densities they are
    parts of.
    """

    matrices: np.ndarray
    signs: np.ndarray
    owners: np.ndarray

    def __len__(self) -> int:
        return len(self.signs)

    def __getitem__(self, rows: slice) -> Parts:
        return Parts(self.matrices[rows], self.signs[rows], self.owners[rows])

    def add_coulomb(self, to: np.ndarray, j: np.ndarray) -> None:
        """Add the J [parts, nao, nao] of symmetric parts to the J of their densities."""
        for n in np.flatnonzero(self.signs > 0):
            to[self.owners[n]] += j[n]

    def add_exchange(self, to: np.ndarray, half: np.ndarray) -> None:
        """Add the K that belong to halves [parts, nao, nao] to the K of their densities."""
        for owner, sign, one in zip(self.owners, self.signs, half):
            to[owner] += one + sign * one.T


def split(dms: np.ndarray, with_k: bool, reach: np.ndarray, cutoff: float) -> Parts:
    """Split densities [n, nao, nao] into the parts that J, and K if it is wanted, depend on.

    Parameters
    ----------
    dms : ndarray [n, nao, nao]
        Real densities.
    with_k : bool
        Whether K is wanted; J depends on symmetric parts only.
    reach : ndarray [nao]
        For each orbital i, the largest sqrt((ij|ij)) over all orbitals j.
    cutoff : float
        Products of an integral and a density element below this are left out of K.

    Notes
    -----
    A density that is symmetric but for rounding errors counts as symmetric; otherwise each step of an SCF would treat
    two matrices where it needs one. An antisymmetric part A of D is left out in two cases. By Schwarz, all terms
    (ij|kl) A_jk are at most reach_j reach_k max|A_jk|: where that is below `cutoff`, the screening would drop each of
    them too. And where max|A| <= ROUNDING max|D|, K changes by at most ROUNDING times the Schwarz bound on K(D).
    """
    transposed = dms.transpose(0, 2, 1)
    kinds = [(1, (dms + transposed) / 2)]
    if with_k:
        kinds.append((-1, (dms - transposed) / 2))
    kept = [
        (sign, owner, part)
        for sign, parts in kinds
        for owner, part in enumerate(parts)
        if part.any() and (sign > 0 or not _negligible(part, dms[owner], reach, cutoff))
    ]
    matrices = np.array([part for _, _, part in kept]).reshape(-1, *dms.shape[1:])
    return Parts(matrices, *(np.array([row[n] for row in kept], np.int64) for n in (0, 1)))


def _negligible(antisymmetric: np.ndarray, dm: np.ndarray, reach: np.ndarray, cutoff: float) -> bool:
    size = np.abs(antisymmetric)
    return bool(size.max() <= ROUNDING * np.abs(dm).max() or (size * reach * reach[:, None]).max() < cutoff)


def is_symmetric(dm: np.ndarray) -> bool:
    """Return whether a density [nao, nao] equals its transpose but for rounding errors."""
    return bool(np.abs(dm - dm.T).max(initial=0) <= 2 * ROUNDING * np.abs(dm).max(initial=0))


def mirrored(vk: np.ndarray, hermi: int) -> np.ndarray:
    """Return K [n, nao, nao] as PySCF does, in place: with hermi 1 and 2 the lower triangle decides the upper one."""
    if hermi:
        for one in vk:
            lib.hermi_triu(one, hermi, inplace=True)
    return vk
