"""Splined weights against exact ones, and energies against their own gradients."""

from __future__ import annotations

import functools
import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy.interpolate import BSpline

from tests.mace import edges_oracle as oracle
from tests.mace.edge_runs import convolve, gradients
from trnqc.errors import InputError
from trnqc.mace.edges.geometry.kernels import GeometryKernels
from trnqc.mace.edges.geometry.knots import DEGREE, Knots, b_splines, slopes
from trnqc.mace.edges.graph import SortedEdges
from trnqc.mace.edges.kernels import LayerConvolution, spline_network
from trnqc.mace.edges.splines import fitting
from trnqc.mace.edges.splines import tables as spline_module
from trnqc.mace.edges.splines.fitting import SHORTEST, Fit
from trnqc.mace.edges.splines.tables import SplineTables, spline_tables
from trnqc.mace.model import Convolution, RadialBasis, Transform

AGNESI = Transform("agnesi", (1.0805, 0.9183, 4.5791), oracle.RADII)
# Basis, elements in the first layer, and the elements that have tables.
CASES = {
    "one table": (oracle.bessel(4), 0, [0]),
    "unordered pairs": (oracle.bessel(4, AGNESI), 0, [0, 2]),
    "ordered pairs": (oracle.bessel(4, None, cutoff_on_weights=True), 3, [1, 2]),
}
TOLERANCE = 1e-5


def test_b_splines_are_scipys():
    t = np.linspace(0, 1, 7, endpoint=False)
    knots = np.arange(-DEGREE, DEGREE + 2.0)
    for k, (value, slope) in enumerate(zip(b_splines(t), slopes(t))):
        exact = BSpline.basis_element(knots[k : k + DEGREE + 2])
        assert np.allclose(value, exact(t), rtol=0, atol=1e-15)
        assert np.allclose(slope, exact.derivative()(t), rtol=0, atol=1e-14)


@functools.cache
def convolution(case: str) -> Convolution:
    basis, elements, _ = CASES[case]
    problem = oracle.problem((0, 1), 5, 2)
    return Convolution(problem, oracle.network(basis.size, (8, 8), problem.weight_numel, elements=elements))


@functools.cache
def tables(case: str) -> SplineTables:
    basis, _, present = CASES[case]
    networks = [spline_network(convolution(case), "f64")]
    return spline_tables(networks, basis, present, 3, TOLERANCE, "f64")


@functools.cache
def kernels(case: str, exact: bool) -> tuple[GeometryKernels, LayerConvolution]:
    basis: RadialBasis = CASES[case][0]
    splines = None if exact else tables(case)
    geometry = GeometryKernels(basis if splines is None else splines.knots, 2, "f64")
    return geometry, LayerConvolution(convolution(case), basis, "f64", splines)


def edges_of(case: str) -> SortedEdges:
    edges = oracle.random_edges([30, 0, 25, 9, 1], r_max=5.0)
    return replace(edges, elements=np.array(CASES[case][2])[edges.elements % len(CASES[case][2])])


def energy(case: str, edges: SortedEdges, exact: bool = False) -> tuple[float, np.ndarray]:
    """A sum of the results with random factors, and its gradient with respect to the vectors of the edges."""
    geometry, layer = kernels(case, exact)
    rng, values = np.random.default_rng(0), geometry.forward(edges)
    x, factors = (rng.normal(size=(edges.nodes, layer.layout.dims[n], layer.channels)) for n in (0, 2))
    z = np.empty_like(factors)
    convolve(layer, edges, values, x, z)
    g_y, g_r, g_vectors = np.zeros_like(values.harmonics), np.zeros(edges.rows), np.zeros((edges.count, 3))
    gradients(layer, edges, values, x, factors, g_y, g_r)
    geometry.reverse(edges, values, g_y, g_r, g_vectors)
    return float((z * factors)[:, :, : layer.layout.channels].sum()), g_vectors


@pytest.mark.parametrize("case", CASES)
def test_errors_are_within_the_tolerance(case):
    edges = edges_of(case)
    assert tables(case).error <= TOLERANCE
    assert np.linalg.norm(edges.vectors, axis=1).min() >= SHORTEST
    (spline, gradient), (exact, exact_gradient) = energy(case, edges), energy(case, edges, exact=True)
    assert spline != exact
    assert np.abs(gradient - exact_gradient).max() < 2 * TOLERANCE * np.abs(exact_gradient).max()


def largest_error(case: str, found: SplineTables, points: int) -> float:
    """The relative error of values or derivatives at points of each interval, by SciPy and the oracle."""
    basis, _, present = CASES[case]
    network, knots = spline_network(convolution(case), "f64"), found.knots
    h = knots.r_max / knots.intervals
    r = (np.arange(knots.intervals)[:, None] + (np.arange(points) + 0.3) / points).ravel() * h
    r, step = r[r >= SHORTEST], 1e-5
    errors = []
    for a, b in itertools.product(present, present):
        pair = SortedEdges(
            np.array([0, len(r), len(r)]), np.ones(len(r), int), np.zeros(len(r), int), r, np.array([a, b])
        )
        up, exact, down = (oracle.weights(network, basis, pair, r + s * step) for s in (1, 0, -1))
        number = found.pairs[a * found.elements + b] if found.elements else 0
        spline = BSpline(h * np.arange(-DEGREE, knots.rows + 1), found.tables[0][number], DEGREE)
        for value, expected in ((spline(r), exact), (spline.derivative()(r), (up - down) / (2 * step))):
            errors.append(np.linalg.norm(value - expected, axis=1).max() / np.linalg.norm(expected, axis=1).max())
    return max(errors)


@pytest.mark.parametrize("case", CASES)
def test_the_error_of_tables_is_the_largest_one_between_the_knots(case):
    """Tables measure errors at five places of an interval; 40 others have hardly larger ones."""
    exact = largest_error(case, tables(case), 40)
    assert exact <= TOLERANCE
    assert tables(case).error == pytest.approx(exact, rel=0.1)


def test_tables_have_as_many_intervals_as_the_tolerance_asks_for():
    basis, _, present = CASES["one table"]
    networks, counts = [spline_network(convolution("one table"), "f64")], []
    for tolerance in (1e-3, 1e-5, 1e-8):
        found = spline_tables(networks, basis, present, 3, tolerance, "f64")
        assert largest_error("one table", found, 10) < 1.1 * found.error + 1e-9 and found.error <= tolerance
        counts.append(found.knots.intervals)
    assert counts[0] <= counts[1] < counts[2]


@pytest.mark.parametrize("case", CASES)
def test_forces_are_the_gradient_of_the_splined_energy(case):
    edges = edges_of(case)
    # Edges below SHORTEST and beyond the cutoff distance are covered too.
    edges.vectors[:2] *= np.array([[0.1], [2.0]]) / np.linalg.norm(edges.vectors[:2], axis=1)[:, None] * [[1], [3]]
    change = np.random.default_rng(1).normal(size=edges.vectors.shape)
    change[0] *= 1e-3

    def difference(h: float) -> float:
        up, down = (energy(case, replace(edges, vectors=edges.vectors + s * h * change))[0] for s in (1, -1))
        return (up - down) / (2 * h)

    expected = (4 * difference(5e-4) - difference(1e-3)) / 3
    assert (energy(case, edges)[1] * change).sum() == pytest.approx(expected, rel=1e-6)


def test_tables_of_pairs():
    unordered, ordered = tables("unordered pairs"), tables("ordered pairs")
    assert [len(t.tables[0]) for t in (tables("one table"), unordered, ordered)] == [1, 3, 4]
    assert unordered.covers(np.array([0, 2, 2])) and not unordered.covers(np.array([0, 1]))
    assert ordered.covers(np.array([2])) and not ordered.covers(np.array([0]))
    assert tables("one table").covers(np.array([0, 1, 2]))


def test_tolerances_that_cannot_be_met(monkeypatch):
    basis, networks = CASES["one table"][0], [spline_network(convolution("one table"), "f64")]
    for tolerance, dtype in ((1e-7, "f32"), (1e-14, "f64"), (np.nan, "f64")):
        with pytest.raises(InputError, match="rounding error"):
            spline_tables(networks, basis, [0], 3, tolerance, dtype)
    with monkeypatch.context() as patch:
        # The table of one pair is fitted again, with the intervals that another one needs, and its error is larger.
        ordered = [spline_network(convolution("ordered pairs"), "f64")]
        found = iter(
            [Fit(Knots(5.0, 48), np.zeros((55, 1)), 1e-6), *[Fit(Knots(5.0, 64), np.zeros((71, 1)), 1e-6)] * 3]
        )
        patch.setattr(spline_module, "fit", lambda *_: next(found))
        patch.setattr(spline_module, "refit", lambda _, knots: Fit(knots, np.zeros((71, 1)), 2e-5))
        with pytest.raises(
            InputError, match=r"64 intervals have a relative error of 2.0e-05, above the tolerance 1.0e-05"
        ):
            spline_tables(ordered, CASES["ordered pairs"][0], [0, 1], 3, 1e-5, "f64")
    monkeypatch.setattr(fitting, "INTERVALS", (16, 24))
    with pytest.raises(InputError, match=r"24 intervals have a relative error of .* above the tolerance 1.0e-12"):
        spline_tables(networks, basis, [0], 3, 1e-12, "f64")
