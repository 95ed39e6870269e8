"""Programs of edges against NumPy and finite differences."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest

from tests.mace import edges_oracle as oracle
from tests.mace.edge_runs import convolve, gradients
from trnqc.errors import UnsupportedError
from trnqc.mace.edges.geometry.kernels import EdgeValues, GeometryKernels
from trnqc.mace.edges.graph import SortedEdges
from trnqc.mace.edges.kernels import LayerConvolution
from trnqc.mace.model import Convolution, Layer, RadialBasis, RadialNetwork, Transform

AGNESI = Transform("agnesi", (1.0805, 0.9183, 4.5791), oracle.RADII)
SOFT = Transform("soft", (4.0,), oracle.RADII)
BASES = {
    "bessel": oracle.bessel(),
    "bessel of agnesi": oracle.bessel(transform=AGNESI, cutoff_on_weights=True),
    "gaussian of soft": RadialBasis("gaussian", np.linspace(0, 5, 5), -0.32, 5.0, 6, SOFT, False),
    "chebyshev of agnesi": RadialBasis("chebyshev", np.arange(1.0, 6.0), 1.0, 5.0, 5, AGNESI, False),
}
# Errors relative to the largest result: rounding of sums of about a hundred terms.
TOLERANCE = {"f64": 1e-14, "f32": 2e-6}
# Numbers of edges of the nodes: blocks of 48 edges begin and end within and between nodes, some of which have no edges.
GRAPHS = {
    "no nodes": [],
    "no edges": [0, 0],
    "one edge": [0, 1],
    "primes": [0, 7, 13, 0, 41, 5, 0],
    "many blocks": [48, 0, 97, 1, 0, 46, 50],
}
CONVOLUTIONS = {
    "scalars": ((0,), 5, 2, {"hidden": (8,)}),
    "vectors": ((0, 1), 17, 3, {"hidden": (16, 8), "bias": True}),
    "elements": ((1,), 16, 2, {"hidden": (9, 32), "elements": 3, "norm": True}),
    "one layer": ((0, 1), 4, 1, {"hidden": (), "bias": True}),
}


def relative(ours: np.ndarray, exact: np.ndarray) -> float:
    return float(np.max(np.abs(ours - exact), initial=0) / np.max(np.abs(exact), initial=1e-300))


@functools.cache
def geometry(basis: str, dtype: str) -> GeometryKernels:
    return GeometryKernels(BASES[basis], 3, dtype)


@pytest.mark.parametrize("basis", BASES)
def test_radial_functions_and_slopes(basis):
    edges = oracle.random_edges([20, 0, 33])
    values = geometry(basis, "f64").forward(edges)
    r = np.linalg.norm(edges.vectors, axis=1)
    exact, cutoff = oracle.radial_functions(BASES[basis], edges, r)
    assert np.allclose(values.radial[: edges.count], exact, rtol=0, atol=2e-14)
    # The cutoff function is stored if it multiplies weights, and is a factor of the radial functions otherwise.
    stored = BASES[basis].cutoff_on_weights
    assert np.allclose(values.cutoff[: edges.count, 0], cutoff if stored else 0, rtol=0, atol=2e-14)
    # Central differences of order 4: errors h^4 f^(5) / 30 and eps / h.
    h, factors = 1e-3, {1: 8 / 12, 2: -1 / 12}
    slopes = [np.zeros_like(exact), np.zeros_like(cutoff)]
    for n, factor in factors.items():
        above, below = (oracle.radial_functions(BASES[basis], edges, r + s * n * h) for s in (1, -1))
        slopes = [total + factor * (a - b) / h for total, a, b in zip(slopes, above, below)]
    assert np.allclose(values.slopes[: edges.count], slopes[0], rtol=0, atol=1e-8)
    assert np.allclose(values.cutoff[: edges.count, 1], slopes[1] if stored else 0, rtol=0, atol=1e-8)


def test_harmonics_are_e3nns():
    torch, o3 = pytest.importorskip("torch"), pytest.importorskip("e3nn.o3")
    edges = oracle.random_edges([9])
    values = GeometryKernels(oracle.bessel(), 4, "f64").forward(edges)
    exact = o3.spherical_harmonics(list(range(5)), torch.tensor(edges.vectors), True, "component").numpy()
    assert np.allclose(values.harmonics[: edges.count], exact, rtol=0, atol=1e-14)


def test_gradient_of_vectors():
    edges, rng = oracle.random_edges([11, 3]), np.random.default_rng(1)
    kernel = geometry("bessel", "f64")
    values = kernel.forward(edges)
    g_y, g_r = rng.normal(size=values.harmonics.shape), rng.normal(size=edges.rows)
    g_vectors = np.ones((edges.count, 3))
    kernel.reverse(edges, values, g_y, g_r, g_vectors)
    change = rng.normal(size=(edges.count, 3))

    def energy(step: float) -> float:
        moved = kernel.forward(replace(edges, vectors=edges.vectors + step * change))
        return float(((moved.harmonics * g_y).sum(axis=1) + moved.lengths * g_r)[: edges.count].sum())

    difference = (8 * (energy(1e-3) - energy(-1e-3)) - (energy(2e-3) - energy(-2e-3))) / 12e-3
    assert ((g_vectors - 1) * change).sum() == pytest.approx(difference, rel=1e-9)


@functools.cache
def layer(name: str, dtype: str, basis: str) -> tuple[Convolution, LayerConvolution]:
    degrees, channels, most, options = CONVOLUTIONS[name]
    problem = oracle.problem(degrees, channels, most)
    network = oracle.network(BASES[basis].size, outputs=problem.weight_numel, **options)
    convolution = Convolution(problem, network)
    return convolution, LayerConvolution(convolution, BASES[basis], dtype)


def features(kernel: LayerConvolution, nodes: int, which: int, seed: int) -> np.ndarray:
    """Random features of nodes, with zeros in the channels that are there for padding only."""
    x = np.random.default_rng(seed).normal(size=(nodes, kernel.layout.dims[which], kernel.channels))
    x[:, :, kernel.layout.channels :] = 0
    return x.astype(kernel.dtype)


def run(kernel: LayerConvolution, edges: SortedEdges, values: EdgeValues, threads: int = 1) -> tuple[np.ndarray, ...]:
    """Results and all gradients."""
    x, g_z = features(kernel, edges.nodes, 0, 1), features(kernel, edges.nodes, 2, 2)
    z = np.full_like(g_z, np.nan)
    convolve(kernel, edges, values, x, z, threads)
    g_y, g_r = np.ones((edges.rows, kernel.layout.dims[1]), kernel.dtype), np.ones(edges.rows, kernel.dtype)
    g_x = gradients(kernel, edges, values, x, g_z, g_y, g_r, threads)
    return z, g_x, g_y, g_r


CASES = [("scalars", "bessel"), ("vectors", "bessel"), ("elements", "bessel of agnesi"), ("one layer", "bessel")]


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize(("name", "basis"), CASES)
@pytest.mark.parametrize("counts", GRAPHS.values(), ids=GRAPHS)
def test_convolution(name, basis, counts, dtype):
    convolution, kernel = layer(name, dtype, basis)
    edges = oracle.random_edges(counts)
    values = GeometryKernels(BASES[basis], kernel.layout.degree, dtype).forward(edges)
    z, g_x, g_y, g_r = run(kernel, edges, values)
    x, g_z = (features(kernel, edges.nodes, *which).astype(float) for which in ((0, 1), (2, 2)))
    y, r = values.harmonics[: edges.count].astype(float), values.lengths[: edges.count]
    channels = kernel.layout.channels

    def total(dx: float = 0, dy: float = 0, dr: float = 0) -> float:
        w = oracle.weights(convolution.weights, BASES[basis], edges, r + dr * changes[2])
        out = oracle.convolved(convolution, edges, w, y + dy * changes[1], x + dx * changes[0])
        return float((out * g_z[:, :, :channels]).sum())

    rng = np.random.default_rng(3)
    changes = [rng.normal(size=shape) for shape in (x.shape, y.shape, r.shape)]
    changes[1][:, 0] = 0  # the first harmonic is constant
    w = oracle.weights(convolution.weights, BASES[basis], edges, r)
    exact = oracle.convolved(convolution, edges, w, y, x)
    assert relative(z[:, :, :channels], exact) < TOLERANCE[dtype]
    assert not z[:, :, channels:].any()
    ours = (
        (g_x * changes[0]).sum(),
        ((g_y - 1)[: edges.count] * changes[1]).sum(),
        ((g_r - 1)[: edges.count] * changes[2]).sum(),
    )
    # The sum is linear in x and y; differences of order 4 have errors of h^4 / 30 times the fifth derivative by r.
    steps = {"dx": 0.5, "dy": 0.5, "dr": 1e-3}
    scale = np.abs(exact).sum() + 1e-3
    for gradient, (change, h) in zip(ours, steps.items()):
        near, far = (total(**{change: n * h}) - total(**{change: -n * h}) for n in (1, 2))
        assert abs(gradient - (8 * near - far) / (12 * h)) < scale * (1e-8 if dtype == "f64" else 1e-5)
    assert (g_y[edges.count :] == 1).all() and (g_r[edges.count :] == 1).all()


def test_threads():
    _, kernel = layer("vectors", "f32", "bessel")
    edges = oracle.random_edges(GRAPHS["many blocks"])
    values = geometry("bessel", "f32").forward(edges)
    one, again, three = (run(kernel, edges, values, threads) for threads in (1, 1, 3))
    assert all(np.array_equal(a, b) for a, b in zip(one, again))
    assert all(np.array_equal(a, b) for a, b in zip((one[0], *one[2:]), (three[0], *three[2:])))
    assert relative(three[1], one[1]) < 1e-6
    threaded = geometry("bessel", "f32").forward(edges, threads=3)
    assert np.array_equal(threaded.harmonics, values.harmonics)


def test_normalisation_of_the_last_layer_is_an_error():
    problem = oracle.problem((0,), 4, 1)
    count = problem.weight_numel
    layer = Layer(np.ones((6, count)), norm=(np.ones(count), np.zeros(count), 1e-5))
    with pytest.raises(UnsupportedError, match="last layer of a radial network"):
        LayerConvolution(Convolution(problem, RadialNetwork((layer,))), oracle.bessel(), "f64")
