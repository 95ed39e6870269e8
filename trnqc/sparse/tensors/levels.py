"""Levels of a sparse tensor, and their construction from coordinates.

coordinates, outermost mode first -> keys of the same order -> sorted, values of equal ones added -> one level per mode

The levels form a tree, and a path from the root to a leaf is an element. Each level has some positions under every
position of the level above, which is their parent. A dense level has a position for every coordinate, at
parent * size + coordinate. A compressed level has the positions from positions[parent] up to positions[parent + 1], and
lists their coordinates in increasing order. CSR is (Dense, Compressed); in a NumPy array in C order all levels are
Dense.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trnqc.host.memory import require_memory
from trnqc.sparse.network.nest import Kind

_INT64_MAX = 2**63 - 1
_INT32_MAX = 2**31 - 1


@dataclass(frozen=True)
class Dense:
    """A level with every coordinate below `size` under every parent."""

    size: int


@dataclass(frozen=True, eq=False)
class Compressed:
    """A level with some coordinates under every parent, int64 positions [parents + 1].

    Coordinates [positions[-1]] are int32, or int64 if the extent needs it.
    """

    positions: np.ndarray
    coordinates: np.ndarray


Level = Dense | Compressed


def join(rows: Sequence[np.ndarray] | np.ndarray, extents: Sequence[int]) -> tuple[np.ndarray, int]:
    """Return an int64 key for each element, in the same order as the coordinates, and a bound of the keys.

    Keys are smaller than the bound. Coordinates and extents have the outermost mode first; if the product of the
    extents overflows, the keys so far are replaced by their ranks.
    """
    keys, bound = np.asarray(rows[0], np.int64), extents[0]
    for row, extent in zip(rows[1:], extents[1:]):
        if bound * extent > _INT64_MAX:
            keys, bound = _ranks(keys)
        if bound * extent > _INT64_MAX:
            row, extent = _ranks(row)
        keys = keys * extent
        keys += row
        bound *= extent
    return keys, bound


def _ranks(keys: np.ndarray) -> tuple[np.ndarray, int]:
    distinct, ranks = np.unique(keys, return_inverse=True)
    return ranks, len(distinct)


def _stable_order(keys: np.ndarray, bound: int) -> np.ndarray:
    """Return the permutation that sorts keys below `bound`, by 16 bits at a time, for which NumPy uses radix sort."""
    permutation = np.argsort(keys.astype(np.uint16), kind="stable")
    for shift in range(16, (bound - 1).bit_length(), 16):
        digits = (keys >> shift).astype(np.uint16)[permutation]
        permutation = permutation[np.argsort(digits, kind="stable")]
    return permutation


def ordered(
    rows: list[np.ndarray], extents: list[int], values: np.ndarray | None, count: int
) -> tuple[list[np.ndarray], np.ndarray | None]:
    """Sort coordinates in increasing order, outermost mode first, and remove duplicates.

    Their values, None for a 0/1 map, are added in their original order.
    """
    if count < 2:
        return rows, values
    keys, bound = join(rows, extents) if rows else (np.zeros(count, np.int64), 1)
    steps = np.diff(keys)
    if (steps < 0).any():
        permutation = _stable_order(keys, bound)
        steps = np.diff(keys[permutation])
        rows = [row[permutation] for row in rows]
        values = None if values is None else values[permutation]
    if steps.all():
        return rows, values
    first = np.concatenate(([0], np.flatnonzero(steps) + 1))
    return [row[first] for row in rows], None if values is None else np.add.reduceat(values, first)


def pack(
    extents: Sequence[int], kinds: Sequence[Kind], rows: list[np.ndarray], values: np.ndarray | None, elements: int
) -> tuple[tuple[Level, ...], np.ndarray | None]:
    """Return the levels of sorted, distinct coordinates, outermost mode first, and the values by position.

    A 0/1 map (values None) gets values only if a dense last level pads it with zeros. Raises MemoryLimit if a dense
    level exceeds the memory.
    """
    # The position of every element in the last level so far, and the number of positions.
    at, size = np.zeros(elements, np.int64), 1
    # Whether an element differs from the one before in a level so far.
    changed = np.zeros(elements, bool)
    changed[:1] = True
    levels: list[Level] = []
    for extent, kind, row in zip(extents, kinds, rows):
        changed[1:] |= row[1:] != row[:-1]
        if kind == "dense":
            levels.append(Dense(extent))
            size *= extent
            require_memory((8 if values is None else values.itemsize) * size, f"a dense level of {size} positions")
            at = at * extent + row
        else:
            first = np.flatnonzero(changed)
            positions = np.zeros(size + 1, np.int64)
            np.cumsum(np.bincount(at[first], minlength=size), out=positions[1:])
            kept = row[first].astype(np.int32 if extent <= _INT32_MAX else np.int64)
            levels.append(Compressed(positions, kept))
            at, size = np.cumsum(changed) - 1, len(first)
    if elements < size or not rows:
        stored = np.ones(elements) if values is None else values
        values = np.zeros(size, stored.dtype)
        values[at] = stored
    return tuple(levels), values
