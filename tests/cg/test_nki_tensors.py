"""Convolutions of tensors by kernels on their device, with the simulator or the reference in its place."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.nki_kernels.cg_launches import case, mace_layer  # noqa: E402
from trnqc import sim, torch_ops  # noqa: E402
from trnqc.backends.nki import launch as launches  # noqa: E402
from trnqc.backends.nki import vendor  # noqa: E402
from trnqc.cg import TensorProductConv, TPProblem  # noqa: E402
from trnqc.cg.nki import tensors as on_device  # noqa: E402
from trnqc.cg.torch import modules  # noqa: E402
from trnqc.errors import EdgeIndexError, InputError, OperandError, UnsupportedError, UnsupportedPrecision  # noqa: E402

# Sums of some hundred products of order one in fp32, relative to the largest.
CLOSE = 1e-5
SHARED = [(0, 0, 0, "uvu", True), (0, 1, 0, "uvu", False), (1, 0, 1, "uvu", True)]
PROBLEMS = {
    "mul_ir": mace_layer(3, l_y=1).changed(layout="mul_ir"),
    "shared weights": TPProblem("2x1o+3x0e", "2x0e+1e", "2x1o+3x0e", SHARED, shared_weights=True),
    "no weights": mace_layer(2, l_y=1, weighted=False),
}


def tensors_of(job):
    w = job.w[0] if job.problem.shared_weights else job.w
    weighted = job.problem.weight_numel > 0
    operands = [torch.from_numpy(a.copy()).requires_grad_() for a in (job.x, job.y, *([w] if weighted else []))]
    edges = torch.from_numpy(job.graph.rows.copy()), torch.from_numpy(job.graph.cols.copy())
    return operands, edges


def derivatives(conv, job):
    """z, and first and second derivatives of a number that depends on it."""
    operands, edges = tensors_of(job)
    weights = operands[2] if len(operands) == 3 else None
    z = conv(*operands[:2], weights, *edges)
    first = torch.autograd.grad((z**2).sum(), operands, create_graph=True)
    return z, *first, *torch.autograd.grad(sum((g**2).sum() for g in first), operands)


@pytest.mark.parametrize(
    "name, how", [*((name, "reference") for name in PROBLEMS), ("shared weights", "simulator")], ids=str
)
def test_derivatives_agree_with_the_cpu(name, how):
    problem = PROBLEMS[name]
    job = case(problem, 4, 9)
    with torch_ops.host_kernels(how):
        results = derivatives(TensorProductConv(problem, backend="neuron"), job)
    for result, expected in zip(results, derivatives(TensorProductConv(problem), job), strict=True):
        assert result.dtype == torch.float32 and result.shape == expected.shape
        assert (result - expected).abs().max() < CLOSE * expected.abs().max()


@pytest.fixture
def path(monkeypatch):
    """Tensors of the CPU take a path of the device up to the vendor's call, whose place the simulator takes."""
    launched = []

    class Wrapped:
        def __init__(self, kernel):
            self.kernel = kernel

        def __getitem__(self, grid):
            return lambda *args, **constants: self.run(args, constants)

        def run(self, args, constants):
            launched.append(args)
            results = sim.simulate(self.kernel)(*map(vendor.to_numpy, args), **constants)
            return tuple(map(torch.from_numpy, results)) if isinstance(results, tuple) else torch.from_numpy(results)

    def take(native: bool):
        module = ModuleType("torch_neuronx")
        module.wrap_nki = Wrapped
        monkeypatch.setitem(sys.modules, "torch_neuronx", module)
        monkeypatch.setattr(vendor, "_wrapped", Wrapped)

        def xla(kernel, args, constants):
            return Wrapped(kernel.function)[vendor.logical_cores()](*args, **constants)

        monkeypatch.setitem(launches._PATHS, "cpu", vendor.native if native else xla)
        return launched

    return take


@pytest.mark.parametrize("native", [True, False], ids=["native", "xla"])
def test_operands_are_launched_where_they_lie(path, native, monkeypatch):
    """The kernel gets the caller's tensors themselves, and nothing but single numbers and edges reaches the host."""
    job = case(mace_layer(2, l_y=1), 4, 9)
    operands, edges = tensors_of(job)
    copied = []
    original = torch.Tensor.cpu
    monkeypatch.setattr(torch.Tensor, "cpu", lambda self: copied.append(self.shape) or original(self))
    with torch_ops.host_kernels("simulator"):
        launched = path(native)
        conv = TensorProductConv(job.problem, backend="neuron")
        monkeypatch.setattr(on_device, "require_accuracy", lambda device, precision: None)
        z = conv(*operands, *edges)
        z.sum().backward()
        conv(*operands, *edges)
    assert [len(args) for args in launched] == [6, 9, 6]
    for args in launched:
        assert [a.data_ptr() for a in args[:3]] == [t.data_ptr() for t in operands]
    # Both ends of the edges, once for all launches; so are the tables and couplings of the two convolutions.
    assert copied == [edges[0].shape] * 2
    assert [a.data_ptr() for a in launched[0][3:]] == [a.data_ptr() for a in launched[2][3:]]


def test_edges_that_are_written_to_are_read_again():
    rows, cols = torch.tensor([0, 1]), torch.tensor([1, 0])
    first = on_device.graph_of_tensors(rows, cols, 2)
    assert on_device.graph_of_tensors(rows, cols, 2) is first
    assert on_device.graph_of_tensors(rows, cols, 3).n_nodes == 3
    rows[0] = 1
    assert list(on_device.graph_of_tensors(rows, cols, 2).rows) == [1, 1]
    with torch.inference_mode():
        ends = torch.tensor([0, 1]), torch.tensor([1, 0])
        assert list(on_device.graph_of_tensors(*ends, 2).rows) == [0, 1]
        ends[0][1] = 0
        assert list(on_device.graph_of_tensors(*ends, 2).rows) == [0, 0]


def test_the_operator_keeps_the_rules_of_pytorch():
    job = case(PROBLEMS["mul_ir"], 3, 5)
    operands, edges = tensors_of(job)
    conv = TensorProductConv(job.problem, backend="neuron")
    arguments = (*operands, *edges, conv._text, "neuron")
    with torch_ops.host_kernels("reference"):
        torch.library.opcheck(torch.ops.trnqc.cg_nki_conv_forward.default, arguments)


def test_bad_input_is_refused_on_the_device(monkeypatch):
    job = case(mace_layer(2), 3, 4)
    (x, y, w), edges = tensors_of(job)
    conv = TensorProductConv(job.problem, backend="neuron")
    with torch_ops.host_kernels("reference"):
        broken = y.detach().clone()
        broken[2, 0] = float("nan")
        with pytest.raises(OperandError, match="y: expected finite numbers, found NaN or infinity in row 2"):
            conv(x, broken, w, *edges)
        with pytest.raises(EdgeIndexError, match=r"rows: expected nodes 0 \.\. 2, found 7 at edge 0"):
            conv(x, y, w, torch.full_like(edges[0], 7), edges[1])
        with pytest.raises(UnsupportedPrecision, match="float32, in which NKI kernels compute"):
            conv(x.double(), y.double(), w.double(), *edges)
    with pytest.raises(InputError, match="backend: expected 'neuron' for tensors on xla:0"):
        on_device.takes(torch.device("xla:0"), "simulator")
    assert on_device.takes(torch.device("xla:0"), "neuron") and not on_device.takes(torch.device("cpu"), "neuron")


def test_auto_is_the_device_of_the_tensors(monkeypatch):
    """A device type that PyTorch has here stands for those of Trainium."""
    monkeypatch.setattr(modules, "TRAINIUM", ("cpu",))
    job = case(mace_layer(1), 2, 3)
    (x, y, w), edges = tensors_of(job)
    launched = []
    evaluate = on_device.evaluate
    monkeypatch.setattr(on_device, "evaluate", lambda *args: launched.append(args[0]) or evaluate(*args))
    with torch_ops.host_kernels("reference"):
        TensorProductConv(job.problem)(x, y, w, *edges).sum().backward()
    assert launched == ["forward", "backward"]
    with pytest.raises(UnsupportedError, match="kahan: expected operands on a CPU or a GPU"):
        TensorProductConv(job.problem, deterministic=True, kahan=True)(x, y, w, *edges)


def test_a_device_that_rounds_products_is_refused(monkeypatch):
    """As for all backends, fp32 is measured before its first use."""
    monkeypatch.setenv("TRNQC_SIM_FP32_PRODUCTS", "rounded")
    job = case(mace_layer(1), 2, 3)
    operands, edges = tensors_of(job)
    for backend, how in (("simulator", None), ("neuron", "simulator")):
        conv = TensorProductConv(job.problem, backend=backend)
        with torch_ops.host_kernels(how or "reference"), pytest.raises(UnsupportedPrecision, match="promises"):
            conv(*operands, *edges)


def test_results_do_not_depend_on_where_they_are_computed():
    """The simulator's engine for arrays and the tensors' launches run the same program."""
    job = case(mace_layer(4), 5, 30)
    operands, edges = tensors_of(job)
    with torch_ops.host_kernels("simulator"):
        there = TensorProductConv(job.problem, backend="neuron")(*operands, *edges)
    here = TensorProductConv(job.problem, backend="simulator")(*operands, *edges)
    np.testing.assert_array_equal(there.detach().numpy(), here.detach().numpy())
