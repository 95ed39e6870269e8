"""The engine against the dense reference: both modes and their mixtures, both layouts and types, three orders."""

from __future__ import annotations

import numpy as np
import pytest

from scripts.workloads import tensor_product_oracle as oracle
from scripts.workloads.tensor_products import awkward
from trnqc.cg.cpu.engine import engine_for
from trnqc.cg.problem.problem import TPProblem
from trnqc.errors import InstructionError

# Largest error over the largest value of a result: sums of up to a few hundred products with a few roundings each.
TOLERANCE = {"float64": 1e-14, "float32": 1e-6}
# Mostly the pairs of layout and dtype of tests/cg/test_modules.py, so that their kernels are compiled once.
CASES = [
    ("uvu-y3", "mul_ir", "float64"),
    ("uvw-1", "ir_mul", "float32"),
    ("uvw-odd", "mul_ir", "float64"),
    ("uvw-odd", "ir_mul", "float32"),
    ("uvw-y3", "ir_mul", "float32"),
    ("uvw-y3", "mul_ir", "float64"),
    ("uvw-shared", "mul_ir", "float64"),
    ("mixed", "mul_ir", "float64"),
    ("mixed", "ir_mul", "float32"),
    ("unweighted", "ir_mul", "float64"),
    ("empty-slots", "mul_ir", "float64"),
    ("all-modes", "mul_ir", "float64"),
    ("all-modes", "ir_mul", "float32"),
    ("nothing", "mul_ir", "float32"),
]


@pytest.mark.parametrize(("label", "layout", "dtype"), CASES)
def test_three_orders(label: str, layout: str, dtype: str) -> None:
    problem = awkward(label, layout=layout)
    engine, bound = engine_for(problem, dtype, threads=2), TOLERANCE[dtype]
    x, y, w, gz = oracle.arrays(problem, batch=5, dtype=dtype)
    gg = [np.random.default_rng(1).standard_normal(a.shape).astype(dtype) for a in (x, y, w)]
    assert oracle.error(engine.forward(x, y, w), oracle.forward(problem, x, y, w)) < bound
    for actual, expected in zip(engine.backward(x, y, w, gz), oracle.backward(problem, x, y, w, gz), strict=True):
        assert oracle.error(actual, expected) < bound
    second = engine.double_backward(x, y, w, gz, *gg), oracle.double_backward(problem, x, y, w, gz, *gg)
    for actual, expected in zip(*second, strict=True):
        assert oracle.error(actual, expected) < bound


@pytest.mark.parametrize("label", ["uvw-odd", "mixed", "uvw-shared", "all-modes"])
def test_gradient_of_every_instruction(label: str) -> None:
    """One path's weights may have a gradient of their own size: a wrong one must not hide behind the others."""
    problem = awkward(label)
    x, y, w, gz = oracle.arrays(problem, batch=4, seed=3)
    result = engine_for(problem, "float64", threads=2).backward(x, y, w, gz)[2]
    expected = oracle.backward(problem, x, y, w, gz)[2]
    for path in problem.instructions:
        part = (..., path.weight_slice)
        assert oracle.error(result[part], expected[part]) < TOLERANCE["float64"], path


@pytest.mark.parametrize("label", ["mixed", "all-modes"])
def test_shared_weights_are_those_of_every_edge(label: str) -> None:
    own, shared = awkward(label), awkward(label, shared_weights=True)
    x, y, w, gz = oracle.arrays(shared, batch=7, seed=4)
    repeated = np.repeat(w[None], len(x), axis=0)
    one, other = engine_for(own, "float64", threads=1), engine_for(shared, "float64", threads=2)
    assert oracle.error(other.forward(x, y, w), one.forward(x, y, repeated)) < TOLERANCE["float64"]
    gx, gy, gw = one.backward(x, y, repeated, gz)
    for actual, expected in zip(other.backward(x, y, w, gz), (gx, gy, gw.sum(0)), strict=True):
        assert oracle.error(actual, expected) < TOLERANCE["float64"]


@pytest.mark.parametrize("label", ["uvw-shared", "mixed", "all-modes"])
def test_any_number_of_threads_gives_the_same_bits(label: str) -> None:
    problem = awkward(label, layout="ir_mul")
    x, y, w, gz = oracle.arrays(problem, batch=150, seed=5, dtype="float32")
    results = [engine_for(problem, "float32", threads=n).backward(x, y, w, gz) for n in (1, 3)]
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


def test_not_a_number_stays_in_its_edge() -> None:
    problem = awkward("uvw-odd")
    x, y, w, _ = oracle.arrays(problem, batch=3)
    clean = engine_for(problem, "float64", threads=1).forward(x, y, w)
    w[1] = np.nan
    spoilt = engine_for(problem, "float64", threads=1).forward(x, y, w)
    assert np.isnan(spoilt[1]).all()
    np.testing.assert_array_equal(spoilt[[0, 2]], clean[[0, 2]])


def test_no_edges() -> None:
    problem = awkward("mixed")
    x, y, w, gz = oracle.arrays(problem, batch=0)
    engine = engine_for(problem, "float64", threads=2)
    assert engine.forward(x, y, w).shape == gz.shape
    assert [g.shape for g in engine.backward(x, y, w, gz)] == [x.shape, y.shape, w.shape]


def test_mixing_needs_weights() -> None:
    with pytest.raises(InstructionError, match="instruction 1: uvw mixes channels by weights"):
        TPProblem("2x0e", "1x0e", "2x0e", [(0, 0, 0, "uvu", False), (0, 0, 0, "uvw", False)])
