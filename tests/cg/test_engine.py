"""The engine: operands, ranges, threads, outputs and caching."""

from __future__ import annotations

import numpy as np
import pytest

from scripts.workloads import tensor_product_oracle as oracle
from scripts.workloads.tensor_products import AWKWARD, awkward
from trnqc.cg.cpu import engine as module
from trnqc.cg.cpu.engine import LEAST, CpuEngine, engine_for
from trnqc.cg.cpu.recipe import recipe
from trnqc.cg.cpu.target import ProductTarget
from trnqc.cg.programs.directions import DIRECTIONS
from trnqc.errors import OperandError


@pytest.mark.parametrize("batch", [0, 1, LEAST - 1, LEAST, 2 * LEAST + 1])
@pytest.mark.parametrize("label", ["uvu-5", "unweighted"])
def test_batches_around_a_thread_s_range(label, batch):
    problem = awkward(label)
    x, y, w, gz = oracle.arrays(problem, batch)
    engine = CpuEngine(problem, "float64", 2)
    assert oracle.error(engine.forward(x, y, w), oracle.forward(problem, x, y, w)) < 1e-14
    for actual, expected in zip(engine.backward(x, y, w, gz), oracle.backward(problem, x, y, w, gz), strict=True):
        assert oracle.error(actual, expected) < 1e-14


@pytest.mark.parametrize("shared", [False, True])
def test_threads_change_no_bit(shared):
    problem = awkward("uvu-y3", layout="ir_mul", shared_weights=shared)
    x, y, w, gz = oracle.arrays(problem, 3 * LEAST + 5, dtype=np.float32)
    gg = oracle.arrays(problem, 3 * LEAST + 5, 1, np.float32)[:3]
    runs = []
    for threads in (1, 2, 3, 3):
        engine = CpuEngine(problem, "float32", threads)
        results = (engine.forward(x, y, w), *engine.backward(x, y, w, gz), *engine.double_backward(x, y, w, gz, *gg))
        runs.append([a.tobytes() for a in results])
    assert all(run == runs[0] for run in runs)


def by_seven_calls(engine, x, y, w, gz, ggx, ggy, ggw):
    """The second derivative by three calls of forward and four of backward.

    z is linear in x, in y and in w, so that a direction takes the place of an operand. A path without weights is
    constant in w, and is left out where ggw stands for w.
    """
    weighted = engine_for(engine.problem.weighted_part(), engine.dtype, engine.threads)
    ggz = engine.forward(ggx, y, w) + engine.forward(x, ggy, w) + weighted.forward(x, y, ggw)
    _, y_x, w_x = engine.backward(ggx, y, w, gz)
    x_y, _, w_y = engine.backward(x, ggy, w, gz)
    x_w, y_w, _ = weighted.backward(x, y, ggw, gz)
    return x_y + x_w, y_x + y_w, w_x + w_y, ggz


@pytest.mark.parametrize(
    "label, shared",
    [
        ("uvu-17", False),
        ("uvu-y3", False),
        ("uvu-y3", True),
        ("mixed", False),
        ("uvw-shared", True),
        ("uvw-odd", False),
        ("unweighted", False),
    ],
)
def test_the_fused_second_derivative_is_seven_calls(label, shared):
    problem = awkward(label, shared_weights=shared)
    engine = engine_for(problem, "float64", 1)
    x, y, w, gz = oracle.arrays(problem, 4)
    gg = oracle.arrays(problem, 4, 1)[:3]
    fused, composed = engine.double_backward(x, y, w, gz, *gg), by_seven_calls(engine, x, y, w, gz, *gg)
    for one, other in zip(fused, composed, strict=True):
        assert oracle.error(one, other) < 1e-14


@pytest.mark.parametrize("label", ["uvu-5", "uvu-y3", "empty-slots", "nothing", "mixed"])
def test_outputs_are_overwritten_in_full(label):
    problem = awkward(label)
    engine = engine_for(problem, "float64", 1)
    x, y, w, gz = oracle.arrays(problem, 3)
    gg = oracle.arrays(problem, 3, 1)[:3]
    z, gx, gy, gw = (np.full_like(a, np.nan) for a in (gz, x, y, w))
    assert engine.forward(x, y, w, z) is z
    np.testing.assert_array_equal(z, engine.forward(x, y, w))
    assert engine.backward(x, y, w, gz, (gx, gy, gw))[0] is gx
    for written, fresh in zip((gx, gy, gw), engine.backward(x, y, w, gz), strict=True):
        np.testing.assert_array_equal(written, fresh)
    for a in (z, gx, gy, gw):
        a.fill(np.nan)
    engine.double_backward(x, y, w, gz, *gg, (gx, gy, gw, z))
    for written, fresh in zip((gx, gy, gw, z), engine.double_backward(x, y, w, gz, *gg), strict=True):
        np.testing.assert_array_equal(written, fresh)


@pytest.mark.parametrize(
    "name, change, told",
    [
        ("y", lambda a: a[:2], r"y: expected float64\[3, 9\], C-contiguous; found float64\[2, 9\]"),
        ("w", lambda a: a[0], r"w: expected float64\[3, \d+\]"),
        ("x", lambda a: a.astype(np.float32), "x: expected float64.*found float32"),
        ("x", lambda a: np.asfortranarray(a), "with strides"),
        ("x", lambda a: a[:, :-1].copy(), "x: expected"),
    ],
)
def test_operands_that_do_not_fit(name, change, told):
    problem = awkward("uvu-5")
    x, y, w, _ = oracle.arrays(problem, 3)
    inputs = {"x": x, "y": y, "w": w}
    inputs[name] = change(inputs[name])
    with pytest.raises(OperandError, match=told):
        engine_for(problem, "float64", 1).forward(**inputs)


def test_outputs_that_cannot_be_written():
    problem = awkward("uvu-5")
    x, y, w, gz = oracle.arrays(problem, 3)
    gz.flags.writeable = False
    engine = engine_for(problem, "float64", 1)
    with pytest.raises(OperandError, match="read-only"):
        engine.forward(x, y, w, gz)
    assert engine.backward(x, y, w, gz)[0].shape == x.shape


def test_directions_are_built_when_called_and_once(monkeypatch):
    problem = awkward("uvu-1")
    assert engine_for(problem, "float32", 1) is engine_for(awkward("uvu-1"), "float32", 1)
    engine = CpuEngine(problem, "float32", 1)
    assert engine.build_report == ""
    x, y, w, _ = oracle.arrays(problem, 2, dtype=np.float32)
    engine.forward(x, y, w)
    assert engine.build_report.startswith("forward: ") and "\n" not in engine.build_report
    monkeypatch.setattr(module, "library", None)
    engine.forward(x, y, w)
    assert "lanes of float32, 1 threads" in engine.ran_on


@pytest.mark.parametrize("label", AWKWARD)
def test_programs_have_the_signatures_that_recipes_declare(label):
    target = ProductTarget(awkward(label), "f32", 4)
    for name in (*DIRECTIONS, *(f"{key}_kahan" for key, direction in DIRECTIONS.items() if direction.by)):
        made = recipe(target, name)
        assert [f.name for f in made.functions()] == [name] == [s.name for s in made.signatures]


def test_what_is_in_the_cache_is_not_generated(monkeypatch, tmp_path):
    monkeypatch.setenv("TRNQC_CACHE_DIR", str(tmp_path))
    problem = awkward("uvu-1")
    first = CpuEngine(problem, "float64", 1).build("forward").path
    monkeypatch.setattr("trnqc.jit.compile._loaded", {})
    monkeypatch.setattr("trnqc.cg.cpu.batch.batch_program", None)
    assert CpuEngine(problem.changed(label="another name"), "float64", 1).build("forward").path == first
    with pytest.raises(TypeError, match="not callable"):
        CpuEngine(problem.changed(shared_weights=not problem.shared_weights), "float64", 1).build("forward")


@pytest.mark.parametrize(("label", "lanes"), [("uvu-y3", 1), ("uvu-5", 2), ("uvu-y3", 4)])
def test_narrower_vectors(label, lanes):
    """Those of other CPUs, and none."""
    problem = awkward(label)
    engine = CpuEngine(problem, "float64", 1)
    engine.lanes, engine.target = lanes, ProductTarget(problem, "f64", lanes)
    x, y, w, gz = oracle.arrays(problem, 3)
    assert oracle.error(engine.forward(x, y, w), oracle.forward(problem, x, y, w)) < 1e-14
    for actual, expected in zip(engine.backward(x, y, w, gz), oracle.backward(problem, x, y, w, gz), strict=True):
        assert oracle.error(actual, expected) < 1e-14
