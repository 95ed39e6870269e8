"""A sparse result: a bound of its size, its parts as kernels append them, and the tensor of all parts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from trnqc.jit import NUMPY
from trnqc.sparse.lower.append import CAPACITY, VALUES, Appended
from trnqc.sparse.lower.pieces import Piece
from trnqc.sparse.network.nest import Nest
from trnqc.sparse.network.network import Indices
from trnqc.sparse.tensors.levels import Compressed, Dense, Level
from trnqc.sparse.tensors.storage import SparseTensor

# Bounds of a sparse result above which the terms of its products are counted.
COUNTED = 2**14


@dataclass(frozen=True)
class Leading:
    """The operand with the outermost index of the result, and the number of its levels that bound the result.

    `before` are the elements of the result that come at most before each entry of the last of these levels; by default
    each entry has one.
    """

    operand: int
    levels: int
    before: np.ndarray | None = None


def most_elements(nest: Nest, operands: Sequence[SparseTensor]) -> tuple[int, Leading | None]:
    """Return an upper bound of the number of elements of a sparse result, and an operand or None.

    The bound is the number of elements that operands store over some of its indices, times the extents of the others,
    or that of the terms of a product of rows. The operand enters the bound with a dense outermost level over the
    outermost index of the result.
    """
    network, bound, left = nest.network, 1, set(nest.network.output)
    covers: list[tuple[Indices, int, int]] = [((x,), network.extents[x], -1) for x in network.output]
    for t, (f, tensor) in enumerate(zip(nest.formats, operands)):
        covers += [(f.order[: level + 1], size, t) for level, size in enumerate(tensor.sizes)]
    leading = None
    for order, size, t in sorted(covers, key=lambda c: c[1] / max(1, math.prod(network.shape(c[0])))):
        if set(order) <= left:
            bound, left = bound * size, left - set(order)
            if t >= 0 and order[0] == nest.formats[-1].order[0] and nest.formats[t].kinds[0] == "dense":
                leading = Leading(t, len(order))
    terms = _terms(nest, operands) if bound > COUNTED else None
    if terms is not None and terms.before is not None and terms.before[-1] < bound:
        return int(terms.before[-1]), terms
    return bound, leading


def _terms(nest: Nest, operands: Sequence[SparseTensor]) -> Leading | None:
    """Return the operand whose last index is summed over rows of the other, with the terms of such a product.

    None is returned for other products.
    """
    output = nest.formats[-1].order
    for t, u in ((0, 1), (1, 0)) if len(operands) == 2 else ():
        rows, others = nest.formats[t], nest.formats[u]
        outer, summed = rows.order[:-1], rows.order[-1:]
        if not outer or summed != others.order[:1] or (*outer, *others.order[1:]) != output:
            continue
        last = operands[t].levels[-1]
        if rows.kinds[0] == others.kinds[0] == "dense" and isinstance(last, Compressed):
            of_rows = positions_under(operands[u], len(others.order), np.arange(nest.network.extents[summed[0]] + 1))
            before = np.zeros(len(last.coordinates) + 1, np.int64)
            np.cumsum(np.diff(of_rows)[last.coordinates], out=before[1:])
            return Leading(t, len(rows.order), before)
    return None


def positions_under(operand: SparseTensor, levels: int, coordinates: np.ndarray) -> np.ndarray:
    """Return where the positions of the last of `levels` levels begin under coordinates of the first, dense level."""
    positions = coordinates
    for level in operand.levels[1:levels]:
        positions = level.positions[positions] if isinstance(level, Compressed) else positions * level.size
    return positions


def shares_of(nest: Nest, operands: Sequence[SparseTensor], piece: Piece, edges: np.ndarray) -> tuple[int, np.ndarray]:
    """Return the bound of a sparse result, and the shares of ranges of groups in the elements of operands.

    `edges` has the first group of each range and the end of the last one. The shares add up to 1 or less.
    """
    bound, leading = most_elements(nest, operands)
    starts = edges
    if leading is not None and piece.over == "index":
        starts = positions_under(operands[leading.operand], leading.levels, edges)
        starts = starts if leading.before is None else leading.before[starts]
    return bound, np.diff(starts) / max(1, starts[-1] - starts[0])


@dataclass(frozen=True)
class ResultPart:
    """The arrays of one part of a sparse result, by their names in the program."""

    appended: Appended
    arguments: dict[str, Any]

    @classmethod
    def empty(cls, appended: Appended, capacities: Sequence[int], prefix: np.ndarray) -> list[ResultPart]:
        """Reserve parts that follow one another in memory, with `capacities` of entries in every level.

        They share `prefix`, the int64 counts under the dense levels.
        """
        edges = np.concatenate([[0], np.cumsum(capacities)])
        whole: dict[str, np.ndarray] = {VALUES.name: np.empty(edges[-1])}
        for level in range(appended.first, appended.last + 1):
            coordinates = appended.coordinates(level)
            whole[coordinates.name] = np.empty(edges[-1], NUMPY[coordinates.dtype])
            if level > appended.first:
                whole[appended.counts(level).name] = np.empty(edges[-1], np.int64)
        parts = []
        for begin, end in pairwise(edges):
            own: dict[str, Any] = {name: array[begin:end] for name, array in whole.items()}
            own |= {appended.counts(appended.first).name: prefix, CAPACITY.attr: int(end - begin)}
            parts.append(cls(appended, own | {appended.used.name: np.zeros(appended.last + 1, np.int64)}))
        return parts

    def used(self, level: int) -> int:
        """Return the number of entries of a level."""
        return int(self.arguments[self.appended.used.name][level])

    def entries(self, name: str, level: int) -> np.ndarray:
        """Return the part of an array that the entries of a level occupy."""
        return self.arguments[name][: self.used(level)]


def joined(
    shape: tuple[int, ...], modes: tuple[int, ...], parts: Sequence[ResultPart], copy: bool = False
) -> SparseTensor:
    """Return the tensor of consecutive parts, which are in the order of the outermost coordinates.

    `modes` has the mode of each level, outermost first. With `copy` the tensor has memory of its own.
    """
    appended = parts[0].appended
    levels: list[Level] = []
    for level, mode in enumerate(modes):
        if level < appended.first:
            levels.append(Dense(shape[mode]))
            continue
        name = appended.counts(level).name
        if level == 0:
            counts = np.array([sum(part.used(0) for part in parts)])
        elif level == appended.first:
            counts = parts[0].arguments[name]
        else:
            counts = _concatenated([part.entries(name, level - 1) for part in parts], copy)
        coordinates = [part.entries(appended.coordinates(level).name, level) for part in parts]
        positions = np.zeros(len(counts) + 1, np.int64)
        np.cumsum(counts, out=positions[1:])
        levels.append(Compressed(positions, _concatenated(coordinates, copy)))
    values = _concatenated([part.entries(VALUES.name, appended.last) for part in parts], copy)
    return SparseTensor(shape, modes, tuple(levels), values)


def _concatenated(parts: Sequence[np.ndarray], copy: bool) -> np.ndarray:
    """Join arrays: as a view if they have no gaps and fill most of their memory, else or with `copy` as a copy."""
    if copy:
        return np.concatenate(parts)
    whole, size = parts[0].base, sum(part.size for part in parts)
    ends = [part.ctypes.data + part.nbytes for part in parts]
    gapless = all(end == part.ctypes.data for end, part in zip(ends, parts[1:]))
    if gapless and isinstance(whole, np.ndarray) and 2 * size > whole.size:
        return whole[:size]
    return np.concatenate(parts)
