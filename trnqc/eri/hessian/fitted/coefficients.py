"""Fitted coefficients of densities: V^-1 (P|ij) for pairs of an orbital and a function, and for whole densities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trnqc.eri.fitting.fitted_integrals import COLUMNS, metric_factor
from trnqc.eri.gradient.fitted.densities import SpinDensities
from trnqc.eri.gradient.fitted.half_transform import ComputedRows, half_transformed
from trnqc.eri.hessian.fitted.integral_derivatives import IntegralDerivatives
from trnqc.fitted.metric import MetricFactor


@dataclass(frozen=True, eq=False)
class FittedCoefficients:
    """Fitted coefficients of occupied orbitals X [nao, nocc] of each spin, with densities X X^T.

    `half` is V^-1 (P|i u) [naux, nocc, nao] of each spin (arrays without rows if not wanted), and `total` is V^-1 g
    [naux], with g of the spin-summed density.
    """

    orbitals: list[np.ndarray]
    half: list[np.ndarray]
    total: np.ndarray
    metric: MetricFactor

    @classmethod
    def of(
        cls, derivatives: IntegralDerivatives, orbitals: Sequence[np.ndarray], with_k: bool, threads: int
    ) -> FittedCoefficients:
        """Compute the coefficients of orbitals X. with_k: whether `half` is wanted."""
        mol, auxmol, omega = derivatives.mol, derivatives.auxmol, derivatives.omega
        density = sum(x @ x.T for x in orbitals)
        spins = [SpinDensities(x, np.ones(x.shape[1]), density, False) for x in orbitals] if with_k else []
        with mol.with_range_coulomb(omega), auxmol.with_range_coulomb(omega):
            metric = metric_factor(mol, auxmol)
            half, projections = half_transformed(ComputedRows(mol, auxmol), spins, [density], threads)
        total = metric.solve(projections.T.copy(), COLUMNS, threads)[:, 0]
        return cls(list(orbitals), [metric.solve(one, COLUMNS, threads) for one in half], total, metric)

    @property
    def density(self) -> np.ndarray:
        """The spin-summed density, [nao, nao]."""
        return np.sum([x @ x.T for x in self.orbitals], axis=0)
