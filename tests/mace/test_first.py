"""The convolution of the first layer, by elements, against that of any layer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.mace import edges_oracle as oracle
from tests.mace.edge_runs import convolve, gradients
from trnqc.mace.edges.first.kernels import FirstConvolution, applies, hidden_network
from trnqc.mace.edges.geometry.kernels import GeometryKernels
from trnqc.mace.edges.graph import SortedEdges
from trnqc.mace.edges.kernels import LayerConvolution
from trnqc.mace.edges.splines.tables import spline_tables
from trnqc.mace.model import Convolution, RadialBasis, Transform

AGNESI = Transform("agnesi", (1.0805, 0.9183, 4.5791), oracle.RADII)
# Channels, highest degree, basis, widths of the hidden layers, and further options of the network.
CASES = {
    "one hidden layer": (5, 2, oracle.bessel(), (8,), {}),
    "whole vectors": (16, 3, oracle.bessel(cutoff_on_weights=True), (9, 32), {"norm": True}),
    "pairs of elements": (17, 1, oracle.bessel(4, AGNESI, cutoff_on_weights=True), (8, 19), {"elements": 3}),
}
# Errors relative to the largest result: rounding of sums of about a hundred terms in another order.
TOLERANCE = {"f64": 1e-13, "f32": 5e-6}
# Numbers of edges of the nodes. Twelve nodes have moments at a time.
COUNTS = {"no nodes": [], "one edge": [0, 1], "13 nodes": [7, 0, 41, 1, 50, 3, 2, 97, 0, 5, 6, 4, 9]}


def convolution(case: str) -> tuple[Convolution, RadialBasis]:
    channels, degree, basis, hidden, options = CASES[case]
    problem = oracle.problem((0,), channels, degree)
    return Convolution(problem, oracle.network(basis.size, hidden, problem.weight_numel, **options)), basis


def results(
    layer: FirstConvolution | LayerConvolution,
    geometry: GeometryKernels,
    edges: SortedEdges,
    sent: np.ndarray,
    threads: int = 1,
) -> tuple[np.ndarray, ...]:
    """Sums and gradients of harmonics and lengths."""
    values, rng = geometry.forward(edges), np.random.default_rng(2)
    x = np.zeros((edges.nodes, 1, layer.channels), layer.dtype)
    x[:, 0, : sent.shape[1]] = sent[edges.elements]
    z = np.full((edges.nodes, layer.layout.dims[2], layer.channels), np.nan, layer.dtype)
    convolve(layer, edges, values, x, z, threads)
    g_z = rng.normal(size=z.shape).astype(layer.dtype)
    g_z[:, :, sent.shape[1] :] = 0
    g_y, g_r = np.ones((edges.rows, layer.layout.dims[1]), layer.dtype), np.ones(edges.rows, layer.dtype)
    gradients(layer, edges, values, x, g_z, g_y, g_r, threads)
    # The gradient of the first harmonic, which is constant, is not used.
    return z, g_y[:, 1:], g_r


def relative(ours: np.ndarray, exact: np.ndarray) -> float:
    return float(np.max(np.abs(ours - exact), initial=0)) / max(float(np.max(np.abs(exact), initial=0)), 1e-300)


@pytest.mark.parametrize(("dtype", "splined"), [("f32", False), ("f64", False), ("f64", True)])
@pytest.mark.parametrize("case", CASES)
def test_results_are_those_of_any_layer(case, dtype, splined):
    block, basis = convolution(case)
    sent, present = np.random.default_rng(1).normal(size=(3, CASES[case][0])), [0, 2]
    tables = spline_tables([hidden_network(block.weights)], basis, present, 3, 1e-6, dtype) if splined else None
    first, exact = FirstConvolution(block, basis, sent, present, dtype, tables), LayerConvolution(block, basis, dtype)
    values, exact_values = (
        GeometryKernels(b, first.layout.degree, dtype) for b in (tables.knots if tables else basis, basis)
    )
    for counts in COUNTS.values():
        edges = oracle.random_edges(counts)
        edges = replace(edges, elements=edges.elements // 2 * 2)
        ours = results(first, values, edges, sent)
        pairs = zip(ours, results(exact, exact_values, edges, sent))
        # Splines of the hidden layer have their tolerance; sums of weights are larger than the norm by a few times.
        assert all(relative(*pair) < (2e-5 if splined else TOLERANCE[dtype]) for pair in pairs)
        assert all(np.array_equal(a, b) for a, b in zip(ours, results(first, values, edges, sent, threads=3)))


def test_convolutions_that_are_left_to_the_other_programs():
    block, _ = convolution("one hidden layer")
    assert applies(block, 3) and not applies(block, 40)
    wide = oracle.problem((0, 1), 5, 2)
    assert not applies(Convolution(wide, oracle.network(6, (8,), wide.weight_numel)), 3)
    count = block.problem.weight_numel
    for network in (oracle.network(6, (), count), oracle.network(6, (8,), count, bias=True)):
        assert not applies(replace(block, weights=network), 3)
