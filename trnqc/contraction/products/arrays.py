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
    """Return the library of all operands: numpy, torch, or another one of Python's array API standard.

    Raises InputError for operands of several libraries, UnsupportedError for a library that does not follow the
    standard or lacks a function that is needed.
    """
    libraries = list(dict.fromkeys(_library(x) for x in operands))
    if len(libraries) > 1:
        names = " and ".join(library.__name__ for library in libraries)
        raise InputError(f"operands are arrays of one library; found {names}: convert them first")
    library = libraries[0] if libraries else np
    for needed in ("matmul", "permute_dims", "result_type") if is_other(library) else ():
        if not hasattr(library, needed):
            raise UnsupportedError(f"arrays of {library.__name__}: it has no {needed}; convert them to NumPy's")
    return library


def is_other(library: ModuleType) -> bool:
    """Return whether a library is neither NumPy nor PyTorch, so that only functions of the array API are called."""
    return library is not np and library.__name__ != "torch"


def _library(x: Array) -> ModuleType:
    """Return the library of an array, of subclasses too."""
    if isinstance(x, np.ndarray | np.generic):
        return np
    if is_tensor(x):
        return sys.modules["torch"]
    if hasattr(x, "__array_namespace__"):
        library: ModuleType = x.__array_namespace__()
        return library
    kind = f"{type(x).__module__}.{type(x).__qualname__}"
    hint = "take its .data; xarray.apply_ufunc keeps the labels" if kind.startswith("xarray.") else "convert them"
    raise UnsupportedError(f"operands are arrays of NumPy, PyTorch or the array API standard; found {kind}: {hint}")


def one_type(library: ModuleType, operands: Sequence[Array]) -> list[Array]:
    """Return the operands converted to their common element type."""
    kinds = {x.dtype for x in operands}
    if len(kinds) < 2:
        return list(operands)
    first, *others = operands
    kind = first.dtype
    for other in others:
        kind = promoted(library, kind, other.dtype)
    return [cast(library, x, kind) for x in operands]


def promoted(library: ModuleType, first: Any, second: Any) -> Any:
    """Return the element type that holds both."""
    return library.result_type(first, second) if is_other(library) else library.promote_types(first, second)


def cast(library: ModuleType, x: Array, kind: Any) -> Array:
    """Return the array in this element type."""
    if x.dtype == kind:
        return x
    if is_other(library):
        return library.astype(x, kind)
    return x.astype(kind) if library is np else x.to(kind)


def transpose(x: Array, axes: Sequence[int]) -> Array:
    """Return a view with its axes in this order."""
    if tuple(axes) == tuple(range(len(axes))):
        return x
    if isinstance(x, np.ndarray):
        return x.transpose(tuple(axes))
    return x.permute(tuple(axes)) if is_tensor(x) else _library(x).permute_dims(x, tuple(axes))


def swapped(x: Array) -> Array:
    """Return a view of the matrices with rows and columns exchanged."""
    return x.mT


def reshaped(x: Array, shape: tuple[int, ...]) -> Array:
    """Return the array in another shape."""
    return x.reshape(shape) if hasattr(x, "reshape") else _library(x).reshape(x, shape)


def summed(x: Array, axes: tuple[int, ...]) -> Array:
    """Return the array summed over axes."""
    return x.sum(axes) if hasattr(x, "sum") else _library(x).sum(x, axis=axes)


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
    """Return stacked matrices, copied if BLAS cannot read the array."""
    rows, columns = x.shape[-2:]
    step, stride = x.strides[-2:]
    by_row = stride == x.itemsize and step >= columns * x.itemsize
    by_column = step == x.itemsize and stride >= rows * x.itemsize
    return x if by_row or by_column else np.ascontiguousarray(x)


def count(library: ModuleType, truth: Array) -> int:
    """Return the number of true elements."""
    return int(library.sum(library.astype(truth, library.int64)) if is_other(library) else truth.sum())


def elements_at(library: ModuleType, x: Array, places: tuple[np.ndarray, ...]) -> Array:
    """Return the elements at these positions, one array of positions for each axis."""
    if not is_other(library):
        return x[places]
    flat = library.asarray(np.ravel_multi_index(places, tuple(x.shape)))
    return library.take(library.reshape(x, (-1,)), flat, axis=0)


def diagonal(library: ModuleType, x: Array, labels: Sequence[str]) -> tuple[Array, tuple[str, ...]]:
    """Return x with axes of equal labels reduced to their diagonal, and the labels left."""
    left = tuple(dict.fromkeys(labels))
    if len(left) == len(labels):
        return x, left
    letters = dict(zip(left, ascii_letters))
    text = "".join(letters[label] for label in labels) + "->" + "".join(letters[label] for label in left)
    if not hasattr(library, "einsum"):
        raise UnsupportedError(f"{library.__name__} has no einsum, which takes the diagonal {text}: take it before")
    return library.einsum(text, x), left


def itemsize(arrays: Sequence[Array]) -> int:
    """Return the bytes of an element of the common type of the arrays; 8 without arrays."""
    kinds = list(dict.fromkeys(x.dtype for x in arrays))
    if not kinds:
        return 8
    kind, *others = kinds
    library = library_of(arrays)
    for other in others:
        kind = promoted(library, kind, other)
    return int(kind.itemsize) if hasattr(kind, "itemsize") else _bits(library, kind) // 8


def _bits(library: ModuleType, kind: Any) -> int:
    """Return the bits of a number of an element type by the functions of the array API."""
    if library.isdtype(kind, "bool"):
        return 8
    if library.isdtype(kind, "integral"):
        return int(library.iinfo(kind).bits)
    return int(library.finfo(kind).bits) * (2 if library.isdtype(kind, "complex floating") else 1)


def host_array(x: Array, name: str) -> np.ndarray:
    """Return the array in NumPy's memory, without a copy.

    Raises UnsupportedError if PyTorch would lose a derivative, or NumPy lacks the element type.
    """
    if isinstance(x, np.ndarray):
        return x
    require_no_transform(x, name)
    if not is_tensor(x):
        return np.asarray(x)
    if "bfloat16" in str(x.dtype):
        raise UnsupportedError(
            f"fused loops within a memory limit run on NumPy; {name} holds bfloat16, which NumPy lacks: convert it, "
            "or raise the limit"
        )
    with untransformed():
        return np.asarray(x.detach().resolve_conj().resolve_neg().numpy())


def require_no_transform(x: Array, name: str) -> None:
    """Raise UnsupportedError if loops, which write into memory of their own, would lose a derivative of x."""
    reason = transform_of(x) or ("" if has_numbers(x) else "is an array without data (meta, fake or traced)")
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
