"""Operands as callers pass them: matched with the inputs of a plan, made arrays of one type, and checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from types import ModuleType
from typing import Any

import numpy as np

from trnqc.arrays import has_numbers, is_pydata, is_tensor, plain
from trnqc.contraction.computation import Computation
from trnqc.contraction.products.arrays import Array, count, elements_at, library_of, one_type
from trnqc.errors import InputError

# Largest number of elements for which a declared symmetry of an array is checked, and the number compared at once.
CHECKED, CHUNK = 2**13, 2**10


def named_operands(
    inputs: Sequence[tuple[str, tuple[str, ...]]], operands: Sequence[Any], named: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the operands by name; `inputs` has (name, labels) in order.

    Raises InputError if operands are missing, too many, or given in another form than one by one or by name.
    """
    names = [name for name, _ in inputs]
    expected = f"the plan takes {len(names)} operands: {', '.join(names)}"
    if len(operands) == 1 and isinstance(operands[0], Mapping):
        named, operands = {**operands[0], **named}, ()
    if not operands:
        if missing := [name for name in names if name not in named]:
            raise InputError(f"{expected}; {missing[0]} is missing")
        return {name: named[name] for name in names}
    if len(operands) == 1 < len(names) and isinstance(operands[0], list | tuple):
        raise InputError(
            f"{expected}; found one {type(operands[0]).__name__}: pass them one by one, run({', '.join(names)}), "
            "or as a mapping from names to operands"
        )
    if named or len(operands) != len(names):
        by_name = f" and {', '.join(named)} by name" if named else ""
        raise InputError(f"{expected}; found {len(operands)}{by_name}")
    require_same(names, operands)
    return dict(zip(names, operands))


def checked_operands(plan: Computation, operands: Mapping[str, Any], check_finite: bool) -> dict[str, Any]:
    """Return the operands with arrays in one element type; functions are left as they are.

    Raises InputError if an array has another shape than in the plan, holds no numbers, or fails `check_elements`.
    """
    values = dict(operands)
    names = [name for name, x in operands.items() if not callable(x)]
    arrays = as_arrays([operands[name] for name in names])
    library = library_of(arrays)
    for name, array in zip(names, arrays):
        require_numbers(array, name)
    for name, array in zip(names, one_type(library, arrays)):
        expected = plan.shapes[name]
        if tuple(array.shape) != expected:
            raise InputError(f"operand {name} has the shape {expected} in this plan; found {tuple(array.shape)}")
        if check_finite:
            check_elements(plan, library, name, array)
        values[name] = array
    return values


def check_elements(plan: Computation, library: ModuleType, name: str, array: Array) -> None:
    """Raise InputError if elements are not finite, divide and are zero, or lack a declared symmetry."""
    require_finite(library, array, name)
    if name in plan.divisors:
        require_divisors(array, name)
    for declared, exchanges in plan.exchanges:
        for exchange in exchanges if declared == name else ():
            require_exchange(library, array, name, exchange.order(array.ndim), exchange.sign)


def as_arrays(operands: Sequence[Any]) -> list[Array]:
    """Return lists, numbers and subclasses of NumPy's array as plain NumPy arrays; keep arrays of other libraries.

    Raises InputError if an operand is not an array of numbers, has masked elements, or is sparse.
    """
    return [_as_array(x, k) for k, x in enumerate(operands)]


def _as_array(x: Any, number: int) -> Array:
    name = f"operand {number}"
    if isinstance(x, list | tuple | int | float | complex | np.ndarray | np.generic):
        return plain(x, name)
    layout = str(getattr(x, "layout", "torch.strided")) if is_tensor(x) else "torch.strided"
    if layout != "torch.strided" or type(x).__module__.startswith("scipy.sparse") or is_pydata(x):
        kind = f"a sparse tensor ({layout})" if is_tensor(x) else f"sparse ({type(x).__name__})"
        raise InputError(f"{name} is {kind}; take trnqc.sparse.contract, or make it dense")
    if hasattr(x, "shape") and hasattr(x, "dtype"):
        return x
    if not hasattr(x, "__array__"):
        raise InputError(f"{name} is no array of numbers; found {type(x).__name__}")
    return plain(x, name)


def require_numbers(x: Array, name: str) -> None:
    """Raise InputError if the elements of x are text, dates or records."""
    if getattr(x.dtype, "kind", "f") in "SUVMm":
        raise InputError(f"operand {name} holds elements of type {x.dtype}; numbers are taken")


def require_divisors(x: Array, name: str) -> None:
    """Raise InputError if x, which something is divided by, has a zero."""
    library = library_of([x])
    if has_numbers(x) and not bool(library.all(x != 0)):
        bad = count(library, x == 0)
        raise InputError(f"operand {name} divides and has {bad} zeros; check_finite=False lets them pass")


def checked_function(name: str, function: Callable[..., Array], check_finite: bool) -> Callable[..., Array]:
    """Return the function with the shapes and element types of its blocks checked, and finite elements if wanted."""

    def block(*cuts: slice) -> Array:
        (values,) = as_arrays([function(*cuts)])
        expected = tuple(cut.stop - cut.start for cut in cuts)
        if tuple(values.shape) != expected:
            raise InputError(f"function {name} was asked for a block of shape {expected}; found {tuple(values.shape)}")
        require_numbers(values, name)
        if check_finite:
            require_finite(library_of([values]), values, name)
        return values

    return block


def identities(plan: Computation, library: ModuleType, like: Array) -> dict[str, Callable[..., Array]]:
    """Return the identities of a plan by name, as functions of slices; `like` has the element type."""

    def block(rows: slice, columns: slice) -> Array:
        equal = np.equal.outer(np.arange(rows.start, rows.stop), np.arange(columns.start, columns.stop))
        if library is np:
            return equal.astype(like.dtype)
        return library.asarray(equal, dtype=like.dtype, device=like.device)

    return dict.fromkeys(plan.identities, block)


def require_finite(library: ModuleType, x: Array, name: str) -> None:
    """Raise InputError if x has an element that is not finite."""
    if getattr(x.dtype, "kind", "f") not in "fc" or not has_numbers(x):
        return
    # The sum is finite in nearly every case, and unlike isfinite(x) it needs no array of truth values.
    with np.errstate(all="ignore"):
        total = library.isfinite(library.sum(x))
        # While JAX traces a function, sums of its constants are traced too.
        if not has_numbers(total) or bool(total):
            return
    bad = count(library, ~library.isfinite(x))
    if bad:
        raise InputError(f"operand {name} has {bad} elements that are not finite; check_finite=False lets them pass")


def require_exchange(library: ModuleType, x: Array, name: str, order: Sequence[int], sign: int) -> None:
    """Raise InputError if x differs by more than rounding from `sign` times x with its axes in `order`.

    In an array of more than CHECKED elements, only that number is compared, spread evenly over the array.
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
        one, two = elements_at(library, x, here), sign * elements_at(library, x, there)
        wrong = abs(one - two) > tolerance * library.max(abs(one) + abs(two))
        if bool(library.any(wrong)):
            # These elements may all be rounding errors, as of integrals that are zero by the symmetry of a molecule.
            wrong = abs(one - two) > 2 * tolerance * library.max(abs(x))
        if bool(library.any(wrong)):
            k = int(np.flatnonzero(np.asarray(wrong.cpu() if hasattr(wrong, "cpu") else wrong))[0])
            elements = " and ".join(f"[{', '.join(str(int(i[k])) for i in at)}]" for at in (here, there))
            raise InputError(
                f"operand {name} is declared {'symmetric' if sign > 0 else 'antisymmetric'} under exchange of axes to "
                f"{tuple(order)}, but its elements {elements} are {one[k].item()} and {(sign * two[k]).item()}; "
                "leave the symmetry out, or check_finite=False lets them pass"
            )


def require_same(names: Sequence[str], operands: Sequence[Array]) -> None:
    """Raise InputError if operands of one name are not the same array."""
    first: dict[str, Array] = {}
    for place, (name, x) in enumerate(zip(names, operands)):
        if first.setdefault(name, x) is not x:
            raise InputError(f"operand {place} is another array than {name}, which it was when this was planned")
