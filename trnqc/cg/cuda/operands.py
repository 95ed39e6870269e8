"""Operands and results of a launch: NumPy arrays, which are copied, or PyTorch tensors in the device's memory."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from trnqc.cg.cuda.device_graph import DeviceGraph, is_capturing
from trnqc.cg.cuda.segments import Segments, segments
from trnqc.cg.problem.graph import EdgeGraph
from trnqc.errors import OperandError, UnsupportedError
from trnqc.jit.device import Argument, BuiltKernel, Device, DeviceArray, ExternalStream

Shapes = Mapping[str, tuple[int, ...]]


class LaunchOperands(Protocol):
    """The operands and results of one launch by name."""

    memories: dict[str, DeviceArray]

    def allocate(self, shapes: Shapes, zeroed: set[str], outs: Mapping[str, Any]) -> None:
        """Add results to `memories`, in arrays of the caller where `outs` has them.

        Results in `zeroed` start from zero; the initial values of others are not defined.
        """

    def segments(self, graph: Any, by: str) -> tuple[Segments, dict[str, DeviceArray]]:
        """Return the segments of a graph's edges by "receiver" or "sender", and their arrays in the device's memory.

        The ranges of rows that are added up afterwards are named cut_begin, cut_end and cut_row.
        """

    def ranges(self, parts: Segments) -> dict[str, DeviceArray]:
        """Return the arrays of segments in the device's memory, where they stay as long as the results."""

    def launch(self, built: BuiltKernel, groups: int, arguments: Mapping[str, Argument]) -> None:
        """Launch a kernel after all earlier work on the operands, without waiting for it."""

    def results(self, shapes: Shapes) -> dict[str, Any]:
        """Return the first rows of each result, as many as its shape has."""


class HostArrays:
    """NumPy arrays, which are copied to the device. Their memory on the device is released with the results."""

    def __init__(self, device: Device, arrays: Mapping[str, np.ndarray]) -> None:
        self.device, self.dtype = device, next(iter(arrays.values())).dtype
        self.memories = {name: device.upload(np.ascontiguousarray(array)) for name, array in arrays.items()}
        self.outs: Mapping[str, Any] = {}

    def allocate(self, shapes: Shapes, zeroed: set[str], outs: Mapping[str, Any]) -> None:
        """See `LaunchOperands`; all results start from zero."""
        self.outs = outs
        self.memories |= {name: self.device.zeros(*shape, dtype=self.dtype) for name, shape in shapes.items()}

    def segments(self, graph: EdgeGraph, by: str) -> tuple[Segments, dict[str, DeviceArray]]:
        """See `LaunchOperands`; the arrays are kept with the graph."""
        kept = _segments.setdefault(graph, {})
        if (self.device, by) not in kept:
            parts = segments(graph.by_receiver if by == "receiver" else graph.by_sender)
            kept[self.device, by] = parts, {n: self.device.upload(a) for n, a in _arrays_of(parts).items()}
        return kept[self.device, by]

    def ranges(self, parts: Segments) -> dict[str, DeviceArray]:
        """See `LaunchOperands`."""
        arrays = {name: self.device.upload(array) for name, array in _arrays_of(parts).items()}
        self.memories |= {f"of ranges, {name}": memory for name, memory in arrays.items()}
        return arrays

    def launch(self, built: BuiltKernel, groups: int, arguments: Mapping[str, Argument]) -> None:
        """See `LaunchOperands`."""
        self.device.launch(built, groups, arguments)

    def results(self, shapes: Shapes) -> dict[str, np.ndarray]:
        """See `LaunchOperands`."""
        arrays = {name: _first(self.device.download(self.memories[name]), shape) for name, shape in shapes.items()}
        for name, out in self.outs.items():
            out[...] = arrays[name]
        self.device.release(*self.memories.values())
        return arrays | dict(self.outs)


class DeviceTensors:
    """PyTorch tensors in the device's memory.

    Kernels are launched on PyTorch's current stream, and memory is PyTorch's. The host never waits, so that calls can
    be captured in a CUDA graph.
    """

    def __init__(self, device: Device, tensors: Mapping[str, Any]) -> None:
        self.device, self.model = device, next(iter(tensors.values()))
        wrong = [name for name, t in tensors.items() if not t.is_cuda]
        if wrong:
            raise OperandError(f"expected tensors on {device.name}, found {', '.join(wrong)} on another device")
        self.tensors = {name: t.contiguous() for name, t in tensors.items()}
        self.memories = {name: _memory(t) for name, t in self.tensors.items()}

    def allocate(self, shapes: Shapes, zeroed: set[str], outs: Mapping[str, Any]) -> None:
        """See `LaunchOperands`."""
        new = {name: self.model.new_zeros if name in zeroed else self.model.new_empty for name in shapes}
        created = {name: outs[name] if name in outs else new[name](shape) for name, shape in shapes.items()}
        self.tensors |= created
        self.memories |= {name: _memory(t) for name, t in created.items()}

    def segments(self, graph: DeviceGraph, by: str) -> tuple[Segments, dict[str, DeviceArray]]:
        """See `LaunchOperands`; the arrays are computed on the device."""
        parts = graph.segments(by)
        return parts, self.ranges(parts)

    def ranges(self, parts: Segments) -> dict[str, DeviceArray]:
        """See `LaunchOperands`. The caller keeps the segments until the last launch."""
        return {name: _memory(t) for name, t in _arrays_of(parts).items()}

    def launch(self, built: BuiltKernel, groups: int, arguments: Mapping[str, Argument]) -> None:
        """See `LaunchOperands`. PyTorch's current device does not change."""
        import torch

        with torch.cuda.device(self.model.device):
            stream = ExternalStream(torch.cuda.current_stream().cuda_stream)
            self.device.launch(built, groups, arguments, stream)

    def results(self, shapes: Shapes) -> dict[str, Any]:
        """See `LaunchOperands`. The device may still be computing the results."""
        return {name: _first(self.tensors[name], shape) for name, shape in shapes.items()}


def refuse_capture(name: str) -> None:
    """Raise UnsupportedError while a CUDA graph is captured, in which kernel `name` cannot be loaded."""
    if is_capturing():
        raise UnsupportedError(
            f"the kernel {name} is not loaded yet, which a CUDA graph cannot capture: call the module once before, "
            "with the same derivatives"
        )


def operands_of(device: Device, arrays: Mapping[str, Any]) -> LaunchOperands:
    """Return the operands of a launch.

    Raises OperandError for tensors on another device, MemoryLimit if arrays do not fit.
    """
    if all(isinstance(array, np.ndarray) for array in arrays.values()):
        return HostArrays(device, arrays)
    return DeviceTensors(device, arrays)


# Segments of the graphs of NumPy arrays, by device and end, for as long as a graph exists.
_segments: weakref.WeakKeyDictionary[EdgeGraph, dict[tuple[Device, str], tuple[Segments, dict[str, DeviceArray]]]]
_segments = weakref.WeakKeyDictionary()


def _arrays_of(parts: Segments) -> dict[str, Any]:
    arrays = {name: getattr(parts, name) for name in ("begin", "end", "node", "target", "order", "far")}
    return arrays | {f"cut_{name}": getattr(parts.cut, name) for name in ("begin", "end", "row")}


def _first(array: Any, shape: tuple[int, ...]) -> Any:
    return array[0] if array.ndim > len(shape) else array[: shape[0]]


def _memory(tensor: Any) -> DeviceArray:
    return DeviceArray(tensor.data_ptr(), tuple(tensor.shape), np.dtype(str(tensor.dtype).removeprefix("torch.")))
