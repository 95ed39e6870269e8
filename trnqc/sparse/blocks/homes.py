"""Where the blocks of a tensor lie in an array, and copies of blocks from one array to another.

pattern -> homes in an array of all values, in a dense array, or in matrices that are packed one after another
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trnqc.sparse.blocks.pattern import BlockPattern, shape_classes

# Seconds of one thread of an EPYC (Zen 4). They decide how elements are copied, never what is computed.
GATHER = 7e-10  # for each element by an array of places, if all fit into a cache
FAR = 2e-9  # for each element by an array of places otherwise
CACHED = 2**16  # elements of which target and places take a megabyte
STRIDED = 5e-10  # for each element of a block that is copied by itself
RUN = 3e-9  # for each run of consecutive elements of such a block
BLOCK = 1.2e-6  # for each such block
# Length of the runs where it is not known yet.
TYPICAL = 8


@dataclass(frozen=True, eq=False)
class BlockHomes:
    """Where blocks lie in an array of one axis.

    Attributes
    ----------
    shapes
        The shape of each block, int64 [blocks, ndim].
    offsets
        The place of the first element of each block, int64 [blocks].
    strides
        The distance of elements along each mode, int64 [blocks, ndim].
    """

    shapes: np.ndarray
    offsets: np.ndarray
    strides: np.ndarray

    def of(self, blocks: np.ndarray) -> BlockHomes:
        """Return the homes of some blocks, in this order."""
        return BlockHomes(self.shapes[blocks], self.offsets[blocks], self.strides[blocks])

    def equal(self, other: BlockHomes) -> bool:
        """Return whether every element is at the same place; shapes are the same."""
        same = (self.strides == other.strides) | (self.shapes == 1)
        return bool((self.offsets == other.offsets).all() and same.all())

    @cached_property
    def places(self) -> np.ndarray:
        """The place of each element, int64 [elements]; the order depends on the shapes alone."""
        found = [np.empty(0, np.int64)]
        for shape, blocks in shape_classes(self.shapes):
            inside = np.indices(shape).reshape(len(shape), math.prod(shape))
            found.append((self.offsets[blocks, None] + self.strides[blocks] @ inside).reshape(-1))
        return np.concatenate(found)


def plain_homes(pattern: BlockPattern) -> BlockHomes:
    """Return where the blocks of a block tensor lie among its values."""
    return matrix_homes(pattern.block_shapes, pattern.offsets[:-1], [(range(pattern.ndim), 1)])


def dense_homes(pattern: BlockPattern) -> BlockHomes:
    """Return where the blocks lie in the dense array in C order."""
    steps = np.array([math.prod(pattern.shape[axis + 1 :]) for axis in range(pattern.ndim)], np.int64)
    shapes = pattern.block_shapes
    return BlockHomes(shapes, pattern.by_block(pattern.starts) @ steps, np.broadcast_to(steps, shapes.shape))


def matrix_homes(
    shapes: np.ndarray, offsets: np.ndarray, groups: Sequence[tuple[Sequence[int], np.ndarray | int]]
) -> BlockHomes:
    """Return homes in which groups of modes are the axes of a matrix.

    Parameters
    ----------
    shapes, offsets
        See `BlockHomes`.
    groups
        Modes, in C order, and the distance of elements along the last of them, for each block or for all.
    """
    strides = np.empty_like(shapes)
    for modes, step in groups:
        distance = np.broadcast_to(np.asarray(step, np.int64), len(shapes))
        for mode in reversed(modes):
            strides[:, mode] = distance
            distance = distance * shapes[:, mode]
    return BlockHomes(shapes, np.asarray(offsets), strides)


Moves = tuple[tuple[tuple[int, ...], int, tuple[int, ...], int, tuple[int, ...]], ...]
"""Shape, and for source and target offset and strides in bytes, of each block."""


@dataclass(frozen=True, eq=False)
class BlockCopy:
    """A copy of blocks to new homes in an array of `size` elements; those that are no block's are zero.

    Small blocks are copied together by one gather, large ones one by one, which needs no array of places.
    """

    source: BlockHomes
    target: BlockHomes
    size: int

    @cached_property
    def stored(self) -> int:
        """Number of elements that are copied."""
        return int(self.target.shapes.prod(axis=1).sum())

    @cached_property
    def nothing(self) -> bool:
        """Whether all elements stay at their places."""
        return self.stored == self.size and self.source.equal(self.target)

    @cached_property
    def gathers(self) -> bool:
        """Whether all elements are copied by one gather."""
        shapes = self.target.shapes
        along = np.where(shapes > 1, self.target.strides, np.iinfo(np.int64).max)
        runs = shapes[np.arange(len(shapes)), along.argmin(axis=1)] if shapes.shape[1] else np.ones(len(shapes))
        count = float((shapes.prod(axis=1) / np.maximum(runs, 1)).sum())
        return gather_seconds(self.size) <= BLOCK * len(shapes) + RUN * count + STRIDED * self.stored

    @cached_property
    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """For each element of the target its place in the source; and the elements that are zero."""
        ordered = np.full(self.size, -1)
        ordered[self.target.places] = self.source.places
        zeros = np.flatnonzero(ordered < 0)
        ordered[zeros] = 0
        return ordered, zeros

    @property
    def bytes(self) -> int:
        """Memory of the copied elements in float64 and of their places."""
        if self.nothing:
            return 0
        return 8 * self.size + (sum(x.nbytes for x in self.places) if self.gathers else 0)

    def run(self, values: np.ndarray) -> np.ndarray:
        """Return the elements at their new homes."""
        if self.nothing:
            return values[: self.size]
        if not self.stored:
            return np.zeros(self.size, values.dtype)
        if self.gathers:
            places, zeros = self.places
            made = values.take(places)
            if len(zeros):
                made[zeros] = 0
            return made
        made = (np.empty if self.stored == self.size else np.zeros)(self.size, values.dtype)
        for shape, begin, steps, to, distances in self._moves[values.itemsize]:
            source = np.ndarray(shape, values.dtype, values, begin, steps)
            np.ndarray(shape, values.dtype, made, to, distances)[...] = source
        return made

    @cached_property
    def _moves(self) -> dict[int, Moves]:
        """The blocks by the bytes of an element."""
        return {width: self._of_width(width) for width in (8, 16)}

    def _of_width(self, width: int) -> Moves:
        source, target = self.source, self.target
        numbers = [x.tolist() for x in (source.shapes, *(width * x for x in _numbers(source, target)))]
        return tuple((tuple(a), b, tuple(c), d, tuple(e)) for a, b, c, d, e in zip(*numbers))


def _numbers(source: BlockHomes, target: BlockHomes) -> tuple[np.ndarray, ...]:
    return source.offsets, source.strides, target.offsets, target.strides


def gather_seconds(elements: int) -> float:
    """Return the estimated time of a gather of so many elements."""
    return (GATHER if elements <= CACHED else FAR) * elements


def copy_seconds(elements: int, blocks: int) -> float:
    """Return the estimated time of copying blocks with so many elements in all."""
    return min(gather_seconds(elements), BLOCK * blocks + (STRIDED + RUN / TYPICAL) * elements)
