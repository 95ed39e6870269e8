"""Symmetric contractions as kernels of a simulated GPU, against dense sums, the CPU's engine and differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from scripts.device import contractions
from scripts.workloads.contraction_oracle import reference
from tests.cg.test_contraction_engine import BOUND, CASES, arrays, folded
from trnqc.cg.cpu.contraction_engine import contraction_engine
from trnqc.cg.cuda import contraction
from trnqc.cg.cuda import contraction_engine as on_gpu
from trnqc.cg.cuda.contraction_engine import CudaContractionEngine
from trnqc.cg.problem.contraction import ContractionProblem, contraction_problem
from trnqc.errors import OperandError
from trnqc.jit.emulator import ORDERS
from trnqc.jit.simulated_device import SimulatedDevice

SMALL = {n: contraction_problem("5x0e+5x1o", "5x0e+5x1o", n) for n in (1, 2, 3)}


def close(ours: np.ndarray, theirs: np.ndarray, dtype: str = "float64") -> bool:
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
    return bool(np.abs(ours - theirs).max(initial=0) <= BOUND[dtype] * max(1.0, np.abs(theirs).max(initial=0)))


def engine(problem: ContractionProblem, dtype: str = "float64", order: str = "ascending", **more):
    return CudaContractionEngine(problem, dtype, SimulatedDevice(lanes=4, order=order), **more)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("correlation", SMALL)
def test_all_programs_agree_with_those_of_the_cpu(correlation, dtype, order, monkeypatch):
    """Ranges of two nodes, so that an element has several; five channels end within the second block of four."""
    monkeypatch.setattr(on_gpu, "FEWEST", 2)
    monkeypatch.setattr(on_gpu, "RANGES", 100)
    problem = SMALL[correlation]
    weights, x, h, gb, elements = arrays(problem, dtype, nodes=7, elements=3)
    c, ours, theirs = folded(problem, weights, dtype), engine(problem, dtype, order), contraction_engine(problem, dtype)
    for along in ((), (h,)):
        assert close(ours.value(c, x, elements, *along), theirs.value(c, x, elements, *along), dtype)
        expected = theirs.gradients(c, x, elements, gb, *along)
        assert close(ours.gradient(c, x, elements, gb, *along), expected[0], dtype)
        for a, b in zip(ours.gradients(c, x, elements, gb, *along), expected, strict=True):
            assert close(a, b, dtype)
    assert ours.device.used == 0


def test_terms_are_counted_once(monkeypatch):
    ours, counted, parts = engine(SMALL[2]), [], contraction.parts
    monkeypatch.setattr("trnqc.cg.cuda.contraction_engine.parts", lambda *given: counted.append(given) or parts(*given))
    first = ours.forms("value", 1)
    assert ours.forms("value", 1) == first and ours.forms("gradient", 1)[0].kind == "gradient"
    assert counted == [(SMALL[2], 1)] * 2


def test_long_formulas_are_divided_among_kernels(monkeypatch):
    """Gradients of all kernels but the first add to what is stored."""
    problem = SMALL[3]
    weights, x, h, gb, elements = arrays(problem, "float64")
    c, theirs = folded(problem, weights), contraction_engine(problem, "float64")
    monkeypatch.setattr(contraction, "TERMS", 12)
    assert len(contraction.parts(problem, 0)) > 1
    ours = engine(problem)
    for along in ((), (h,)):
        assert close(ours.value(c, x, elements, *along), theirs.value(c, x, elements, *along))
        for a, b in zip(
            ours.gradients(c, x, elements, gb, *along), theirs.gradients(c, x, elements, gb, *along), strict=True
        ):
            assert close(a, b)


def test_gradients_are_those_of_the_dense_definition():
    problem = contraction_problem(*CASES["an output of no path"])
    weights, x, _, gb, elements = arrays(problem, "float64")
    c, ours = folded(problem, weights), engine(problem)
    w, t = torch.tensor(weights, requires_grad=True), torch.tensor(x, requires_grad=True)
    b = reference(problem, w[torch.tensor(elements)], t)
    gw, gt = torch.autograd.grad(b, (w, t), torch.tensor(gb), allow_unused=True)
    gx, gc = ours.gradients(c, x, elements, gb)
    assert close(ours.value(c, x, elements), b.detach().numpy())
    assert close(gx, gt.numpy())
    assert close(np.einsum("tk,etc->ekc", problem.folding, gc), gw.numpy())


def test_derivatives_along_directions_are_those_by_differences():
    problem, step = SMALL[3], 1e-5
    weights, x, h, gb, elements = arrays(problem, "float64")
    c, ours = folded(problem, weights), engine(problem)

    def difference(f):
        return (f(x + step * h) - f(x - step * h)) / (2 * step)

    for along, by_differences in (
        (ours.value(c, x, elements, h), difference(lambda x: ours.value(c, x, elements))),
        (ours.gradient(c, x, elements, gb, h), difference(lambda x: ours.gradient(c, x, elements, gb))),
        (ours.gradients(c, x, elements, gb, h)[1], difference(lambda x: ours.gradients(c, x, elements, gb)[1])),
    ):
        # The error of a central difference is step² times third derivatives, plus rounding errors over the step.
        assert np.abs(along - by_differences).max() < 1e-8 * np.abs(along).max()


def test_sums_repeat_bit_by_bit_unless_they_are_atomic(monkeypatch):
    """Nodes of an element lie in ranges of a fixed length, whatever the order in which groups run."""
    monkeypatch.setattr(on_gpu, "FEWEST", 3)
    problem = SMALL[2]
    weights, x, _, gb, elements = arrays(problem, "float32", nodes=40, elements=2)
    c = folded(problem, weights, "float32")
    monkeypatch.setattr(on_gpu, "RANGES", 10)
    first, *others = (engine(problem, "float32", order).gradients(c, x, elements, gb)[1] for order in ORDERS)
    for gc in others:
        np.testing.assert_array_equal(gc, first)
    assert close(engine(problem, "float32", atomic=True).gradients(c, x, elements, gb)[1], first, "float32")


@pytest.mark.parametrize("channels", [1, 4, 7])
@pytest.mark.parametrize("nodes", [0, 1])
def test_few_nodes_and_channels(channels, nodes):
    problem = contraction_problem(f"{channels}x1o", f"{channels}x0e+{channels}x1o", 2)
    weights, x, _, gb, elements = arrays(problem, "float64", nodes, elements=3)
    c, ours, theirs = folded(problem, weights), engine(problem), contraction_engine(problem, "float64")
    assert close(ours.value(c, x, elements), theirs.value(c, x, elements))
    for a, b in zip(ours.gradients(c, x, elements, gb), theirs.gradients(c, x, elements, gb), strict=True):
        assert close(a, b)


def test_nan_of_a_node_stays_with_it():
    problem = SMALL[2]
    weights, x, _, gb, elements = arrays(problem, "float64")
    x[1, :, 2] = np.nan
    ours = engine(problem)
    b, gx = ours.value(folded(problem, weights), x, elements), ours.gradient(folded(problem, weights), x, elements, gb)
    for result in (b, gx):
        assert np.isnan(result[1, :, 2]).any() and np.isnan(result).sum() == np.isnan(result[1, :, 2]).sum()


def test_one_error_for_wrong_operands():
    problem = SMALL[2]
    weights, x, _, gb, elements = arrays(problem, "float64")
    c, ours = folded(problem, weights), engine(problem)
    for wrong, message in (
        ((c, x, elements + 1), "found 2"),
        ((c, x, elements[:2]), "one for each node"),
        ((c, x[:, :2], elements), r"x: expected float64\[5, 4, 5\]"),
        ((c[:, :2], x, elements), "c: expected"),
        ((c, x.astype("float32"), elements), "found float32"),
    ):
        with pytest.raises(OperandError, match=message):
            ours.value(*wrong)
    with pytest.raises(OperandError, match="gb: expected"):
        ours.gradient(c, x, elements, gb[:, :1])
    with pytest.raises(OperandError, match="found -1"):
        ours.gradients(c, x, elements - 1, gb)
    assert ours.device.used == 0


def test_the_memory_of_ranges_is_bounded():
    assert on_gpu.longest_range(100, 1000) == on_gpu.FEWEST
    assert on_gpu.longest_range(100_000, 1000) == 391
    assert on_gpu.longest_range(100_000, on_gpu.KEPT // 10) == 10_000
    assert on_gpu.longest_range(100, 2 * on_gpu.KEPT) == 100


@pytest.mark.parametrize("dtype", BOUND)
def test_the_check_of_the_first_run_on_a_gpu(dtype):
    """All passes against dense sums, those of a step of training with forces included."""
    errors = contractions.check("tiny", dtype, SimulatedDevice(lanes=4))
    assert set(errors) == set(contractions.PASSES)
