"""Quadratures of ring correlation: exponential sums for 1/x with a bound on their error, and imaginary frequencies."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from scipy import interpolate, optimize

from trnqc.errors import InputError, NotConverged

MOST_POINTS = 24
"""Points beyond which rounding in the exponential sums of fp64 outweighs what another point gains."""
GRID = 20
"""Places per point of the sum at which its error is minimised, evenly spaced in log x."""

SHORTEST = 10.0
"""Smallest highest / lowest that is fitted: below it the fit is ill-conditioned, and a wider interval costs a point."""


@dataclass(frozen=True, eq=False)
class ExponentialSum:
    """An approximation 1/x = sum_k weights[k] exp(-exponents[k] x) for x in an interval; both are positive, in units of
    1/x.

    `relative_error` is the largest |1 - x sum_k weights[k] exp(-exponents[k] x)| in the interval.
    """

    exponents: np.ndarray
    weights: np.ndarray
    relative_error: float

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Evaluate the sum."""
        return np.exp(-np.multiply.outer(x, self.exponents)) @ self.weights


def exponential_sum(lowest: float, highest: float, tolerance: float) -> ExponentialSum:
    """Find a short exponential sum for 1/x in an interval 0 < lowest <= highest, of relative error `tolerance` at
    most.

    Almlöf, Chem. Phys. Lett. 181, 319 (1991) writes 1/x as the Laplace integral of exp(-x t), and Häser and Almlöf, J.
    Chem. Phys. 96, 489 (1992) fit its quadrature by least squares. Here the relative error is fitted in log x, since it
    bounds the relative error of a sum of positive terms over x. Scaling the interval scales the solution: the sum is
    fitted on [1, highest / lowest]. Raises InputError if the interval is empty or reaches zero; NotConverged if
    MOST_POINTS points do not reach the tolerance.

    >>> total = exponential_sum(1.0, 10.0, 1e-3)
    >>> bool(abs(total(2.0) - 0.5) < 0.5e-3), total.relative_error <= 1e-3
    (True, True)
    """
    if not 0 < lowest <= highest < np.inf:
        raise InputError(f"an interval of positive numbers was expected, got [{lowest:.6g}, {highest:.6g}]")
    ratio = max(highest / lowest, SHORTEST)
    for points in range(1, MOST_POINTS + 1):
        unit = _fitted(points, round(float(ratio), 6))
        if unit.relative_error <= tolerance:
            return ExponentialSum(unit.exponents / lowest, unit.weights / lowest, unit.relative_error)
    raise NotConverged(
        f"{MOST_POINTS} points do not approximate 1/x on [{lowest:.6g}, {highest:.6g}] to {tolerance:.1e}: "
        "freeze the core, whose orbitals widen the interval, or ask for less"
    )


@functools.lru_cache(maxsize=256)
def _fitted(points: int, ratio: float) -> ExponentialSum:
    """The least-squares sum on [1, ratio], its exponents ascending."""
    x = np.geomspace(1.0, ratio, GRID * points + 1)

    def terms(parameters: np.ndarray) -> np.ndarray:
        logs = parameters.reshape(2, -1)
        return x[:, None] * np.exp(logs[1] - np.exp(logs[0]) * x[:, None])

    def error(parameters: np.ndarray) -> np.ndarray:
        return terms(parameters).sum(axis=1) - 1

    def jacobian(parameters: np.ndarray) -> np.ndarray:
        there, exponents = terms(parameters), np.exp(parameters[:points])
        return np.hstack([-exponents * x[:, None] * there, there])

    fit = optimize.least_squares(
        error, _start(points, ratio), jacobian, method="lm", xtol=1e-15, ftol=1e-15, gtol=1e-15, max_nfev=400
    )
    exponents, weights = np.exp(fit.x.reshape(2, -1))
    order = np.argsort(exponents)
    exponents, weights = exponents[order], weights[order]
    fine = np.geomspace(1.0, ratio, 8 * GRID * points)
    total = ExponentialSum(exponents, weights, 0.0)
    return ExponentialSum(exponents, weights, float(np.abs(1 - fine * total(fine)).max()))


def _start(points: int, ratio: float) -> np.ndarray:
    """Logarithms of exponents and weights to start from.

    They are nearly smooth functions of (k + 1/2) / points that hardly change with the number of points, so the sum with
    one point fewer is continued linearly. The shortest sums start from the trapezoidal rule for the integral of
    exp(s - x exp(s)) over s.
    """
    if points < 4:
        s = np.linspace(np.log(0.5 / ratio), np.log(1.0 + points / 2), points + 2)[1:-1]
        return np.concatenate([s, s + np.log(s[-1] - s[0] + 1) - np.log(points)])
    shorter = _fitted(points - 1, ratio)
    logs = np.log([shorter.exponents, shorter.weights])
    there = (np.arange(points - 1) + 0.5) / (points - 1)
    return interpolate.make_interp_spline(there, logs, k=1, axis=1)((np.arange(points) + 0.5) / points).ravel()


def frequencies(count: int, scale: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Legendre points and weights for an integral over imaginary frequencies from 0 to infinity, Hartree.

    The points x in [-1, 1] become omega = scale (1 + x) / (1 - x), see Ren et al., New J. Phys. 14, 053020 (2012),
    appendix C.
    """
    x, w = np.polynomial.legendre.leggauss(count)
    return scale * (1 + x) / (1 - x), 2 * scale * w / (1 - x) ** 2
