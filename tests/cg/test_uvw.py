"""Programs of mode uvw, interpreted and compiled, at several vector widths."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from scripts.workloads import tensor_product_oracle as oracle
from scripts.workloads.tensor_products import awkward, fully_connected
from tests.gen.programs import NUMPY, compiled
from trnqc.cg.cpu.modes import uvw
from trnqc.cg.cpu.target import ProductTarget
from trnqc.cg.programs.directions import DIRECTIONS
from trnqc.gen import run
from trnqc.gen import statements as st

QUICK = ("-O1",)
KINDS = ("forward", "backward", "double_backward")


def rows(problem, kind: str, dtype: str, count: int) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """Operands of a program, its outputs already holding ones, and the values that are to be added to them."""
    x, y, w, gz = oracle.arrays(problem, count, dtype=NUMPY[dtype])
    gg = [np.random.default_rng(1).standard_normal(a.shape).astype(NUMPY[dtype]) for a in (x, y, w)]
    inputs = {"x": x, "y": y, "w": w, "gz": gz, "ggx": gg[0], "ggy": gg[1], "ggw": gg[2]}
    reads = {"forward": "xyw", "backward": ("x", "y", "w", "gz"), "double_backward": tuple(inputs)}[kind]
    expected = getattr(oracle, kind)(problem, *(inputs[name] for name in reads))
    expected = [expected] if kind == "forward" else list(expected)
    outputs = {"forward": ["z"], "backward": ["gx", "gy", "gw"], "double_backward": ["gx", "gy", "gw", "ggz"]}[kind]
    ones = {name: np.ones_like(value, NUMPY[dtype]) for name, value in zip(outputs, expected)}
    return {**{name: inputs[name] for name in reads}, **ones}, expected


def check(problem, kind: str, dtype: str, lanes: int, edges: int, count: int, interpreted: bool) -> None:
    function = uvw.function(uvw.EdgeGroup(ProductTarget(problem, dtype, lanes), edges), DIRECTIONS[kind])
    arrays, expected = rows(problem, kind, dtype, count)
    flat = {"count": count, **{name: a.reshape(-1) for name, a in arrays.items()}}
    if interpreted:
        run(function, flat, lanes=lanes)
    else:
        compiled(function, lanes, flags=QUICK)(*(flat[st.name_of(p)] for p in function.params))
    bound = {"f64": 1e-14, "f32": 1e-6}[dtype]
    for (name, actual), value in zip(list(arrays.items())[-len(expected) :], expected):
        stored = name == "gw" and not problem.shared_weights
        largest = max(1.0, np.abs(value).max(initial=0.0))
        np.testing.assert_allclose(actual, value + (not stored), rtol=0, atol=bound * largest, err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lanes", [1, 4])
def test_interpreted(kind: str, lanes: int) -> None:
    check(awkward("uvw-y3"), kind, "f64", lanes, edges=1, count=1, interpreted=True)


@pytest.mark.parametrize(
    ("kind", "dtype", "lanes"),
    [
        (kind, dtype, lanes)
        for dtype, lanes in (("f64", 2), ("f64", 8), ("f32", 4), ("f32", 16))
        # The longest programs: of each type the narrowest or the widest stands for both.
        for kind in (KINDS if (dtype, lanes) in (("f64", 2), ("f32", 16)) else ("forward", "backward"))
    ],
)
def test_compiled_at_every_width(kind: str, dtype: str, lanes: int) -> None:
    check(awkward("uvw-odd"), kind, dtype, lanes, edges=1, count=1, interpreted=False)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["f64", "f32"])
def test_wide_paths_are_loops(kind: str, dtype: str) -> None:
    """More vectors of weights than are written out, and more channels than one sum takes."""
    problem = fully_connected("70x0e", "1x0e+1x1o", "41x0e+37x1o")
    check(problem, kind, dtype, 4, edges=1, count=1, interpreted=False)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [3, 4])
def test_several_edges_at_a_time(kind: str, count: int) -> None:
    """Edges that share their weights are columns of one product; the last block of a batch may lack some."""
    check(awkward("uvw-shared"), kind, "f64", 4, edges=4, count=count, interpreted=True)


irreps = some.lists(
    some.tuples(some.integers(1, 6), some.sampled_from(["0e", "0o", "1e", "1o", "2e"])), min_size=1, max_size=3
).map(lambda slots: "+".join(f"{mul}x{irrep}" for mul, irrep in slots))


@settings(max_examples=25, deadline=None)
@given(irreps, irreps, irreps, some.booleans(), some.sampled_from(["mul_ir", "ir_mul"]), some.sampled_from([1, 4]))
def test_any_irreps(in1: str, in2: str, out: str, shared: bool, layout: str, lanes: int) -> None:
    problem = fully_connected(in1, in2, out, shared_weights=shared, layout=layout)
    check(problem, "backward", "f64", lanes, edges=1, count=1, interpreted=True)
