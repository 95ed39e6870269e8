"""The engine without a compiler computes what the compiled engine does."""

from __future__ import annotations

import numpy as np
import pytest

from trnqc import cg
from trnqc.cg.cpu.engine import CpuEngine
from trnqc.cg.cpu.interpreted import InterpretedEngine
from trnqc.cg.problem.graph import EdgeGraph

PATHS = [
    ("uvw", True, "3x1o", "2x1o", "4x1e"),
    ("uvu", True, "3x1o", "2x2e", "3x1o"),
    ("uvv", False, "3x1o", "2x1o", "2x2e"),
    ("uuw", True, "3x1o", "3x0e", "2x1o"),
    ("uuw", False, "3x1o", "3x1o", "1x0e"),
    ("uuu", True, "3x1o", "3x1o", "3x0e"),
    ("uvuv", True, "3x1o", "2x0e", "6x1o"),
    ("uvu<v", False, "3x1o", "3x1o", "3x0e"),
    ("u<vw", True, "3x1o", "3x1o", "2x0e"),
]


def operands(problem: cg.TPProblem, rows: int, nodes: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    lengths = {"x": nodes, "z": nodes, "y": rows, "w": rows}
    names = ("x", "y", "w", "gz", "ggx", "ggy", "ggw")
    return {name: rng.standard_normal(problem.shape_of(name, lengths[name[-1]])) for name in names}


@pytest.mark.parametrize(("shared", "layout"), [(True, "mul_ir"), (False, "ir_mul")])
@pytest.mark.parametrize(("mode", "has_weight", "one", "two", "three"), PATHS, ids=[f"{p[0]}-{p[1]}" for p in PATHS])
def test_all_directions_of_a_batch(mode, has_weight, one, two, three, shared, layout):
    problem = cg.TPProblem(one, two, three, [(0, 0, 0, mode, has_weight, 0.7)], shared_weights=shared, layout=layout)
    a = operands(problem, 5, 5)
    ours, compiled = InterpretedEngine(problem, "float64", "a test"), CpuEngine(problem, "float64", 1)
    first = (a["x"], a["y"], a["w"])
    second = (*first, a["gz"], a["ggx"], a["ggy"], a["ggw"])
    np.testing.assert_allclose(ours.forward(*first), compiled.forward(*first), rtol=0, atol=1e-12)
    for name, given in (("backward", second[:4]), ("double_backward", second)):
        for result, expected in zip(getattr(ours, name)(*given), getattr(compiled, name)(*given), strict=True):
            np.testing.assert_allclose(result, expected, rtol=0, atol=1e-12)


def test_a_convolution_of_more_edges_than_are_computed_at_a_time(monkeypatch):
    monkeypatch.setattr("trnqc.cg.cpu.interpreted.ROWS", 7)
    paths = [(0, 0, 0, "uvu", True), (1, 0, 1, "uvu", True)]
    problem = cg.TPProblem("3x0e+3x1o", "1x0e", "3x0e+3x1o", paths, shared_weights=False)
    rng = np.random.default_rng(1)
    graph = EdgeGraph(rng.integers(0, 5, 20), rng.integers(0, 5, 20), 6)
    a = operands(problem, 20, 6)
    ours, compiled = InterpretedEngine(problem, "float64", "a test"), CpuEngine(problem, "float64", 1)
    given = (a["x"], a["y"], a["w"], a["gz"], a["ggx"], a["ggy"], a["ggw"])
    z = np.empty(problem.shape_of("z", 6))
    assert ours.conv_forward(*given[:3], graph, out=z) is z
    np.testing.assert_allclose(z, compiled.conv_forward(*given[:3], graph), rtol=0, atol=1e-12)
    for name, several in (("conv_backward", given[:4]), ("conv_double_backward", given)):
        for result, expected in zip(getattr(ours, name)(*several, graph), getattr(compiled, name)(*several, graph)):
            np.testing.assert_allclose(result, expected, rtol=0, atol=1e-12)


def test_a_warning_says_what_computes(monkeypatch):
    with pytest.warns(RuntimeWarning, match="computed by NumPy's einsum.*no compiler of this test"):
        engine = InterpretedEngine(
            cg.TPProblem("1o", "1o", "0e", [(0, 0, 0, "uuu", False)]), "float64", "no compiler of this test"
        )
    assert "NumPy's einsum" in engine.ran_on
