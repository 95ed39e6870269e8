"""Differences between array libraries.

The library is the one that made the operands; nothing here imports another one than NumPy.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from string import ascii_letters
from types import ModuleType
from typing import Any

import numpy as np

from trnqc.arrays import has_numbers, is_tensor, transform_of, untransformed
from trnqc.errors import InputError, UnsupportedError

Array = Any


def library_of(operands: Sequence[Array]) -> ModuleType:
    """Return the library that all operands belong to: numpy, torch, or another one with NumPy's function names.

    Raises
    ------
    InputError
        If operands belong to several libraries.
    UnsupportedError
        If the library lacks a function that is needed.
    """
    names = list(dict.fromkeys(_library_name(x) for x in operands))
    if len(names) > 1:
        raise InputError(f"operands are arrays of one library; found {' and '.join(names)}: convert them first")
    library = sys.modules.get(names[0], np) if names else np
    for needed in ("matmul", "einsum", "result_type"):
        if not hasattr(library, needed):
            raise UnsupportedError(
                f"arrays of {library.__name__}: it has no {needed}; arrays of numpy and torch are supported"
            )
    return library


def _library_name(x: Array) -> str:
    """Return the name of the library of an array, of subclasses too."""
    if isinstance(x, np.ndarray | np.generic):
        return "numpy"
    return "torch" if is_tensor(x) else type(x).__module__.partition(".")[0]


def one_type(library: ModuleType, operands: Sequence[Array]) -> list[Array]:
    """Return the operands converted to their common element type."""
    kinds = {x.dtype for x in operands}
    if len(kinds) < 2:
        return list(operands)
    first, *others = operands
    kind = first.dtype
    for other in others:
        kind = np.promote_types(kind, other.dtype) if library is np else library.promote_types(kind, other.dtype)
    return [cast(x, kind) for x in operands]


def cast(x: Array, kind: Any) -> Array:
    """Return the array in this element type."""
    if x.dtype == kind:
        return x
    return x.astype(kind) if hasattr(x, "astype") else x.to(kind)


def transpose(x: Array, axes: Sequence[int]) -> Array:
    """Return a view with its axes in this order."""
    if tuple(axes) == tuple(range(len(axes))):
        return x
    return x.permute(tuple(axes)) if hasattr(x, "permute") else x.transpose(tuple(axes))


def matmul(library: ModuleType, a: Array, b: Array) -> Array:
    """Return stacked a[..., m, k] @ b[..., k, n].

    NumPy does not call BLAS if no axis of a matrix is contiguous; such operands are copied first.
    """
    if library is np:
        a, b = for_blas(a), for_blas(b)
    elif str(a.dtype) == "torch.bool":
        raise InputError("PyTorch forms no products of bool matrices: convert the operands, to torch.int64 for counts")
    return library.matmul(a, b)


def for_blas(x: np.ndarray) -> np.ndarray:
    """Return the matrices, copied if BLAS cannot read them."""
    rows, columns = x.shape[-2:]
    step, stride = x.strides[-2:]
    by_row = stride == x.itemsize and step >= columns * x.itemsize
    by_column = step == x.itemsize and stride >= rows * x.itemsize
    return x if by_row or by_column else np.ascontiguousarray(x)


def diagonal(library: ModuleType, x: Array, labels: Sequence[str]) -> tuple[Array, tuple[str, ...]]:
    """Return x with axes of equal labels reduced to their diagonal, and the labels left."""
    left = tuple(dict.fromkeys(labels))
    if len(left) == len(labels):
        return x, left
    letters = dict(zip(left, ascii_letters))
    text = "".join(letters[label] for label in labels) + "->" + "".join(letters[label] for label in left)
    return library.einsum(text, x), left


def itemsize(arrays: Sequence[Array]) -> int:
    """Return the bytes of an element of the common type of the arrays; 8 without arrays."""
    kinds = list(dict.fromkeys(x.dtype for x in arrays))
    if not kinds:
        return 8
    kind, *others = kinds
    library = library_of(arrays)
    for other in others:
        kind = (np if library is np else library).promote_types(kind, other)
    return int(kind.itemsize)


def host_array(x: Array, name: str) -> np.ndarray:
    """Return the array in NumPy's memory, without a copy.

    Raises
    ------
    UnsupportedError
        If PyTorch would lose a derivative, or NumPy lacks the element type.
    """
    if not is_tensor(x):
        return np.asarray(x)
    require_no_transform(x, name)
    if "bfloat16" in str(x.dtype):
        raise UnsupportedError(
            f"fused loops within a memory limit run on NumPy; {name} holds bfloat16, which NumPy lacks: convert it, "
            "or raise the limit"
        )
    with untransformed():
        return np.asarray(x.detach().resolve_conj().resolve_neg().numpy())


def require_no_transform(x: Array, name: str) -> None:
    """Raise UnsupportedError if loops, which write into memory of their own, would lose a derivative of x."""
    reason = transform_of(x) or ("" if has_numbers(x) else "is a tensor without data (meta, fake or traced)")
    if reason:
        raise UnsupportedError(
            f"loops within a memory limit, or over symmetric pairs, carry no gradient, tangent or batch; {name} "
            f"{reason}: detach it, or leave out the limit or the symmetry"
        )


def vector(library: ModuleType, values: np.ndarray, like: Array) -> Array:
    """Return whole numbers as an array of the library, on the device of `like`."""
    return values if library is np else library.as_tensor(values, device=like.device)


def taken(library: ModuleType, x: Array, places: Array, axis: int, out: Array) -> Array:
    """Write the elements at these positions along an axis of x into `out`, without a hidden copy, and return it."""
    if library is np:
        # With mode="raise" NumPy fills a buffer of its own first.
        return np.take(x, places, axis, out=out, mode="clip")
    return library.index_select(x, axis, places, out=out)
