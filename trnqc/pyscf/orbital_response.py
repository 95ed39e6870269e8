"""The response of Fock matrices to changes of the occupied orbitals, which coupled-perturbed equations iterate.

changes of orbitals -> terms: exact J and K, fitted J and K, exchange and correlation -> F' C
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Matrices = Sequence[np.ndarray]
# Takes changes U [n, nao, nocc] of the occupied orbitals C of each spin, and returns the products of the change of a
# part of the Fock matrices with C, of the same shapes. The change of the density is U C^T + C U^T.
Term = Callable[[Matrices], Matrices]


@dataclass(frozen=True, eq=False)
class OrbitalResponse:
    """The function `fx` of PySCF's `solve_mo1`, for RHF and RKS (one set of orbitals) or for UHF and UKS (two).

    All orbitals of a spin are [nao, nmo], the occupied ones [nao, nocc]; `terms` are the parts of the Fock matrices.
    """

    coefficients: Sequence[np.ndarray]
    occupied: Sequence[np.ndarray]
    terms: Sequence[Term]

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
        products = [np.zeros(u.shape) for u in changes]
        for term in self.terms:
            for product, addition in zip(products, term(changes)):
                product += addition
        parts = [np.matmul(c.T, p).reshape(len(p), -1) for c, p in zip(self.coefficients, products)]
        return np.concatenate(parts, axis=1).reshape(mo1.shape)


@dataclass(frozen=True, eq=False)
class DensityResponse:
    """J' C and K' C by way of changes of the density, with the occupied orbitals [nao, nocc] of each spin.

    `jk` takes densities [spins, n, nao, nao] and returns the two-electron part of the Fock matrices, of the same shape.
    """

    occupied: Sequence[np.ndarray]
    jk: Callable[[np.ndarray], np.ndarray]

    def __call__(self, changes: Matrices) -> list[np.ndarray]:
        """Return the products with the occupied orbitals, [n, nao, nocc] of each spin."""
        half = np.array([np.matmul(u, o.T) for u, o in zip(changes, self.occupied)])
        return [np.matmul(v, o) for v, o in zip(self.jk(half + half.swapaxes(2, 3)), self.occupied)]
