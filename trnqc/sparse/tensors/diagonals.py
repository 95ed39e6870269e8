"""Diagonals of operands, and operands without axes of extent one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from trnqc.arrays import is_tensor
from trnqc.errors import OperandError
from trnqc.sparse.network.views import OperandView
from trnqc.sparse.tensors.checks import plain_array
from trnqc.sparse.tensors.convert import as_tensor
from trnqc.sparse.tensors.storage import SparseTensor, from_coo


def viewed(operands: Sequence[Any], views: Sequence[OperandView]) -> tuple[Any, ...]:
    """Return operands as their views: an operand itself, or a NumPy array, `SparseTensor` or tensor of PyTorch.

    Operands that are the same object and have the same view give one object. Views of PyTorch's tensors have their
    derivatives. Raises OperandError for a view of an operand of another shape, which it names.
    """
    known: dict[tuple[int, OperandView], Any] = {}
    for number, (operand, view) in enumerate(zip(operands, views, strict=True)):
        if (id(operand), view) not in known:
            known[id(operand), view] = operand if view.is_plain else _view(operand, view, number)
    return tuple(known[id(operand), view] for operand, view in zip(operands, views))


def _view(operand: Any, view: OperandView, number: int) -> Any:
    if tuple(operand.shape) != view.shape:
        raise OperandError(f"operand {number} must have the shape {view.shape}; found {tuple(operand.shape)}")
    if is_tensor(operand):
        torch = sys.modules["torch"]
        if operand.layout is torch.strided:
            return _diagonals(operand, view, torch.movedim)
        from trnqc.sparse.tensors.torch_values import viewed_values

        return viewed_values(operand, view)
    if isinstance(operand, np.ndarray):
        return _diagonals(plain_array(operand, "the array"), view, np.moveaxis)
    tensor = as_tensor(operand)
    if tensor.ndim and "compressed" not in tensor.kinds:
        return _diagonals(tensor.to_dense(), view, np.moveaxis)
    return _of_elements(tensor, view)


def _of_elements(tensor: SparseTensor, view: OperandView) -> SparseTensor:
    coordinates, values = tensor.elements()
    kept = np.ones(coordinates.shape[1], bool)
    for axis, mode in enumerate(view.modes):
        if mode is not None:
            kept &= coordinates[axis] == coordinates[view.axes[mode]]
    rows = coordinates[list(view.axes)][:, kept]
    shape = [view.shape[axis] for axis in view.axes]
    return replace(from_coo(shape, rows, None if tensor.values is None else values[kept]), dtype=tensor.dtype)


def _diagonals(array: Any, view: OperandView, moved: Callable[..., Any]) -> Any:
    """Return the view of an array of NumPy or a strided tensor of PyTorch, in the same memory."""
    modes = list(view.modes)
    for axis in reversed([axis for axis, mode in enumerate(modes) if mode is None]):
        array = array.squeeze(axis)
        del modes[axis]
    for mode in set(modes):
        while modes.count(mode) > 1:
            first, second = [axis for axis, other in enumerate(modes) if other == mode][:2]
            array = moved(array.diagonal(0, first, second), -1, first)
            del modes[second]
    return array
