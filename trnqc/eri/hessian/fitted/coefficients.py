"""Fitted coefficients of densities: V^-1 (P|ij) for pairs of an orbital and a function, and for whole densities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trnqc.eri.fitting.fitted_integrals import COLUMNS, LowerSolver, MetricFactor
from trnqc.eri.gradient.fitted.densities import SpinDensities
from trnqc.eri.gradient.fitted.half_transform import Integrals, half_transformed
from trnqc.eri.hessian.fitted.integral_derivatives import IntegralDerivatives
from trnqc.host.thread_pool import single_threaded_pool


@dataclass(frozen=True, eq=False)
class Metric:
    """The metric V in factorised form: L with V = L L^T, or its eigenvectors divided by the square roots of its
    eigenvalues. Arrays [naux, ...] are solved for in parallel.
    """

    factor: MetricFactor
    threads: int

    def halved(self, rows: np.ndarray) -> np.ndarray:
        """Return L^-1 rows, so that u V^-1 v is the product of two halved arrays; rows may be overwritten."""
        flat = rows.reshape(len(rows), -1)
        columns = [(n, min(n + COLUMNS, flat.shape[1])) for n in range(0, flat.shape[1], COLUMNS)]
        result = self.factor.divide_out(flat, columns)
        return result.reshape(len(result), *rows.shape[1:])

    def solved(self, rows: np.ndarray) -> np.ndarray:
        """Return V^-1 rows; rows may be overwritten."""
        half = self.halved(rows)
        flat = half.reshape(len(half), -1)
        if not self.factor.is_lower:
            return (self.factor.matrix @ flat).reshape(-1, *rows.shape[1:])
        result = np.empty(flat.shape)

        def solve(first: int) -> None:
            part = slice(first, first + COLUMNS)
            block = np.ascontiguousarray(flat[::-1, part])
            self._upper.solve(block)
            result[:, part] = block[::-1]

        with single_threaded_pool(self.threads) as pool:
            list(pool.map(solve, range(0, flat.shape[1], COLUMNS)))
        return result.reshape(half.shape)

    @cached_property
    def _upper(self) -> LowerSolver:
        # Both indices of L^T in reverse order give a lower triangle.
        return LowerSolver.of(self.factor.matrix.T[::-1, ::-1])


@dataclass(frozen=True, eq=False)
class Coefficients:
    """Fitted coefficients of occupied orbitals X [nao, nocc] of each spin, with densities X X^T.

    `half` is V^-1 (P|i u) [naux, nocc, nao] of each spin (arrays without rows if not wanted), and `total` is V^-1 g
    [naux], with g of the spin-summed density.
    """

    orbitals: list[np.ndarray]
    half: list[np.ndarray]
    total: np.ndarray
    metric: Metric

    @classmethod
    def of(
        cls, derivatives: IntegralDerivatives, orbitals: Sequence[np.ndarray], with_k: bool, threads: int
    ) -> Coefficients:
        """Compute the coefficients of orbitals X. with_k: whether `half` is wanted."""
        mol, auxmol, omega = derivatives.mol, derivatives.auxmol, derivatives.omega
        density = sum(x @ x.T for x in orbitals)
        spins = [SpinDensities(x, np.ones(x.shape[1]), density, False) for x in orbitals] if with_k else []
        with mol.with_range_coulomb(omega), auxmol.with_range_coulomb(omega):
            metric = Metric(MetricFactor.of(mol, auxmol), threads)
            half, projections = half_transformed(Integrals(mol, auxmol), spins, [density], threads)
        total = metric.solved(projections.T.copy())[:, 0]
        return cls(list(orbitals), [metric.solved(one) for one in half], total, metric)

    @property
    def density(self) -> np.ndarray:
        """The spin-summed density, [nao, nao]."""
        return np.sum([x @ x.T for x in self.orbitals], axis=0)
