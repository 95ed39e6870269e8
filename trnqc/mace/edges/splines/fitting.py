"""Fit B-splines to the weights of networks, with as many intervals as a tolerance asks for.

lengths -> weights and derivatives of all layers (sampling.py) -> least squares -> tables, error between the samples
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy.linalg

from trnqc.errors import InputError
from trnqc.mace.edges.geometry.knots import Knots, b_splines, slopes
from trnqc.mace.edges.splines.sampling import Sampled

# Samples in an interval. Twice as many unknowns as equations already make the fit stable.
SAMPLES = 4
# Weight of derivatives in the fit, in units of the length of an interval.
SLOPE = 0.3
# Shortest distance in Angstrom for which the error is bounded. The splines continue to 0. H2 has 0.74 Angstrom.
SHORTEST = 0.7
# Numbers of intervals that are tried. The error decreases by about a factor of 10 from one to the next.
INTERVALS = (48, 64, 96, 128, 160, 192, 256, 320, 384, 512, 768, 1024)


@dataclass(frozen=True, eq=False)
class Fit:
    """Splines of weights: float64 coefficients [rows, columns] and the largest error of weights or derivatives.

    The error is over lengths from SHORTEST to r_max, relative to the largest weights or derivatives there, as norms
    over the columns.
    """

    knots: Knots
    table: np.ndarray
    error: float


def fit(weights: Callable[[np.ndarray], Sampled], r_max: float, tolerance: float, least: int = 0) -> Fit:
    """Fit splines to functions of the length (Angstrom, 0 to r_max), with at least `least` intervals.

    `weights` returns values and derivatives [lengths, columns], whose relative errors are at most `tolerance`. Raises
    InputError if the largest number of intervals does not meet the tolerance.
    """
    errors = []
    for intervals in (n for n in INTERVALS if n >= least):
        knots = Knots(r_max, intervals)
        table = _table(knots, weights)
        errors.append(_error(knots, table, weights))
        if errors[-1] <= tolerance:
            return Fit(knots, table, errors[-1])
    raise missed(INTERVALS[-1], min(errors), tolerance)


def missed(intervals: int, error: float, tolerance: float) -> InputError:
    """The error of splines whose relative error is above the tolerance."""
    return InputError(
        f"splines with {intervals} intervals have a relative error of {error:.1e}, above the tolerance "
        f"{tolerance:.1e}: use a larger spline_tolerance, or radial='exact'"
    )


def refit(weights: Callable[[np.ndarray], Sampled], knots: Knots) -> Fit:
    """Fit splines to other functions with known knots."""
    table = _table(knots, weights)
    return Fit(knots, table, _error(knots, table, weights))


def _table(knots: Knots, weights: Callable[[np.ndarray], Sampled]) -> np.ndarray:
    """The coefficients with the least squared error of values and derivatives at all samples."""
    w, dw = weights(_samples(knots, np.arange(SAMPLES)))
    q, upper = factors(knots)
    return scipy.linalg.solve_triangular(upper, q.T @ np.concatenate([w, SLOPE * knots.r_max / knots.intervals * dw]))


@lru_cache(maxsize=1)
def factors(knots: Knots) -> tuple[np.ndarray, np.ndarray]:
    """Q and R of the B-splines and scaled derivatives at all samples, kept for the next table with these knots."""
    value, slope = _matrices(knots, _samples(knots, np.arange(SAMPLES)))
    q, upper = np.linalg.qr(np.concatenate([value, SLOPE * knots.r_max / knots.intervals * slope]))
    return q, upper


def _error(knots: Knots, table: np.ndarray, weights: Callable[[np.ndarray], Sampled]) -> float:
    """The relative error at points other than the points of the fit."""
    r = _samples(knots, np.arange(-0.5, SAMPLES))
    r = r[r >= SHORTEST]
    errors = []
    for matrix, exact in zip(_matrices(knots, r), weights(r)):
        difference = np.linalg.norm(matrix @ table - exact, axis=1).max(initial=0)
        errors.append(difference / max(np.linalg.norm(exact, axis=1).max(initial=0), np.finfo(np.float64).tiny))
    return float(max(errors))


def _samples(knots: Knots, places: np.ndarray) -> np.ndarray:
    """Lengths at the same places of all intervals, which are numbers between -0.5 and SAMPLES - 0.5."""
    t = (places + 0.5) / SAMPLES
    r = (np.arange(knots.intervals)[:, None] + t).ravel() * (knots.r_max / knots.intervals)
    # Radial functions are not evaluated at 0 and at r_max.
    return np.clip(r, 1e-3 * knots.r_max / knots.intervals, np.nextafter(knots.r_max, 0))


def _matrices(knots: Knots, r: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """B-splines and their derivatives at lengths, [lengths, rows]."""
    scale = knots.intervals / knots.r_max
    s = r * scale
    n = np.minimum(s.astype(np.int64), knots.intervals - 1)
    matrices = np.zeros((2, len(r), knots.rows))
    for k, (value, slope) in enumerate(zip(b_splines(s - n), slopes(s - n))):
        matrices[0, np.arange(len(r)), n + k] = value
        matrices[1, np.arange(len(r)), n + k] = slope * scale
    return matrices[0], matrices[1]
