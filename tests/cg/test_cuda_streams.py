"""Convolutions of tensors on a GPU: on PyTorch's stream, without waiting for the device, and in CUDA graphs.

A recording driver stands in for the GPU. It refuses calls that a CUDA graph cannot capture, and runs the CUDA text of
its kernels on the CPU.
"""

from __future__ import annotations

import copy

import pytest
import torch

from scripts.device.recorded_torch import STREAM, HostWaits, captured, torch_on
from scripts.device.recording_driver import CaptureError, RecordingDriver
from trnqc.cg import SymmetricContraction, TensorProductConv, TPProblem
from trnqc.cg.cuda import device_graph
from trnqc.cg.cuda.device_graph import DeviceGraph, device_segments
from trnqc.cg.cuda.segments import segments
from trnqc.cg.problem.graph import EdgeGraph
from trnqc.errors import UnsupportedError

NODES, EDGES = 3, 150


def problem(shared: bool = False) -> TPProblem:
    paths = [(0, 0, 0, "uvu", True), (1, 1, 0, "uvu", True)]
    return TPProblem("3x0e+3x1o", "0e+1o", "3x0e", paths, shared_weights=shared)


def operands(there: TPProblem, seed: int = 0) -> list[torch.Tensor]:
    """Operands x, y and w, and edges of which most lead to node 0, so that its edges have several segments."""
    torch.manual_seed(seed)
    (d1, d2, _), nw = there.dims, there.weight_numel
    w = torch.randn(nw) if there.shared_weights else torch.randn(EDGES, nw)
    rows, cols = torch.randint(NODES, (2, EDGES)) * (torch.rand(2, EDGES) < 0.5)
    return [*(t.double() for t in (torch.randn(NODES, d1), torch.randn(EDGES, d2), w)), rows, cols]


def results(conv: TensorProductConv, x, y, w, rows, cols) -> list[torch.Tensor]:
    """z, its gradients, and gradients of their squares."""
    inputs = [t.requires_grad_() for t in (x, y, w)]
    z = conv(*inputs, rows, cols)
    first = torch.autograd.grad((z * z).sum(), inputs, create_graph=True)
    second = torch.autograd.grad(sum((g * g).sum() for g in first), inputs)
    return [z, *first, *second]


def close(there, expected) -> None:
    for ours, theirs in zip(there, expected, strict=True):
        torch.testing.assert_close(ours.detach().host, theirs.detach(), rtol=1e-12, atol=1e-10)


@pytest.mark.parametrize("shared", [False, True])
def test_calls_are_captured_and_replayed_with_other_edges(shared):
    driver, conv = RecordingDriver(), TensorProductConv(problem(shared))
    own = operands(conv.problem)
    with torch_on(driver) as moved:
        inputs = [moved(t) for t in own]
        close(results(conv, *inputs), results(conv, *own))
        driver.calls.clear()
        results(conv, *inputs)
        assert {call.name for call in driver.calls} <= {"launch", "torch", "Device.set_current"}
        assert {call.stream for call in driver.calls if call.name == "launch"} == {STREAM}
        with captured(driver) as graph:
            there = results(conv, *inputs)
        others = operands(conv.problem, seed=1)
        for tensor, values in zip(inputs, others):
            tensor.host.copy_(values)
        graph.replay()
        close(there, results(conv, *others))


def test_waiting_for_the_device_is_an_error_here():
    """The stand-in refuses what the test above forbids."""
    driver = RecordingDriver()
    with torch_on(driver) as moved:
        x = moved(torch.arange(3))
        for wait in (lambda: x.cpu(), lambda: x.sum().item(), lambda: torch.cuda.current_stream().synchronize()):
            with pytest.raises(HostWaits):
                wait()
        device = torch.cuda.current_stream()
        assert device.cuda_stream == STREAM
    with pytest.raises(CaptureError, match="cuMemcpyHtoDAsync"), driver.capture(STREAM):
        driver._cuMemcpyHtoDAsync(0, 0, 0, 0)


@pytest.mark.parametrize("edges", [0, 1, 7, 65, 500])
def test_segments_on_the_device_are_those_of_the_host(edges):
    """Idle segments are empty and have the unused row; all others are those of the host, in the same order."""
    torch.manual_seed(edges)
    near, far = torch.randint(4, (2, edges))
    host = segments(EdgeGraph(near.numpy(), far.numpy(), 6).by_receiver, longest=5)
    there = device_segments(near, far, 6, longest=5)
    used, cut = len(host), len(host.cut)
    for name in ("begin", "end", "node", "target"):
        assert getattr(there, name)[:used].tolist() == getattr(host, name).tolist()
    assert there.order.tolist() == host.order.tolist() and there.far.tolist() == host.far.tolist()
    for name in ("begin", "end", "row"):
        assert getattr(there.cut, name)[:cut].tolist() == getattr(host.cut, name).tolist()
    assert (there.begin[used:] == there.end[used:]).all()
    idle = [*there.target[used:].tolist(), *there.cut.row[cut:].tolist()]
    assert set(idle) <= {there.rows - 1} and (not idle or there.rows > host.rows)


def test_segments_are_kept_until_the_edges_change():
    rows, cols = torch.randint(3, (2, 40))
    graph = DeviceGraph(rows, cols, 3)
    with torch_on(RecordingDriver()):
        first = graph.segments("receiver")
        assert DeviceGraph(rows, cols, 3).segments("receiver") is first
        assert graph.segments("sender") is not first
        rows[0] = 1 - rows[0].clamp(max=1)
        assert graph.segments("receiver") is not first
    assert len(device_graph._kept) <= device_graph.KEPT


def test_layers_that_take_their_edges_from_one_tensor_share_segments():
    """As MACE's do: each has views of its own on ``edge_index``."""
    edge_index = torch.randint(3, (2, 40))
    with torch_on(RecordingDriver()):
        first = DeviceGraph(edge_index[0], edge_index[1], 3).segments("receiver")
        assert DeviceGraph(edge_index[0], edge_index[1], 3).segments("receiver") is first
        assert DeviceGraph(edge_index[0, ::2], edge_index[1, ::2], 3).segments("receiver") is not first
        edge_index[1, 5] = 1 - edge_index[1, 5].clamp(max=1)
        changed = DeviceGraph(edge_index[0], edge_index[1], 3).segments("receiver")
        assert changed is not first and changed.far.tolist() != first.far.tolist()


def test_segments_of_inference_tensors_are_those_of_their_present_edges():
    with torch.inference_mode(), torch_on(RecordingDriver()):
        rows, cols = torch.randint(3, (2, 40))
        first = DeviceGraph(rows, cols, 3).segments("receiver")
        cols[5] = 1 - cols[5].clamp(max=1)
        assert DeviceGraph(rows, cols, 3).segments("receiver").far.tolist() != first.far.tolist()


def test_a_node_out_of_range_is_an_assertion_on_the_device():
    with pytest.raises(RuntimeError, match=r"edges between the nodes 0 \.\. 2"):
        device_segments(torch.tensor([0, 3]), torch.tensor([0, 1]), 3)


def test_segments_are_longer_where_there_are_many_nodes():
    assert device_graph.longest_segment(100, 10_000) == 64
    assert device_graph.longest_segment(10_000, 500_000) == 200


def test_the_first_call_cannot_be_captured():
    driver, conv = RecordingDriver(), TensorProductConv(problem())
    refused = pytest.raises(UnsupportedError, match=r"conv_forward is not loaded yet.* call the module once")
    with torch_on(driver) as moved, captured(driver), refused:
        conv(*(moved(t) for t in operands(conv.problem)))


def test_a_single_edge_and_nan():
    """A NaN in x reaches the nodes to which its node sends, and nothing else."""
    conv, one = TensorProductConv(problem()), torch.tensor([1])
    x, y, w, _, _ = operands(conv.problem)
    x[0] = torch.nan
    with torch_on(RecordingDriver()) as moved:
        for sender, receiver in ((0, 1), (2, 1)):
            z = conv(*map(moved, (x, y[:1], w[:1], one, one * 0 + sender))).host
            assert z[receiver].isnan().any() == (sender == 0) and not z[[0, 2]].any()


def contraction_case(seed: int = 0, nodes: int = 19) -> tuple[SymmetricContraction, list[torch.Tensor]]:
    """A contraction of three elements, its features, elements and weights."""
    torch.manual_seed(seed)
    module = SymmetricContraction("3x0e+3x1o", "3x0e+3x1o", 3, num_elements=3, internal_weights=False).double()
    x, w = torch.randn(nodes, 3, 4).double(), torch.randn(3, module.weight_numel, 3).double()
    return module, [x, torch.randint(3, (nodes,)), w]


def contracted(module: SymmetricContraction, x, elements, w) -> list[torch.Tensor]:
    """B, its gradients, and gradients of their squares."""
    inputs = [t.requires_grad_() for t in (x, w)]
    b = module(x, elements, w)
    first = torch.autograd.grad((b * b).sum(), inputs, create_graph=True)
    second = torch.autograd.grad(sum((g * g).sum() for g in first), inputs)
    return [b, *first, *second]


def test_contractions_are_captured_and_replayed_with_other_elements():
    driver, (module, own) = RecordingDriver(), contraction_case()
    wanted = contracted(module, *own)
    with torch_on(driver) as moved:
        inputs = [moved(t) for t in own]
        module.folding = moved(module.folding)
        close(contracted(module, *inputs), wanted)
        driver.calls.clear()
        contracted(module, *inputs)
        assert {call.name for call in driver.calls} <= {"launch", "torch", "Device.set_current"}
        assert {call.stream for call in driver.calls if call.name == "launch"} == {STREAM}
        with captured(driver) as graph:
            there = contracted(module, *inputs)
        _, others = contraction_case(seed=1)
        for tensor, values in zip(inputs, others):
            tensor.host.copy_(values)
        graph.replay()
    module, _ = contraction_case()
    close(there, contracted(module, *others))


class Layer(torch.nn.Module):
    """A layer of MACE: convolution, linear map of channels, contraction with weights of elements, and scalars."""

    def __init__(self, deterministic: bool) -> None:
        super().__init__()
        paths = [(0, 0, 0, "uvu", True), (0, 1, 1, "uvu", True), (1, 1, 0, "uvu", True)]
        problem = TPProblem("3x0e+3x1o", "0e+1o", "3x0e+3x1o", paths, shared_weights=False)
        self.conv = TensorProductConv(problem, deterministic=deterministic)
        self.contract = SymmetricContraction("3x0e+3x1o", "3x0e+3x1o", 2, num_elements=2)
        self.mix = torch.nn.ParameterList([torch.randn(3, 3), torch.randn(3, 3)])

    def moved(self, move) -> Layer:
        """The same layer with parameters and buffers moved by a function."""
        there = copy.deepcopy(self)
        for module in there.modules():
            for name, tensor in (*module._parameters.items(), *module._buffers.items()):
                if tensor is not None:
                    requires = tensor.requires_grad
                    delattr(module, name)
                    setattr(module, name, move(tensor).requires_grad_(requires))
        return there

    def energy(self, x, y, w, rows, cols, one_hot):
        message = self.conv(x, y, w, rows, cols)
        slots = (part.reshape(len(x), 3, -1) for part in message.split([3, 9], 1))
        mixed = torch.cat([torch.matmul(m, part) for m, part in zip(self.mix, slots)], 2)
        return (self.contract(mixed, one_hot)[:, :3] ** 2).sum()


def training_step(layer: Layer, x, y, w, rows, cols, one_hot) -> list[torch.Tensor]:
    """Energy, its gradients, and the gradients of their squares with respect to the parameters.

    The gradients of all operands are in the loss: PyTorch creates those that are missing where autograd says tensors
    are, which is the CPU here.
    """
    inputs = [t.requires_grad_() for t in (x, y, w)]
    energy = layer.energy(*inputs, rows, cols, one_hot)
    first = torch.autograd.grad(energy, inputs, create_graph=True)
    parameters = [layer.contract.weight, layer.mix[0], layer.mix[1]]
    return [energy, *first, *torch.autograd.grad(sum((g * g).sum() for g in first), parameters)]


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_layer_of_mace_stays_on_the_device(deterministic):
    """A step of training with forces: no wait, one stream, and the results of the CPU."""
    torch.manual_seed(0)
    driver, layer = RecordingDriver(), Layer(deterministic).double()
    own = [*operands(layer.conv.problem), torch.nn.functional.one_hot(torch.tensor([1, 0, 1]), 2).double()]
    with torch_on(driver) as moved:
        there, inputs = layer.moved(moved), [moved(t) for t in own]
        close(training_step(there, *inputs), training_step(layer, *own))
        driver.calls.clear()
        training_step(there, *inputs)
        assert {call.name for call in driver.calls} <= {"launch", "torch", "Device.set_current"}
        assert {call.stream for call in driver.calls if call.name == "launch"} == {STREAM}
        kernels = [call.detail for call in driver.calls if call.name == "launch"]
        assert any("contraction_gradients_1" in kernel for kernel in kernels), kernels


def test_an_element_out_of_range_and_vectors_that_are_not_one_hot_are_assertions_on_the_device():
    module, (x, elements, w) = contraction_case()
    with torch_on(RecordingDriver()) as moved:
        module.folding = moved(module.folding)
        with pytest.raises(RuntimeError, match=r"elements with the numbers 0 \.\. 2"):
            module(moved(x), moved(elements + 1), moved(w))
        with pytest.raises(RuntimeError, match="one-hot"):
            module(moved(x), moved(torch.ones(len(x), 3)), moved(w))
