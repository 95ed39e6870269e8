"""A product of two tensors by their patterns: which blocks meet, the pattern of the result, and the work.

Blocks are rows, contracted (middle) blocks and columns of a product of matrices. A batch index, which both operands and
the result have, is part of the numbers of all three.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse

from trnqc.sparse.blocks.pattern import BlockPattern, Sizes
from trnqc.sparse.network.network import Indices

# Mean size of blocks from which the order of the labels is kept: copies of longer runs are not much quicker.
LONG = 8

Labelled = tuple[Indices, BlockPattern]


@dataclass(frozen=True, eq=False)
class BlockPair:
    """Two operands whose product is summed over all indices of both that the result does not have.

    Attributes
    ----------
    left, right
        Labels and pattern of the operands. An index that only one operand has is kept.
    output
        The labels of the result, in any order.
    """

    left: Labelled
    right: Labelled
    output: Indices

    @cached_property
    def batch(self) -> Indices:
        """Indices of both operands and the result."""
        return self._by_size(self.left, [x for x in self.left[0] if x in self.right[0] and x in self.output])

    @cached_property
    def summed(self) -> Indices:
        """Indices of both operands that are summed."""
        return self._by_size(self.left, [x for x in self.left[0] if x in self.right[0] and x not in self.output])

    @cached_property
    def rows(self) -> Indices:
        """Indices of the left operand alone."""
        return self._by_size(self.left, [x for x in self.left[0] if x not in self.right[0]])

    @cached_property
    def columns(self) -> Indices:
        """Indices of the right operand alone."""
        return self._by_size(self.right, [x for x in self.right[0] if x not in self.left[0]])

    @staticmethod
    def _by_size(operand: Labelled, labels: Sequence[str]) -> Indices:
        """Return labels with those of small blocks first: copies are quick if many elements are next to each other."""
        modes = {x: _mode(operand, x) for x in labels}
        return tuple(sorted(labels, key=lambda x: min(sum(modes[x]) / max(len(modes[x]), 1), LONG)))

    @cached_property
    def left_ids(self) -> tuple[np.ndarray, np.ndarray]:
        """The number of the row and of the middle of each block of the left operand."""
        return _numbers(self.left, self.batch + self.rows), self._middles[0]

    @cached_property
    def right_ids(self) -> tuple[np.ndarray, np.ndarray]:
        """The number of the middle and of the column of each block of the right operand."""
        return self._middles[1], _numbers(self.right, self.batch + self.columns)

    @cached_property
    def _middles(self) -> tuple[np.ndarray, np.ndarray]:
        ids = self._shared(self.batch + self.summed)
        return ids[: len(self.left[1])], ids[len(self.left[1]) :]

    @cached_property
    def batch_ids(self) -> tuple[np.ndarray, np.ndarray]:
        """The number of the batch of each block of the operands."""
        ids = self._shared(self.batch)
        return ids[: len(self.left[1])], ids[len(self.left[1]) :]

    def _shared(self, labels: Indices) -> np.ndarray:
        both = np.concatenate([_columns(operand, labels) for operand in (self.left, self.right)])
        return _distinct(both, [_mode(self.left, x) for x in labels])

    @cached_property
    def counts(self) -> tuple[int, int, int]:
        """Numbers of different rows, middles and columns."""
        rows, middles, columns = self.left_ids[0], np.concatenate(self._middles), self.right_ids[1]
        return tuple(int(ids.max(initial=-1)) + 1 for ids in (rows, middles, columns))  # type: ignore[return-value]

    @cached_property
    def heights(self) -> np.ndarray:
        """Elements of each row, without its batch."""
        return _by_id(self.left_ids[0], _elements(self.left, self.rows), self.counts[0])

    @cached_property
    def depths(self) -> np.ndarray:
        """Elements of each middle, without its batch."""
        ids = np.concatenate(self._middles)
        elements = np.concatenate([_elements(operand, self.summed) for operand in (self.left, self.right)])
        return _by_id(ids, elements, self.counts[1])

    @cached_property
    def widths(self) -> np.ndarray:
        """Elements of each column, without its batch."""
        return _by_id(self.right_ids[1], _elements(self.right, self.columns), self.counts[2])

    @cached_property
    def stacks(self) -> np.ndarray:
        """Elements of the batch of each row."""
        return _by_id(self.left_ids[0], _elements(self.left, self.batch), self.counts[0])

    @cached_property
    def flops(self) -> int:
        """Additions and multiplications of all pairs of blocks that meet."""
        (rows, left), (right, columns) = self.left_ids, self.right_ids
        middles = self.counts[1]
        above = np.bincount(left, (self.heights * self.stacks)[rows], middles)
        beside = np.bincount(right, self.widths[columns], middles)
        return int(2 * (above * beside * self.depths).sum())

    @cached_property
    def result_ids(self) -> tuple[np.ndarray, np.ndarray]:
        """The numbers of row and column of each block of the result, in the order of its pattern."""
        return self._result[0]

    @property
    def result(self) -> BlockPattern:
        """The pattern of the result."""
        return self._result[1]

    @cached_property
    def _result(self) -> tuple[tuple[np.ndarray, np.ndarray], BlockPattern]:
        (rows, left), (right, columns) = self.left_ids, self.right_ids
        n, middles, m = self.counts
        a = scipy.sparse.csr_array((np.ones(len(rows)), (rows, left)), shape=(n, middles))
        b = scipy.sparse.csr_array((np.ones(len(columns)), (right, columns)), shape=(middles, m))
        met = (a @ b).tocoo()
        own = np.empty(n, np.int64), np.empty(m, np.int64)
        own[0][rows], own[1][columns] = np.arange(len(rows)), np.arange(len(columns))
        ends = (self.left, own[0][met.row]), (self.right, own[1][met.col])
        coordinates = np.empty((len(met.row), len(self.output)), np.int64)
        for axis, label in enumerate(self.output):
            (labels, pattern), blocks = ends[0] if label in self.left[0] else ends[1]
            coordinates[:, axis] = pattern.coordinates[blocks, labels.index(label)]
        order = np.lexsort(coordinates.T[::-1]) if self.output else np.arange(len(coordinates))
        sizes = tuple(_mode(self.left if x in self.left[0] else self.right, x) for x in self.output)
        pattern = BlockPattern(sizes, coordinates[order])
        return (met.row[order].astype(np.int64), met.col[order].astype(np.int64)), pattern


def _mode(operand: Labelled, label: str) -> tuple[int, ...]:
    labels, pattern = operand
    return pattern.sizes[labels.index(label)]


def _columns(operand: Labelled, labels: Indices) -> np.ndarray:
    return operand[1].coordinates[:, [operand[0].index(x) for x in labels]]


def _elements(operand: Labelled, labels: Indices) -> np.ndarray:
    """Return for each block the product of its extents along some labels."""
    return operand[1].block_shapes[:, [operand[0].index(x) for x in labels]].prod(axis=1)


def _numbers(operand: Labelled, labels: Indices) -> np.ndarray:
    return _distinct(_columns(operand, labels), [_mode(operand, x) for x in labels])


def _distinct(coordinates: np.ndarray, sizes: Sequence[tuple[int, ...]] | Sizes) -> np.ndarray:
    """Return for each row of coordinates the number of its value among the different ones, in lexicographic order."""
    keys = np.zeros(len(coordinates), np.int64)
    for axis, mode in enumerate(sizes):
        keys = keys * len(mode) + coordinates[:, axis]
    return np.unique(keys, return_inverse=True)[1]


def _by_id(ids: np.ndarray, numbers: np.ndarray, count: int) -> np.ndarray:
    by_id = np.ones(count, np.int64)
    by_id[ids] = numbers
    return by_id
