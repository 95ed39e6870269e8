"""Parts of edges in learned densities, by networks and by splines, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.mace import edge_runs
from tests.mace import edges_oracle as oracle
from trnqc.mace.edges.density import EdgeDensity
from trnqc.mace.edges.geometry.kernels import GeometryKernels
from trnqc.mace.edges.splines.tables import spline_tables
from trnqc.mace.model import NodeDensity, Transform

AGNESI = Transform("agnesi", (1.0805, 0.9183, 4.5791), oracle.RADII)
BASES = {"basis": oracle.bessel(4), "weights": oracle.bessel(4, AGNESI, cutoff_on_weights=True)}
SPLINE_TOLERANCE = 1e-6
TOLERANCE = {"exact": 1e-13, "spline": 2 * SPLINE_TOLERANCE}


def exact_parts(density: NodeDensity, basis: str, edges: object, r: np.ndarray) -> np.ndarray:
    """tanh(d^2), times the cutoff function if that multiplies weights."""
    factor = oracle.radial_functions(BASES[basis], edges, r)[1] if basis == "weights" else 1.0
    d = oracle.weights(density.network, BASES[basis], edges, r)[:, 0] / factor
    return np.tanh(d * d) * factor


@pytest.mark.parametrize("basis", BASES)
@pytest.mark.parametrize("radial", TOLERANCE)
@pytest.mark.parametrize("counts", [[], [0, 0], [0, 1], [48, 0, 97, 1]], ids=str)
def test_densities(basis, radial, counts):
    density = NodeDensity(oracle.network(4, (8,), 1, elements=3 if basis == "weights" else 0), 1.0, 0.5)
    edges = oracle.random_edges(counts, r_max=4.7)  # all edges are shorter than the cutoff distance of 5 Angstrom
    tables = None
    if radial == "spline":
        tables = spline_tables([density], BASES[basis], [0, 1, 2], 3, SPLINE_TOLERANCE, "f64")
    values = GeometryKernels(BASES[basis] if tables is None else tables.knots, 1, "f64").forward(edges)
    kernel = EdgeDensity(density, BASES[basis], "f64", tables)
    rho, slope = edge_runs.density(kernel, edges, values)
    assert np.array_equal(rho, edge_runs.density(kernel, edges, values, threads=3)[0])
    r, h, scale = np.linalg.norm(edges.vectors, axis=1), 1e-3, TOLERANCE[radial]
    exact = np.bincount(edges.receivers, exact_parts(density, basis, edges, r), len(counts))
    parts = {n: exact_parts(density, basis, edges, r + n * h) for n in (-2, -1, 1, 2)}
    difference = (8 * (parts[1] - parts[-1]) - (parts[2] - parts[-2])) / (12 * h)
    assert np.allclose(rho, exact, rtol=0, atol=100 * scale)
    assert np.abs(slope - difference).max(initial=0) < (1e-8 + 10 * scale) * np.abs(difference).max(initial=1)
