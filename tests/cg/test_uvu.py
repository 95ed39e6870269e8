"""The uvu kernels against the dense reference: every direction, layout, dtype and awkward multiplicity."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from scripts.workloads import tensor_product_oracle as oracle
from scripts.workloads.tensor_products import AWKWARD, CHANNELWISE, ROOFLINE, awkward, configuration, name, products
from trnqc.cg.cpu import batch
from trnqc.cg.cpu.engine import engine_for
from trnqc.cg.cpu.target import ProductTarget
from trnqc.cg.problem.problem import TPProblem
from trnqc.cg.programs.directions import DIRECTIONS
from trnqc.gen import listing, run

# Largest error over largest value; a few roundings of sums of some tens of terms.
TOLERANCE = {"float64": 1e-14, "float32": 1e-6}
UVU = [label for label in AWKWARD if label.startswith("uvu") or label in ("unweighted", "empty-slots", "nothing")]


def agrees(problem: TPProblem, dtype: str, edges: int = 3) -> None:
    """All directions against the reference; gradients of weights one instruction at a time."""
    engine = engine_for(problem, dtype, 1)
    x, y, w, gz = oracle.arrays(problem, edges, 1, dtype)
    gg = oracle.arrays(problem, edges, 2, dtype)[:3]
    assert oracle.error(engine.forward(x, y, w), oracle.forward(problem, x, y, w)) < TOLERANCE[dtype]
    result, expected = engine.backward(x, y, w, gz), oracle.backward(problem, x, y, w, gz)
    held(problem, result, expected, dtype)
    twice = oracle.double_backward(problem, x, y, w, gz, *gg)
    held(problem, engine.double_backward(x, y, w, gz, *gg), twice, dtype)


def held(problem: TPProblem, actual, expected, dtype: str) -> None:
    for a, b in zip(actual, expected, strict=True):
        assert a.dtype == dtype
        assert oracle.error(a, b) < TOLERANCE[dtype]
    for ins in problem.instructions:
        part = (..., ins.weight_slice)
        assert oracle.error(actual[2][part], expected[2][part]) < TOLERANCE[dtype], ins


# The same two of the four as in tests/cg/test_modules.py, so that their kernels are compiled once.
@pytest.mark.parametrize("layout, dtype", [("mul_ir", "float64"), ("ir_mul", "float32")])
@pytest.mark.parametrize("label", UVU)
def test_awkward_problems(label, layout, dtype):
    agrees(awkward(label, layout=layout), dtype)


@pytest.mark.parametrize("label, layout, dtype", [("uvu-17", "mul_ir", "float32"), ("uvu-y3", "ir_mul", "float64")])
def test_awkward_problems_the_other_way(label, layout, dtype):
    agrees(awkward(label, layout=layout), dtype)


@pytest.mark.parametrize(
    "label, dtype",
    [
        pytest.param("mace-medium", "float64", marks=pytest.mark.slow),
        ("nequip-revmd17-aspirin", "float32"),
        ("roofline-3", "float64"),
    ],
)
def test_published_problems(label, dtype):
    agrees(configuration(label), dtype, edges=2)


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["mul_ir", "ir_mul"])
@pytest.mark.parametrize("label", [*CHANNELWISE, *ROOFLINE])
def test_all_published_problems(label, layout):
    agrees(configuration(label, layout=layout), "float32", edges=2)
    agrees(configuration(label, layout=layout), "float64", edges=2)


@pytest.mark.parametrize(
    "label, dtype", [("uvu-5", "float64"), ("uvu-y3", "float32"), ("unweighted", "float64"), ("unweighted", "float32")]
)
def test_shared_weights(label, dtype):
    agrees(awkward(label, shared_weights=True), dtype, edges=37)


@some.composite
def problems(draw):
    """A few slots and paths between them; several paths may lead to one slot."""
    kinds = [(draw(some.integers(0, 3)), draw(some.sampled_from((1, -1)))) for _ in range(draw(some.integers(1, 2)))]
    ys = [(draw(some.integers(0, 2)), draw(some.sampled_from((1, -1)))) for _ in range(draw(some.integers(1, 2)))]
    muls = [draw(some.integers(0, 20)) for _ in kinds]
    y_muls = [draw(some.integers(1, 3)) for _ in ys]
    outs, rules = [], []
    for i, kind in enumerate(kinds):
        for j, other in enumerate(ys):
            for out in products(kind, other):
                if draw(some.booleans()):
                    known = [n for n, slot in enumerate(outs) if slot == (muls[i], out)]
                    if not known:
                        outs.append((muls[i], out))
                        known = [len(outs) - 1]
                    rules.append((i, j, known[0], "uvu", draw(some.booleans()), draw(some.sampled_from((1.0, 0.3)))))
    words = ["+".join(f"{m}x{name(k)}" for m, k in slots) for slots in (zip(muls, kinds), zip(y_muls, ys), outs)]
    options = {"layout": draw(some.sampled_from(("mul_ir", "ir_mul"))), "shared_weights": draw(some.booleans())}
    return TPProblem(words[0], words[1], words[2] or "1x0e", rules, **{"shared_weights": False, **options})


any_problem = given(problems(), some.sampled_from(("float64", "float32")))


# Every example compiles three functions.
@settings(max_examples=4, deadline=None, derandomize=True)
@any_problem
def test_any_problem(problem, dtype):
    agrees(problem, dtype)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@any_problem
def test_more_problems(problem, dtype):
    agrees(problem, dtype)


@pytest.mark.parametrize("label", ["uvu-5", "uvu-y3"])
def test_the_program_means_the_product(label):
    """The interpreter, for lanes that no machine here has, and what people read."""
    problem = awkward(label)
    x, y, w, gz = oracle.arrays(problem, 2)
    rows = {"x": x, "y": y, "w": w, "z": np.full_like(gz, np.nan)}
    program = batch.batch_program(ProductTarget(problem, "f64", 2), DIRECTIONS["forward"])
    flat = {key: a.ravel().copy() for key, a in rows.items()}
    run(program, flat, lanes=2, groups=(0, 2))
    assert oracle.error(flat["z"].reshape(gz.shape), oracle.forward(problem, x, y, w)) < 1e-15
    assert "function forward(x[?]: f64, y[?]: f64, w[?]: f64, out z[?]: f64) for each e:" in listing(program)
