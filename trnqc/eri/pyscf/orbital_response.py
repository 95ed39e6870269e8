"""The response of Fock matrices to changes of the occupied orbitals, which coupled-perturbed equations iterate.

changes of orbitals -> J and K of all changes of densities at once, and the kernel of exchange and correlation
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Matrices = list[np.ndarray]


@dataclass(frozen=True, eq=False)
class OrbitalResponse:
    """The function `fx` of PySCF's `solve_mo1`, for RHF and RKS (one set of orbitals) or for UHF and UKS (two).

    Parameters
    ----------
    coefficients : sequence of ndarray [nao, nmo]
        All orbitals of each spin.
    occupied : sequence of ndarray [nao, nocc]
        The occupied ones.
    jk : callable
        Takes densities [spins, n, nao, nao], returns the two-electron part of the Fock matrices, of the same shape.
    potential : callable, optional
        Takes changes U [n, nao, nocc] of each spin and returns the products of the potential's changes with the
        occupied orbitals, as `PotentialResponse` does.
    """

    coefficients: Sequence[np.ndarray]
    occupied: Sequence[np.ndarray]
    jk: Callable[[np.ndarray], np.ndarray]
    potential: Callable[[Matrices], Matrices] | None

    def __call__(self, mo1: Any) -> np.ndarray:
        """Return C^T F' C_occ for first-order orbitals of all perturbations, in the shape of mo1."""
        mo1 = np.asarray(mo1)
        sizes = [c.shape[1] * o.shape[1] for c, o in zip(self.coefficients, self.occupied)]
        flat = np.split(mo1.reshape(-1, sum(sizes)), np.cumsum(sizes)[:-1], axis=1)
        # Closed shells have two electrons in an orbital.
        electrons = 2.0 if len(sizes) == 1 else 1.0
        changes = [
            electrons * np.matmul(c, one.reshape(len(one), c.shape[1], -1)) for c, one in zip(self.coefficients, flat)
        ]
        products = self._two_electron(changes)
        if self.potential:
            products = [a + b for a, b in zip(products, self.potential(changes))]
        parts = [np.matmul(c.T, p).reshape(len(p), -1) for c, p in zip(self.coefficients, products)]
        return np.concatenate(parts, axis=1).reshape(mo1.shape)

    def _two_electron(self, changes: Matrices) -> Matrices:
        half = np.array([np.matmul(u, o.T) for u, o in zip(changes, self.occupied)])
        return [np.matmul(v, o) for v, o in zip(self.jk(half + half.swapaxes(2, 3)), self.occupied)]
