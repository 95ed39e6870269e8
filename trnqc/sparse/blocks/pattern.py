"""Where the stored blocks of a tensor are: sizes of the blocks of each mode, and coordinates of the stored ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np

from trnqc.sparse.blocks.charges import BlockCharges

Sizes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, eq=False)
class BlockPattern:
    """The stored blocks of a tensor, without their values.

    Attributes
    ----------
    sizes
        For each mode the extents of its blocks.
    coordinates
        int64 [blocks, ndim], different, in lexicographic order; for each mode the number of the block.
    charges
        Quantum numbers, if there are any.
    """

    sizes: Sizes
    coordinates: np.ndarray
    charges: BlockCharges | None = None

    @cached_property
    def key(self) -> tuple[object, ...]:
        """What makes two patterns equal."""
        return self.sizes, self.coordinates.tobytes(), self.charges

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BlockPattern) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __len__(self) -> int:
        return len(self.coordinates)

    @property
    def ndim(self) -> int:
        """Number of modes."""
        return len(self.sizes)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The extents of the modes."""
        return tuple(map(sum, self.sizes))

    @cached_property
    def starts(self) -> tuple[tuple[int, ...], ...]:
        """For each mode the first element of each block."""
        return tuple((0, *accumulate(mode))[:-1] for mode in self.sizes)

    @property
    def whole(self) -> bool:
        """Whether all blocks are stored."""
        return len(self) == math.prod(map(len, self.sizes))

    @cached_property
    def block_shapes(self) -> np.ndarray:
        """The shape of each stored block, int64 [blocks, ndim]."""
        return self.by_block(self.sizes)

    @cached_property
    def offsets(self) -> np.ndarray:
        """Where each stored block begins among the values of all, and behind the last one their number."""
        return np.concatenate(([0], np.cumsum(self.block_shapes.prod(axis=1)))).astype(np.int64)

    @property
    def size(self) -> int:
        """Number of elements of all stored blocks."""
        return int(self.offsets[-1])

    def by_block(self, numbers: Sequence[Sequence[int]]) -> np.ndarray:
        """Return numbers that are given for each block of each mode, for each stored block: int64 [blocks, ndim]."""
        found = np.empty(self.coordinates.shape, np.int64)
        for axis, mode in enumerate(numbers):
            found[:, axis] = np.array(mode, np.int64)[self.coordinates[:, axis]]
        return found

    def in_dense(self) -> np.ndarray:
        """Return for each stored element its place in the dense array in C order, int64 [size]."""
        steps = np.array([math.prod(self.shape[axis + 1 :]) for axis in range(self.ndim)], np.int64)
        first = (self.by_block(self.starts) * steps).sum(axis=1)
        places = np.empty(self.size, np.int64)
        for shape, ids in shape_classes(self.block_shapes):
            inside = (np.indices(shape).reshape(self.ndim, math.prod(shape)) * steps[:, None]).sum(axis=0)
            places[self.offsets[ids, None] + np.arange(len(inside))] = first[ids, None] + inside
        return places


def every_block(sizes: Sizes) -> BlockPattern:
    """Return the pattern in which all blocks are stored."""
    counts = [len(mode) for mode in sizes]
    return BlockPattern(sizes, np.indices(counts).reshape(len(counts), math.prod(counts)).T.astype(np.int64))


def shape_classes(shapes: np.ndarray) -> list[tuple[tuple[int, ...], np.ndarray]]:
    """Return each different row and the numbers of the rows that are equal to it."""
    if not shapes.shape[1]:
        return [((), np.arange(len(shapes)))] if len(shapes) else []
    rows, which = np.unique(shapes, axis=0, return_inverse=True)
    order = np.argsort(which, kind="stable")
    bounds = np.searchsorted(which[order], np.arange(len(rows) + 1))
    return [(tuple(row.tolist()), order[bounds[n] : bounds[n + 1]]) for n, row in enumerate(rows)]
