"""The densities of a fitted energy: pairs of symmetric matrices, and one of each pair in terms of a few orbitals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from pyscf import gto

from trnqc.errors import InputError

# Eigenvalues of a density below this share of the largest are rounding errors.
NEGLIGIBLE = 1e-14
# A density lies in the space of orbitals if what is outside is below this share of its largest element.
OUTSIDE = 1e-13


@dataclass(frozen=True, eq=False)
class DensityPair:
    """Two densities D1 and D2 [n, nao, nao] of one spin case, and the factor of their exchange.

    n = 1 stands for spin-summed matrices, with the factor 1/2; n = 2 for those of alpha and beta electrons, with the
    factor 1.
    """

    first: np.ndarray
    second: np.ndarray
    exchange: float

    @classmethod
    def of(cls, mol: gto.Mole, d1: Any, d2: Any) -> DensityPair:
        """Check densities [nao, nao] or [2, nao, nao]."""
        nao = mol.nao_nr()
        first, second = (np.asarray(d, dtype=np.float64) for d in (d1, d2))
        if first.shape != second.shape or first.shape not in ((nao, nao), (2, nao, nao)):
            raise InputError(
                f"expected two densities [{nao}, {nao}] or [2, {nao}, {nao}], found {list(first.shape)} and "
                f"{list(second.shape)}"
            )
        for name, one in (("d1", first), ("d2", second)):
            scale = np.abs(one).max(initial=0.0)
            if not np.isfinite(scale):
                raise InputError(f"{name} has elements that are not finite: the step that computed it has failed")
            if np.abs(one - one.swapaxes(-1, -2)).max(initial=0.0) > 1e-8 * scale:
                raise InputError(f"expected symmetric densities, but {name} differs from its transpose")
        factor = 0.5 if first.ndim == 2 else 1.0
        return cls(first.reshape(-1, nao, nao), second.reshape(-1, nao, nao), factor)

    @property
    def totals(self) -> tuple[np.ndarray, np.ndarray]:
        """D1 and D2 summed over spins, [nao, nao]."""
        return self.first.sum(axis=0), self.second.sum(axis=0)


@dataclass(frozen=True, eq=False)
class SpinDensities:
    """The densities of one spin: W diag(w) W^T of low rank r, with orthonormal columns W [nao, r], and another one.

    `other` is the other density A [nao, nao], or alpha [r, r] if A is W alpha W^T, which `inside` states.
    """

    orbitals: np.ndarray
    occupations: np.ndarray
    other: np.ndarray
    inside: bool

    @property
    def rank(self) -> int:
        return len(self.occupations)


def by_spin(pair: DensityPair) -> tuple[int, list[SpinDensities]]:
    """Write one density of each spin in terms of orbitals: D1 (0) or D2 (1), whichever has lower rank."""
    choices = [[_in_orbitals(density) for density in stack] for stack in (pair.first, pair.second)]
    ranks = [sum(len(w) for w, _ in spins) for spins in choices]
    which = int(ranks[1] < ranks[0])
    others = (pair.second, pair.first)[which]
    return which, [_spin(w, c, other) for (w, c), other in zip(choices[which], others)]


def _in_orbitals(density: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the eigenvalues of a density that are not negligible, and their eigenvectors."""
    w, c = np.linalg.eigh((density + density.T) / 2)
    large = np.abs(w) > NEGLIGIBLE * np.abs(w).max(initial=0.0)
    return w[large], c[:, large]


def _spin(w: np.ndarray, c: np.ndarray, other: np.ndarray) -> SpinDensities:
    inner = c.T @ other @ c
    outside = np.abs(other - c @ inner @ c.T).max(initial=0.0)
    inside = bool(len(w) < len(other) and outside <= OUTSIDE * np.abs(other).max(initial=0.0))
    return SpinDensities(c, w, inner if inside else other, inside)
