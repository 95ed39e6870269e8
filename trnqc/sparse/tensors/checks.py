"""Checks of the arrays, coordinates, layouts and levels that callers pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trnqc.arrays import host_array, is_tensor
from trnqc.errors import InputError, OperandError
from trnqc.sparse.network.nest import Kind
from trnqc.sparse.tensors.levels import Dense, Level


def plain_array(array: Any, name: str) -> np.ndarray:
    """Convert to a plain NumPy array. Raises OperandError for masked arrays and tensors that carry a gradient."""
    try:
        return host_array(array, name, "take .detach(); trnqc.sparse.contract itself carries gradients")
    except OperandError:
        raise
    except InputError as error:
        raise OperandError(str(error)) from None


def is_complex(x: Any) -> bool:
    """Return whether an array or tensor of any library has complex elements."""
    return bool(x.is_complex()) if is_tensor(x) else getattr(x.dtype, "kind", "") == "c"


def as_double(values: np.ndarray) -> np.ndarray:
    """Convert numbers to float64 or complex128; integers beyond 2^53 are rounded. Raises OperandError."""
    parts = 2 if values.dtype.kind == "c" else 1
    if values.dtype.kind not in "fciub" or values.dtype.itemsize > 8 * parts:
        raise OperandError(
            f"values must be real numbers of at most 64 bits, or complex numbers of two; found dtype {values.dtype}"
        )
    return values.astype(np.complex128 if parts == 2 else np.float64, copy=False)


def checked_layout(
    shape: Sequence[int], order: Sequence[int] | None, kinds: Sequence[Kind] | None, default: Kind
) -> tuple[tuple[int, ...], tuple[Kind, ...]]:
    """Return valid order and kinds, by default 0, 1, ... and all levels `default`. Raises OperandError."""
    n = len(shape)
    modes = tuple(range(n)) if order is None else tuple(int(mode) for mode in order)
    levels = (default,) * n if kinds is None else tuple(kinds)
    if any(extent < 0 for extent in shape):
        raise OperandError(f"extents must not be negative; found the shape {tuple(shape)}")
    if sorted(modes) != list(range(n)):
        raise OperandError(f"the order of levels must hold each of {n} modes once; found {modes}")
    if len(levels) != n or not set(levels) <= {"dense", "compressed"}:
        raise OperandError(f"{n} levels must be 'dense' or 'compressed'; found {levels}")
    return modes, levels


def checked_coordinates(shape: tuple[int, ...], coordinates: Any) -> np.ndarray:
    """Return valid coordinates as int64 [ndim, nnz]. Raises OperandError."""
    rows = np.asarray(coordinates)
    if rows.ndim != 2 or len(rows) != len(shape):
        raise OperandError(f"coordinates must be [{len(shape)}, elements]; found an array {list(rows.shape)}")
    if rows.dtype.kind not in "iu" and rows.size:
        raise OperandError(f"coordinates must be integers; found dtype {rows.dtype}")
    for mode, (row, extent) in enumerate(zip(rows, shape)):
        if len(row) and (row.min() < 0 or row.max() >= extent):
            bad = row[(row < 0) | (row >= extent)][0]
            raise OperandError(f"mode {mode} has the extent {extent}; found the coordinate {bad}")
    return rows.astype(np.int64, copy=False)


def is_valid_level(level: Level, extent: int, parents: int) -> bool:
    """Return whether the arrays of a level are consistent, for the extent of its mode and its number of parents."""
    if isinstance(level, Dense):
        return level.size == extent
    positions, coordinates = level.positions, level.coordinates
    if len(positions) != parents + 1 or positions[0] != 0 or positions[-1] != len(coordinates):
        return False
    if (positions[1:] < positions[:-1]).any():
        return False
    if len(coordinates) and (coordinates.min() < 0 or int(coordinates.max()) >= extent):
        return False
    # Coordinates increase except from the last one of a parent to the first one of the next.
    increases = coordinates[1:] > coordinates[:-1]
    first = positions[1:-1]
    increases[first[(first > 0) & (first < len(coordinates))] - 1] = True
    return bool(increases.all())
