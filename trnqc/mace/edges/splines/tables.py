"""Tables of splines for the convolutions of a model, all with the same intervals.

networks -> weights at sample lengths, by pairs of elements where they depend on them -> fit (fitting.py) -> tables
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from trnqc.errors import InputError
from trnqc.mace.edges.geometry.kernels import GeometryKernels
from trnqc.mace.edges.geometry.knots import Knots
from trnqc.mace.edges.graph import SortedEdges
from trnqc.mace.edges.splines.fitting import Fit, factors, fit, missed, refit
from trnqc.mace.edges.splines.sampling import Sampled, sampled, sampled_density
from trnqc.mace.model import NodeDensity, RadialBasis, RadialNetwork

# Smallest tolerance for each type: sums of eight products have this relative error by rounding alone.
LEAST = {"f32": 2e-7, "f64": 1e-13}
# Function of lengths in Angstrom that returns values and derivatives, [lengths, columns].
Curves = Callable[[np.ndarray], Sampled]


@dataclass(frozen=True, eq=False)
class SplineTables:
    """Splines of the outputs of several networks, for each float64 [pairs, rows, columns].

    `pairs`, int64 [elements^2], has the number of the table of each pair of elements of receiver and sender, -1 for a
    pair without one. If no network depends on elements, there is one table, and the array has one number. `error` is
    the largest relative error of any table, see `fitting.Fit`.
    """

    knots: Knots
    pairs: np.ndarray
    tables: tuple[np.ndarray, ...]
    error: float

    @property
    def elements(self) -> int:
        """Number of elements of the model if there are tables by pair, else 0."""
        return 0 if len(self.pairs) == 1 else round(len(self.pairs) ** 0.5)

    def covers(self, elements: np.ndarray) -> bool:
        """Whether there is a table for each pair of some elements, int64."""
        if not self.elements:
            return True
        present = np.unique(elements)
        return bool((self.pairs.reshape(self.elements, -1)[np.ix_(present, present)] >= 0).all())


def depends_on_elements(functions: Sequence[RadialNetwork | NodeDensity], basis: RadialBasis) -> bool:
    """Whether pairs of elements have different weights, so that each pair has a table."""
    return basis.transform is not None or _ordered(functions)


def check_tolerance(tolerance: float, dtype: str) -> None:
    """Raise InputError for a relative tolerance of splines that is below the rounding error of a type."""
    if not tolerance >= LEAST[dtype]:
        raise InputError(
            f"spline_tolerance = {tolerance:.1e} is below the rounding error of {dtype}, {LEAST[dtype]:.0e}: use a "
            "larger tolerance, float64, or radial='exact'"
        )


def spline_tables(
    functions: Sequence[RadialNetwork | NodeDensity],
    basis: RadialBasis,
    elements: Sequence[int],
    count: int,
    tolerance: float,
    dtype: str,
) -> SplineTables:
    """Fit splines to the outputs of networks, and to the parts of edges in densities.

    `elements` are the numbers of the elements that occur, of `count` elements of the model; the splines will be
    evaluated in `dtype`. Raises InputError if weights and their derivatives cannot meet the relative tolerance.
    """
    check_tolerance(tolerance, dtype)
    # A structure without atoms has no pairs, but the kernels are passed tables too.
    pairs, numbers = _pairs(functions, basis, sorted(set(elements)) or [0], count)
    geometry = GeometryKernels(basis, 0, "f64")
    curves = [[partial(_curves, geometry, basis, function, pair) for pair in pairs] for function in functions]
    knots = Knots(basis.r_max, 0)
    fits: list[list[Fit]] = []
    for row in curves:
        fits.append([])
        for each in row:
            # All tables have the same intervals, at least as many as those before.
            fits[-1].append(fit(each, basis.r_max, tolerance, knots.intervals))
            knots = fits[-1][-1].knots
    fits = [[_with(knots, known, each) for known, each in zip(*rows)] for rows in zip(fits, curves)]
    factors.cache_clear()
    tables = tuple(np.stack([each.table for each in row]) for row in fits)
    # More intervals decrease the error of a fit down to rounding errors only, so that it is compared again.
    if (error := max(each.error for row in fits for each in row)) > tolerance:
        raise missed(knots.intervals, error, tolerance)
    return SplineTables(knots, numbers, tables, error)


def _with(knots: Knots, known: Fit, curves: Curves) -> Fit:
    return known if known.knots == knots else refit(curves, knots)


def _pairs(
    functions: Sequence[RadialNetwork | NodeDensity], basis: RadialBasis, elements: Sequence[int], count: int
) -> tuple[list[tuple[int, int]], np.ndarray]:
    """Pairs of elements that have different weights, and the number of each pair of elements among them."""
    if not depends_on_elements(functions, basis):
        return [(0, 0)], np.zeros(1, np.int64)
    ordered = _ordered(functions)
    pairs = [(a, b) for a in elements for b in elements if ordered or a <= b]
    numbers = np.full((count, count), -1, np.int64)
    for n, (a, b) in enumerate(pairs):
        numbers[a, b] = n
        if not ordered:
            numbers[b, a] = n
    return pairs, numbers.ravel()


def _ordered(functions: Sequence[RadialNetwork | NodeDensity]) -> bool:
    """Whether the weights of a pair of elements change when receiver and sender are exchanged."""
    return any((f.network if isinstance(f, NodeDensity) else f).sender is not None for f in functions)


def _curves(
    geometry: GeometryKernels,
    basis: RadialBasis,
    function: RadialNetwork | NodeDensity,
    pair: tuple[int, int],
    r: np.ndarray,
) -> Sampled:
    """The weights or the density of an edge at lengths r, and their derivatives."""
    vectors = np.zeros((len(r), 3))
    vectors[:, 0] = r
    zeros, starts = np.zeros(len(r), np.int64), np.array([0, len(r), len(r)])
    values = geometry.forward(SortedEdges(starts, zeros + 1, zeros, vectors, np.array(pair)))
    count = len(r)
    radial = values.radial[:count], values.slopes[:count]
    cutoff = values.cutoff[:count, 0], values.cutoff[:count, 1]
    if isinstance(function, NodeDensity):
        return sampled_density(function.network, basis, radial, cutoff, pair)
    return sampled(function, basis, radial, cutoff, pair)


def with_last_layer(network: RadialNetwork, weight: np.ndarray, bias: np.ndarray | None) -> RadialNetwork:
    """The network with other weights in its last layer."""
    return replace(network, layers=(*network.layers[:-1], replace(network.layers[-1], weight=weight, bias=bias)))
