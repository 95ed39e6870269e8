"""Convolutions by NKI kernels on the simulator: the engine and the module against the generated C kernels."""

from __future__ import annotations

import numpy as np
import pytest

from tests.nki_kernels.cg_launches import case, mace_layer
from trnqc.cg import TPProblem
from trnqc.cg.cpu.engine import engine_for
from trnqc.cg.nki.engine import NkiEngine
from trnqc.cg.problem.graph import EdgeGraph
from trnqc.errors import (
    EdgeIndexError,
    InputError,
    OperandError,
    UnsupportedError,
    UnsupportedMode,
    UnsupportedPrecision,
)

# Sums of some hundred products of order one in fp32, relative to the largest.
CLOSE = 3e-6
DIRECTIONS = {"forward": 3, "backward": 4, "double_backward": 7}
SHARED = [(0, 0, 0, "uvu", True), (0, 1, 0, "uvu", False), (1, 0, 1, "uvu", True)]


def wide(array):
    return np.asarray(array, np.float64)


def operands_of(job, rng):
    """x, y, w, gz, ggx, ggy, ggw."""
    w = job.w[0] if job.problem.shared_weights else job.w
    seconds = [rng.standard_normal(a.shape).astype(np.float32) for a in (job.x, job.y, w)]
    return [job.x, job.y, w, job.gz, *seconds]


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(
    "job",
    [
        case(mace_layer(1), 1, 1),
        case(mace_layer(5).changed(layout="mul_ir"), 7, 150),
        case(TPProblem("5x1o+3x2e", "3x0e+1e+2x3o", "5x1o+3x2e", SHARED, shared_weights=True), 6, 20),
    ],
    ids=["one of each", "primes, mul_ir", "shared weights, channels of y"],
)
def test_engine_agrees_with_the_generated_kernels(direction, job):
    operands = operands_of(job, np.random.default_rng(3))[: DIRECTIONS[direction]]
    results = getattr(NkiEngine(job.problem), f"conv_{direction}")(*operands, job.graph)
    expected = getattr(engine_for(job.problem, "float64", 1), f"conv_{direction}")(*map(wide, operands), job.graph)
    if direction == "forward":
        results, expected = (results,), (expected,)
    for result, other in zip(results, expected, strict=True):
        assert result.dtype == np.float32 and np.isfinite(result).all()
        assert result.shape == other.shape and np.abs(result - other).max() < CLOSE * np.abs(other).max()


def test_a_layer_of_mace_has_fp32_accuracy():
    """128x0e+128x1o and harmonics up to degree 3, forward and backward."""
    job = case(mace_layer(128), 6, 40)
    engine, reference = NkiEngine(job.problem), engine_for(job.problem, "float64", 1)
    operands = (job.x, job.y, job.w, job.gz)
    z, expected = (
        engine.conv_forward(*operands[:3], job.graph),
        reference.conv_forward(*map(wide, operands[:3]), job.graph),
    )
    assert np.abs(z - expected).max() < CLOSE * np.abs(expected).max()
    gradients = engine.conv_backward(*operands, job.graph)
    for result, other in zip(gradients, reference.conv_backward(*map(wide, operands), job.graph), strict=True):
        assert np.abs(result - other).max() < CLOSE * np.abs(other).max()


def test_no_edges_give_zeros():
    job = case(mace_layer(2), 3, 4)
    graph = EdgeGraph(np.zeros(0, np.int64), np.zeros(0, np.int64), 3)
    z = NkiEngine(job.problem).conv_forward(job.x, job.y[:0], job.w[:0], graph)
    assert z.shape == (3, job.problem.dims[2]) and not z.any()


def test_the_module_is_differentiable_twice():
    torch = pytest.importorskip("torch")
    from trnqc.cg import TensorProductConv

    job = case(mace_layer(2, l_y=1), 4, 9)
    rows, cols = torch.from_numpy(job.graph.rows), torch.from_numpy(job.graph.cols)

    def gradients(conv):
        x, y, w = (torch.from_numpy(a.copy()).requires_grad_() for a in (job.x, job.y, job.w))
        z = conv(x, y, w, rows, cols)
        (gx,) = torch.autograd.grad((z**2).sum(), x, create_graph=True)
        return (z, gx, *torch.autograd.grad((gx**2).sum(), (x, y, w)))

    results = gradients(TensorProductConv(job.problem, backend="simulator"))
    for result, expected in zip(results, gradients(TensorProductConv(job.problem)), strict=True):
        assert (result - expected).abs().max() < 1e-5 * expected.abs().max()


def test_bad_input_is_refused():
    job = case(mace_layer(2), 3, 4)
    engine, graph = NkiEngine(job.problem), job.graph
    with pytest.raises(OperandError, match="x: expected shape"):
        engine.conv_forward(job.x[:, :-1], job.y, job.w, graph)
    with pytest.raises(OperandError, match="w: expected a float32 array"):
        engine.conv_forward(job.x, job.y, job.w.astype(np.float64), graph)
    broken = job.y.copy()
    broken[2, 0] = np.nan
    with pytest.raises(OperandError, match="y: expected finite numbers, found NaN or infinity in row 2"):
        engine.conv_forward(job.x, broken, job.w, graph)
    with pytest.raises(EdgeIndexError, match=r"rows: expected nodes 0 \.\. 2, found 7 at edge 1"):
        EdgeGraph(np.array([0, 7]), np.array([0, 1]), 3)
    with pytest.raises(UnsupportedError, match="over a graph"):
        engine.forward(job.x, job.y, job.w)
    with pytest.raises(InputError, match="backend: expected one of simulator, neuron; found 'cpu'"):
        NkiEngine(job.problem, "cpu")
    with pytest.raises(UnsupportedPrecision, match="float64"):
        NkiEngine(job.problem.changed(dtype="float64"))
    with pytest.raises(UnsupportedMode, match="mode uvu, found uvw"):
        NkiEngine(TPProblem("2x0e", "0e", "2x0e", [(0, 0, 0, "uvw", True)]))
