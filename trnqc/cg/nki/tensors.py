"""Convolutions of tensors by kernels on their device.

Operands and results stay there. The host reads the edges, once for each pair of tensors, to divide them into windows.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence
from typing import Any

from trnqc.backends.neuron.device import NeuronDevice
from trnqc.backends.neuron.tensors import TensorDevice
from trnqc.backends.nki.accuracy import require_accuracy
from trnqc.backends.nki.launch import launched_on_host
from trnqc.cg.nki.convolution import NkiConvolution
from trnqc.cg.nki.rows import TensorRows
from trnqc.cg.problem.graph import KEPT, EdgeGraph, graph_of
from trnqc.cg.problem.text import problem_of
from trnqc.errors import InputError

# Recent lists of edges: their state, references to the tensors, and the graph.
_kept: list[tuple[Any, tuple[weakref.ref[Any], ...], EdgeGraph]] = []


def takes(device: Any, backend: str) -> bool:
    """Check whether `evaluate` computes tensors of this device. Raises InputError for another backend than "neuron".

    Tensors on the CPU are taken inside `trnqc.torch_ops.host_kernels` only.
    """
    if device.type == "cpu":
        return backend == "neuron" and bool(launched_on_host())
    if backend != "neuron":
        raise InputError(
            f"backend: expected 'neuron' for tensors on {device}, or tensors on the CPU; found {backend!r}"
        )
    return True


def evaluate(direction: str, text: str, operands: Sequence[Any], edges: Sequence[Any]) -> tuple[Any, ...]:
    """Return the results of a direction on the device of the float32 operands that `DIRECTIONS` lists; edges are int64.

    Raises EdgeIndexError, InputError, MemoryLimit, OperandError, UnsupportedError, UnsupportedMode, and
    UnsupportedPrecision if the device multiplies less accurately than fp32 promises.
    """
    convolution, (rows, cols) = _convolution(text, operands[0].device), edges
    require_accuracy(NeuronDevice(operands[0].device, convolution.device.cores), "fp32")
    return convolution.evaluate(direction, graph_of_tensors(rows, cols, len(operands[0])), operands)


@functools.lru_cache(maxsize=1024)
def _convolution(text: str, device: Any) -> NkiConvolution:
    where = TensorDevice(device)
    return NkiConvolution(problem_of(text), where, TensorRows(where))


def graph_of_tensors(rows: Any, cols: Any, n_nodes: int) -> EdgeGraph:
    """Return the graph of int64 edges [E], from a cache if the same tensors have not been written to since.

    Raises EdgeIndexError as `EdgeGraph` does.
    """
    ends = (rows, cols)
    if any(end.is_inference() for end in ends):  # These tensors do not count how often they are written to.
        return _read(ends, n_nodes)
    state = (n_nodes, *((end._version, _address(end)) for end in ends))
    for known, tensors, graph in _kept:
        if known == state and all(tensor() is end for tensor, end in zip(tensors, ends)):
            return graph
    graph = _read(ends, n_nodes)
    _kept[:] = [kept for kept in _kept if all(tensor() is not None for tensor in kept[1])][1 - KEPT :]
    _kept.append((state, tuple(map(weakref.ref, ends)), graph))
    return graph


def _read(ends: tuple[Any, Any], n_nodes: int) -> EdgeGraph:
    rows, cols = (end.cpu().numpy() for end in ends)
    return graph_of(rows, cols, n_nodes)


def _address(tensor: Any) -> int:
    """Return the address of a tensor's elements; tensors of PyTorch/XLA have none."""
    address: int = 0 if tensor.device.type == "xla" else tensor.data_ptr()
    return address
