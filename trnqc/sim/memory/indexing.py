"""Square-bracket indexing of tensors: integers, slices, ``...`` and ``nl.ds``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from trnqc.sim.machine.faults import NkiValidationError
from trnqc.sim.memory import views

if TYPE_CHECKING:
    from trnqc.sim.memory.tensor import NkiTensor


@dataclass(frozen=True)
class DynamicSlice:
    """The ``size`` elements from ``start`` on; the simulator takes compile-time integers only."""

    start: Any
    size: int


def ds(start: Any, size: int) -> DynamicSlice:
    """Return the slice ``start : start + size``."""
    return DynamicSlice(start, size)


def resolve_key(tensor: NkiTensor, key: Any) -> NkiTensor:
    """Return the view ``tensor[key]``.

    Integers remove their dimension, with three exceptions: dimension 0 of an on-chip tensor stays with size 1, on-chip
    views keep at least two dimensions, and HBM views keep at least one.
    """
    if type(key) is not tuple:
        key = (key,)
    if Ellipsis in key or len(key) < tensor.ndim:
        key = _expand(tensor, key)
    if len(key) > tensor.ndim:
        raise NkiValidationError(f"too many indices for `{tensor.name}` of shape {tensor.shape}: {len(key)}")
    if tensor.dynamic is not None or any(hasattr(k, "storage") or hasattr(k, "frozen") for k in key):
        return _index_one_by_one(tensor, key)
    offset = tensor.offset
    shape: list[int] = []
    strides: list[int] = []
    last = None
    for dim, (k, n, stride) in enumerate(zip(key, tensor.shape, tensor.strides, strict=True)):
        start, end, step, drops = _bounds(tensor, dim, k, n)
        offset += start * stride
        if drops and (dim > 0 or not tensor.on_chip):
            last = (len(shape), stride)
            continue
        shape.append(-((start - end) // step))
        strides.append(stride * step)
    if last is not None and len(shape) < (2 if tensor.on_chip else 1):
        shape.insert(last[0], 1)
        strides.insert(last[0], last[1])
    return tensor._view(shape, strides, offset)


def _expand(tensor: NkiTensor, key: tuple[Any, ...]) -> tuple[Any, ...]:
    """Replace ``...`` and missing indices by full slices."""
    dots = [i for i, k in enumerate(key) if k is Ellipsis]
    if len(dots) > 1:
        raise NkiValidationError(f"at most one `...` in an index, got {len(dots)}")
    at = dots[0] if dots else len(key)
    fill = tensor.ndim - (len(key) - len(dots))
    return (*key[:at], *([slice(None)] * fill), *key[at + len(dots) :])


def _bounds(tensor: NkiTensor, dim: int, k: Any, n: int) -> tuple[int, int, int, bool]:
    """Return (start, end, step, whether the dimension goes away) for index ``k`` on a dimension of size ``n``."""
    if isinstance(k, slice):
        step = 1 if k.step is None else int(k.step)
        start = 0 if k.start is None else _wrap(k.start, n)
        end = n if k.stop is None else _wrap(k.stop, n)
        if dim == 0 and step != 1 and tensor.on_chip:
            raise NkiValidationError(f"slice on the partition dimension must have step 1, got {step}")
        views.check_range(tensor.name, dim, n, start, end, step)
        return start, end, step, False
    if isinstance(k, DynamicSlice):
        start, size = k.start, k.size
        if not isinstance(start, (int, np.integer)) or not isinstance(size, (int, np.integer)):
            raise NkiValidationError(f"nl.ds start and size must be compile-time integers, got {k}")
        views.check_range(tensor.name, dim, n, int(start), int(start) + int(size), 1)
        return int(start), int(start) + int(size), 1, False
    if isinstance(k, (int, np.integer)) and not isinstance(k, bool):
        start = _wrap(k, n)
        views.check_range(tensor.name, dim, n, start, start + 1, 1)
        return start, start + 1, 1, True
    raise NkiValidationError(f"index of `{tensor.name}` must be an integer, a slice, `...` or nl.ds, got {k!r}")


def _wrap(i: Any, n: int) -> int:
    if not isinstance(i, (int, np.integer)):
        raise NkiValidationError(f"slice bounds must be compile-time integers, got {i!r}")
    return int(i) + n if i < 0 else int(i)


def _index_one_by_one(tensor: NkiTensor, key: tuple[Any, ...]) -> NkiTensor:
    """Apply a key with a runtime index from the last dimension to the first, so that dimension numbers stay valid."""
    for dim in reversed(range(len(key))):
        k = key[dim]
        if hasattr(k, "storage") or hasattr(k, "frozen"):
            tensor = tensor.select(dim, k)
            continue
        start, end, step, drops = _bounds(tensor, dim, k, tensor.shape[dim])
        if (start, end, step, drops) == (0, tensor.shape[dim], 1, False):
            continue
        tensor = tensor.select(dim, start) if drops else tensor.slice(dim, start, end, step)
    return tensor
