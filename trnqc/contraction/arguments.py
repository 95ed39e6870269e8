"""The arguments of `einsum` and `einsum_plan` in the forms that the planners take: subscripts, shapes, exchanges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trnqc.contraction.planning.statements import Exchanges
from trnqc.contraction.products.arrays import itemsize, reshaped
from trnqc.contraction.run.operands import as_arrays
from trnqc.errors import ArgumentError, InputError
from trnqc.expression.subscripts import Shape, interleaved
from trnqc.expression.symmetry import parse_symmetries

# Number of an operand -> equations such as "efij = feji".
Symmetries = Mapping[int, str | Sequence[str]]


def declared_exchanges(
    symmetries: Symmetries | None, operands: Sequence[Any], shapes: Sequence[Shape]
) -> tuple[Exchanges, tuple[int, ...]]:
    """Return the exchanges of each operand, and for each operand the first that is the same array."""
    if not symmetries:
        return (), ()
    ids = [id(x) for x in operands]
    same = tuple(k if isinstance(x, tuple) else ids.index(id(x)) for k, x in enumerate(operands))
    return parse_symmetries(symmetries, shapes), same


def from_interleaved(operands: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """Return subscripts and arrays of NumPy's interleaved form."""
    if len(operands) < 2:
        raise InputError("einsum takes subscripts and operands, or operands each with its list of indices")
    text, arrays = interleaved(operands)
    return text, tuple(arrays)


def unknown_argument(name: str) -> ArgumentError:
    """Return the error for an argument that `einsum` does not have."""
    known = {
        "dtype": "convert the operands: the result has the type that holds every one of them",
        "casting": "convert the operands before",
        "order": "copy the result into the order of axes that you want",
        "use_blas": "every step is a product of matrices where it can be",
    }
    advice = known.get(name, "see its documentation for those that it has")
    return ArgumentError(f"einsum has no argument {name!r}: {advice}")


def is_dataset(operand: Any) -> bool:
    """Return whether an operand is a dataset of h5py, which is not imported for arrays in memory."""
    return type(operand).__module__.startswith("h5py.")


def shape_of(operand: Any) -> Shape:
    """Return the shape of an array, or a tuple of whole numbers as it is."""
    if isinstance(operand, tuple) and all(isinstance(n, int | np.integer) for n in operand):
        return tuple(map(int, operand))
    return tuple(as_arrays([operand])[0].shape)


def itemsize_of(operands: Sequence[Any]) -> int:
    """Return the bytes of an element of the type that holds the elements of all operands that are arrays."""
    return itemsize([x for x in operands if hasattr(x, "dtype")])


def squeezed(x: Any, axes: tuple[int, ...]) -> Any:
    """Return the array without these axes, which have extent one."""
    return reshaped(x, tuple(n for axis, n in enumerate(x.shape) if axis not in axes)) if axes else x
