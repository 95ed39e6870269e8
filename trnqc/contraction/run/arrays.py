"""All that differs between array libraries. A library is imported by whoever made the operands, never here."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from math import prod
from string import ascii_letters
from types import ModuleType
from typing import Any

import numpy as np

from trnqc.arrays import has_numbers, is_tensor, plain, transform_of, untransformed
from trnqc.errors import InputError, UnsupportedError

Array = Any


def library_of(operands: Sequence[Array]) -> ModuleType:
    """numpy, torch or another library with NumPy's names that all operands belong to; subclasses of an array too."""
    names = list(dict.fromkeys(_library_name(x) for x in operands))
    if len(names) > 1:
        raise InputError(f"operands are arrays of one library; found {' and '.join(names)}: convert them first")
    library = sys.modules.get(names[0], np) if names else np
    for needed in ("matmul", "einsum", "result_type"):
        if not hasattr(library, needed):
            raise UnsupportedError(
                f"arrays of {library.__name__}: it has no {needed}; numpy and torch arrays are taken"
            )
    return library


def _library_name(x: Array) -> str:
    if isinstance(x, np.ndarray | np.generic):
        return "numpy"
    return "torch" if is_tensor(x) else type(x).__module__.partition(".")[0]


def as_arrays(operands: Sequence[Any]) -> list[Array]:
    """Lists, numbers and subclasses of NumPy's array become plain NumPy arrays; arrays of other libraries stay.

    Raises InputError for what is no array of numbers, for masked elements, and for sparse tensors and matrices.
    """
    return [_as_array(x, k) for k, x in enumerate(operands)]


def _as_array(x: Any, number: int) -> Array:
    name = f"operand {number}"
    if isinstance(x, list | tuple | int | float | complex | np.ndarray | np.generic):
        return plain(x, name)
    layout = str(getattr(x, "layout", "torch.strided")) if is_tensor(x) else "torch.strided"
    if layout != "torch.strided" or type(x).__module__.startswith("scipy.sparse"):
        kind = f"a sparse tensor ({layout})" if is_tensor(x) else f"sparse ({type(x).__name__})"
        raise InputError(f"{name} is {kind}; take trnqc.sparse.contract, or make it dense")
    if hasattr(x, "shape") and hasattr(x, "dtype"):
        return x
    if not hasattr(x, "__array__"):
        raise InputError(f"{name} is no array of numbers; found {type(x).__name__}")
    return plain(x, name)


def one_type(library: ModuleType, operands: Sequence[Array]) -> list[Array]:
    """All operands in the element type that holds every one of them."""
    kinds = {x.dtype for x in operands}
    if len(kinds) < 2:
        return list(operands)
    found, *others = operands
    kind = found.dtype
    for other in others:
        kind = np.promote_types(kind, other.dtype) if library is np else library.promote_types(kind, other.dtype)
    return [cast(x, kind) for x in operands]


def cast(x: Array, kind: Any) -> Array:
    if x.dtype == kind:
        return x
    return x.astype(kind) if hasattr(x, "astype") else x.to(kind)


def transpose(x: Array, axes: Sequence[int]) -> Array:
    """A view with its axes in this order."""
    if tuple(axes) == tuple(range(len(axes))):
        return x
    return x.permute(tuple(axes)) if hasattr(x, "permute") else x.transpose(tuple(axes))


def matmul(library: ModuleType, a: Array, b: Array) -> Array:
    """Stacked a[..., m, k] @ b[..., k, n]. NumPy leaves BLAS where no axis of a matrix is contiguous: copied here."""
    if library is np:
        a, b = _for_blas(a), _for_blas(b)
    elif str(a.dtype) == "torch.bool":
        raise InputError("PyTorch forms no products of bool matrices: convert the operands, to torch.int64 for counts")
    return library.matmul(a, b)


def _for_blas(x: np.ndarray) -> np.ndarray:
    rows, columns = x.shape[-2:]
    step, stride = x.strides[-2:]
    by_row = stride == x.itemsize and step >= columns * x.itemsize
    by_column = step == x.itemsize and stride >= rows * x.itemsize
    return x if by_row or by_column else np.ascontiguousarray(x)


def diagonal(library: ModuleType, x: Array, labels: Sequence[str]) -> tuple[Array, tuple[str, ...]]:
    """x with axes of equal labels drawn together, and the labels left."""
    left = tuple(dict.fromkeys(labels))
    if len(left) == len(labels):
        return x, left
    letters = dict(zip(left, ascii_letters))
    text = "".join(letters[label] for label in labels) + "->" + "".join(letters[label] for label in left)
    return library.einsum(text, x), left


def itemsize(arrays: Sequence[Array]) -> int:
    """Bytes of an element of the type that holds the elements of all; 8 for no array."""
    kinds = list(dict.fromkeys(x.dtype for x in arrays))
    if not kinds:
        return 8
    found, *others = kinds
    library = library_of(arrays)
    for other in others:
        found = (np if library is np else library).promote_types(found, other)
    return int(found.itemsize)


def require_numbers(x: Array, name: str) -> None:
    """Raise InputError where the elements of x are text, dates or records."""
    if getattr(x.dtype, "kind", "f") in "SUVMm":
        raise InputError(f"operand {name} holds elements of type {x.dtype}; numbers are taken")


def require_divisors(x: Array, name: str) -> None:
    """Raise InputError where x, which something is divided by, has a zero."""
    if has_numbers(x) and not bool(x.all()):
        bad = int((x == 0).sum())
        raise InputError(f"operand {name} divides and has {bad} zeros; check_finite=False lets them pass")


def checked_function(name: str, function: Callable[..., Array], check_finite: bool) -> Callable[..., Array]:
    """The function with its blocks checked: they have the lengths of the slices and, where wanted, finite elements."""

    def block(*cuts: slice) -> Array:
        (found,) = as_arrays([function(*cuts)])
        expected = tuple(cut.stop - cut.start for cut in cuts)
        if tuple(found.shape) != expected:
            raise InputError(f"function {name} was asked for a block of shape {expected}; found {tuple(found.shape)}")
        require_numbers(found, name)
        if check_finite:
            require_finite(library_of([found]), found, name)
        return found

    return block


def host_array(x: Array, name: str) -> np.ndarray:
    """The array in the memory of NumPy, without a copy; raises UnsupportedError where that cannot be."""
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
    """Raise UnsupportedError where loops, which write into memory of their own, would lose what PyTorch does with x."""
    reason = transform_of(x) or ("" if has_numbers(x) else "is a tensor without data (meta, fake or traced)")
    if reason:
        raise UnsupportedError(
            f"loops within a memory limit, or over symmetric pairs, carry no gradient, tangent or batch; {name} "
            f"{reason}: detach it, or leave out the limit or the symmetry"
        )


def require_finite(library: ModuleType, x: Array, name: str) -> None:
    """Raise InputError where x has an element that is not finite."""
    if getattr(x.dtype, "kind", "f") not in "fc" or not has_numbers(x):
        return
    # The sum is finite in nearly every case and costs no array of truth values.
    with np.errstate(all="ignore"):
        if bool(library.isfinite(x.sum())):
            return
    bad = int((~library.isfinite(x)).sum())
    if bad:
        raise InputError(f"operand {name} has {bad} elements that are not finite; check_finite=False lets them pass")


def vector(library: ModuleType, values: np.ndarray, like: Array) -> Array:
    """Whole numbers as an array of the library, where `like` is."""
    return values if library is np else library.as_tensor(values, device=like.device)


def taken(library: ModuleType, x: Array, places: Array, axis: int, out: Array) -> Array:
    """These places along the axis of x, in out, without a hidden copy."""
    if library is np:
        # With mode "raise" NumPy would fill a buffer of its own first.
        return np.take(x, places, axis, out=out, mode="clip")
    return library.index_select(x, axis, places, out=out)


# Elements of which a declared symmetry is checked at most, and how many of them at once.
CHECKED, CHUNK = 2**13, 2**10


def require_exchange(library: ModuleType, x: Array, name: str, order: Sequence[int], sign: int) -> None:
    """Raise InputError where elements of x differ by more than rounding from `sign` times those with axes in `order`.

    Of large arrays elements all over the array are compared, not every one.
    """
    size, shape = prod(x.shape), tuple(x.shape)
    if any(shape[axis] != shape[other] for axis, other in enumerate(order)):
        raise InputError(f"operand {name} of shape {shape} cannot be symmetric under exchange of axes {tuple(order)}")
    if not has_numbers(x):
        return
    inexact = "float" in str(x.dtype) or "complex" in str(x.dtype)
    tolerance = float(library.finfo(x.dtype).eps) ** 0.5 if inexact else 0.0
    # An odd multiple of the golden ratio visits all of an array evenly, whatever its extents.
    step = 1 if size <= CHECKED else round(size * 0.6180339887) | 1
    for start in range(0, min(size, CHECKED), CHUNK):
        flat = np.arange(start, min(start + CHUNK, size, CHECKED)) * step % max(size, 1)
        here = np.unravel_index(flat, shape)
        there = tuple(here[axis] for axis in order)
        one, two = x[here], sign * x[there]
        wrong = abs(one - two) > tolerance * (abs(one) + abs(two)).max()
        if bool(wrong.any()):
            k = int(np.flatnonzero(np.asarray(wrong.cpu() if hasattr(wrong, "cpu") else wrong))[0])
            elements = " and ".join(f"[{', '.join(str(int(i[k])) for i in at)}]" for at in (here, there))
            raise InputError(
                f"operand {name} is declared {'symmetric' if sign > 0 else 'antisymmetric'} under exchange of axes to "
                f"{tuple(order)}, but its elements {elements} are {one[k].item()} and {(sign * two[k]).item()}; "
                "leave the symmetry out, or check_finite=False lets them pass"
            )


def require_same(names: Sequence[str], operands: Sequence[Array]) -> None:
    """Raise InputError where operands of one name are not one array."""
    first: dict[str, Array] = {}
    for place, (name, x) in enumerate(zip(names, operands)):
        if first.setdefault(name, x) is not x:
            raise InputError(f"operand {place} is another array than {name}, which it was when this was planned")
