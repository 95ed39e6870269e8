"""The interface of density-fitted J and K on a backend, which `trnqc.backends.base.Backend.fitted_jk` returns."""

from __future__ import annotations

from typing import Protocol

import numpy as np


class FittedJK(Protocol):
    """Fitted integrals B[Q, pairs] on a device, for the J and K of many densities.

    Attributes
    ----------
    label
        What computes J and K, in words.
    precision
        The precision of the products.
    rounding
        The relative error with which one number is represented.
    promised
        The largest error of a sum of products that the precision promises, relative to the sum of their magnitudes.
    """

    @property
    def label(self) -> str: ...

    @property
    def precision(self) -> str: ...

    @property
    def rounding(self) -> float: ...

    @property
    def promised(self) -> float: ...

    def coulomb(self, densities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Compute J of packed densities.

        Parameters
        ----------
        densities [n, pairs]
            D_ij + D_ji for pairs i > j, and D_ii, float64.

        Returns
        -------
        vj : ndarray [n, pairs]
            J_ij = Σ_Q B[Q, ij] d_Q, float64.
        fitted : ndarray [n, naux]
            d_Q = Σ_ij B[Q, ij] D_ij, as the device computed it, float64.
        """
        ...

    def exchange(self, orbitals: np.ndarray) -> np.ndarray:
        """Compute K = Σ_Q B_Q C Cᵀ B_Q, [nao, nao] float64.

        Parameters
        ----------
        orbitals [nao, nocc]
            C, the orbitals times the square roots of their occupations, float64.
        """
        ...
