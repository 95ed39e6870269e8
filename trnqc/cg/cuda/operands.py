"""Operands and results of a launch: NumPy arrays, copied to the device and back, or PyTorch tensors that lie there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from trnqc.errors import OperandError
from trnqc.jit.device import Device, Memory

Shapes = Mapping[str, tuple[int, ...]]


class HostArrays:
    """NumPy arrays by name, and `memories` of theirs on the device, which are given back with the results."""

    def __init__(self, device: Device, arrays: Mapping[str, np.ndarray]) -> None:
        self.device, self.dtype = device, next(iter(arrays.values())).dtype
        self.memories = {name: device.upload(np.ascontiguousarray(array)) for name, array in arrays.items()}

    def room(self, shapes: Shapes, clear: set[str], outs: Mapping[str, Any]) -> HostRoom:
        """Memory for results; outs: arrays that take some of them."""
        memories = {name: self.device.zeros(*shape, dtype=self.dtype) for name, shape in shapes.items()}
        return HostRoom(self, memories, dict(outs))


class HostRoom:
    """Results on the device, to be copied from there."""

    def __init__(self, operands: HostArrays, memories: dict[str, Memory], outs: dict[str, Any]) -> None:
        self.operands, self.memories, self.outs = operands, memories, outs

    def results(self, shapes: Shapes) -> tuple[np.ndarray, ...]:
        """The first rows of each, as many as its shape has."""
        device, found = self.operands.device, []
        for name, memory in self.memories.items():
            array = _first(device.download(memory), shapes[name])
            if name in self.outs:
                self.outs[name][...] = array
                array = self.outs[name]
            found.append(array)
        device.release(*self.operands.memories.values(), *self.memories.values())
        return tuple(found)


class Tensors:
    """PyTorch tensors by name, in the device's memory; launches wait for what is under way on their stream."""

    def __init__(self, device: Device, tensors: Mapping[str, Any]) -> None:
        self.device, self.model = device, next(iter(tensors.values()))
        wrong = [name for name, t in tensors.items() if not t.is_cuda]
        if wrong:
            raise OperandError(f"expected tensors on {device.name}, found {', '.join(wrong)} on another device")
        self.tensors = {name: t.contiguous() for name, t in tensors.items()}
        self.memories = {name: _memory(t) for name, t in self.tensors.items()}

    def room(self, shapes: Shapes, clear: set[str], outs: Mapping[str, Any]) -> TensorRoom:
        """Tensors for results; what is in `clear` starts from zero."""
        new = {name: self.model.new_zeros if name in clear else self.model.new_empty for name in shapes}
        made = {name: outs[name] if name in outs else new[name](shape) for name, shape in shapes.items()}
        import torch

        torch.cuda.current_stream(self.model.device).synchronize()
        return TensorRoom(self, made)


class TensorRoom:
    """Results as tensors, complete when the device has come to rest."""

    def __init__(self, operands: Tensors, made: dict[str, Any]) -> None:
        self.operands, self.made = operands, made
        self.memories = {name: _memory(t) for name, t in made.items()}

    def results(self, shapes: Shapes) -> tuple[Any, ...]:
        """The first rows of each, as many as its shape has."""
        self.operands.device.synchronize()
        return tuple(_first(t, shapes[name]) for name, t in self.made.items())


def operands_of(device: Device, arrays: Mapping[str, Any]) -> HostArrays | Tensors:
    """Raises OperandError for tensors that lie elsewhere, MemoryLimit when arrays do not fit."""
    if all(isinstance(array, np.ndarray) for array in arrays.values()):
        return HostArrays(device, arrays)
    return Tensors(device, arrays)


def _first(array: Any, shape: tuple[int, ...]) -> Any:
    return array[0] if array.ndim > len(shape) else array[: shape[0]]


def _memory(tensor: Any) -> Memory:
    return Memory(tensor.data_ptr(), tuple(tensor.shape), np.dtype(str(tensor.dtype).removeprefix("torch.")))
