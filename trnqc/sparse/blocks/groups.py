"""How the pairs of blocks that meet are joined to products of larger matrices.

    pair of patterns -> groups of rows x middles x columns, and the time that they take

A group is one product of matrices, and each pair of blocks that meets is in one group. Groups `by_result` compute each
block of the result by one product, along all of its contracted blocks; operands are then copied more than once unless
patterns are regular. Groups `by_middle` copy each block of an operand once, and products are added to the result. Both
are one group for each charge if blocks follow quantum numbers. Groups `by_row` or `by_column` copy each block of one
operand once, and add no products, but fill the matrices of the other operand with zeros. Groups `by_component` fill
both, and are best if few blocks are missing. So do groups of all blocks of the same batch, which are best for tensors
of a few elements, because they are one product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
import scipy.sparse
import scipy.sparse.csgraph

from trnqc.sparse.blocks.homes import copy_seconds
from trnqc.sparse.blocks.pair import BlockPair
from trnqc.sparse.blocks.pattern import BlockPattern

# Seconds, measured on an EPYC (Zen 4) with one thread. They decide which grouping is taken, never what it computes.
ADD = 3e-9  # for each element that is gathered and added
PRODUCT = 3e-8  # for each matrix product of a stack
FLOP = 2.5e-11  # for each addition or multiplication of matrix products
SHAPE = 2.5e-6  # for each stack of products of one shape
CALL = 2e-6  # for each product that is called for and added by itself
SUM = 5e-10  # for each element that such a product adds


Group = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Numbers of rows, middles and columns."""


@dataclass(frozen=True, eq=False)
class Lists:
    """Lists of numbers, one after another; list g is numbers[starts[g] : starts[g + 1]]."""

    numbers: np.ndarray
    starts: np.ndarray

    @staticmethod
    def of(lists: Sequence[np.ndarray]) -> Lists:
        """Return the lists in this order."""
        numbers = np.concatenate([*lists, np.empty(0, np.int64)]).astype(np.int64)
        return Lists(numbers, np.concatenate(([0], np.cumsum([len(x) for x in lists]))).astype(np.int64))

    @cached_property
    def lengths(self) -> np.ndarray:
        """The length of each list."""
        return np.diff(self.starts)

    def sums(self, sizes: np.ndarray) -> np.ndarray:
        """Return for each list the sum of the sizes of its members."""
        total = np.concatenate(([0], np.cumsum(sizes[self.numbers])))
        return np.asarray(total[self.starts[1:]] - total[self.starts[:-1]])

    def before(self, sizes: np.ndarray) -> np.ndarray:
        """Return for each member the sum of the sizes of those before it in its list."""
        own = sizes[self.numbers]
        total = np.cumsum(own) - own
        return total - np.repeat(total[self.starts[:-1][self.lengths > 0]], self.lengths[self.lengths > 0])

    def sorted(self, order: np.ndarray) -> Lists:
        """Return the lists in another order."""
        return Lists.of([self.numbers[self.starts[g] : self.starts[g + 1]] for g in order])


@dataclass(frozen=True, eq=False)
class BlockGroups:
    """Products of matrices [stack, rows, middles] and [stack, middles, columns], in the order of their shapes.

    Attributes
    ----------
    rows, middles, columns
        The numbers of those of each group.
    extents
        int64 [groups, 4]: elements of stack, rows, middles and columns.
    filled
        Whether each block of the result is in one group, but not all blocks of the groups are stored.
    """

    rows: Lists
    middles: Lists
    columns: Lists
    extents: np.ndarray
    filled: bool = False

    @staticmethod
    def of(pair: BlockPair, groups: Sequence[Group]) -> BlockGroups:
        """Return the groups with these rows, middles and columns."""
        rows, middles, columns = (Lists.of([group[n] for group in groups]) for n in range(3))
        stack = pair.stacks[rows.numbers[rows.starts[:-1]]]
        extents = np.stack(
            [stack, rows.sums(pair.heights), middles.sums(pair.depths), columns.sums(pair.widths)], axis=1
        ).astype(np.int64)
        order = np.lexsort(extents.T[::-1])
        return BlockGroups(rows.sorted(order), middles.sorted(order), columns.sorted(order), extents[order])

    def elements(self, *which: int) -> np.ndarray:
        """Return for each group the product of some of its extents."""
        return np.asarray(self.extents[:, which].prod(axis=1))

    def seconds(self, result: BlockPattern) -> float:
        """Return the estimated time, for a result of this pattern."""
        packed, made = self.elements(0, 1, 2).sum() + self.elements(0, 2, 3).sum(), self.elements(0, 1, 3).sum()
        blocks = ((self.rows.lengths + self.columns.lengths) * self.middles.lengths).sum()
        once = (self.rows.lengths * self.columns.lengths).sum() == len(result)
        out = copy_seconds(result.size, len(result)) if once or self.filled else ADD * made
        shapes = len(np.unique(self.extents, axis=0))
        products = PRODUCT * self.extents[:, 0].sum() + FLOP * 2 * self.elements(0, 1, 2, 3).sum()
        return float(copy_seconds(packed, blocks) + products + SHAPE * shapes + out)


@dataclass(frozen=True, eq=False)
class Meetings:
    """Every pair of blocks that meets: its blocks, and its row, middle and column; those of one result are together."""

    left: np.ndarray
    right: np.ndarray
    rows: np.ndarray
    middles: np.ndarray
    columns: np.ndarray

    @staticmethod
    def of(pair: BlockPair) -> Meetings:
        """Return all pairs of blocks that meet."""
        (rows, left), (right, columns) = pair.left_ids, pair.right_ids
        order, others = np.argsort(left, kind="stable"), np.argsort(right, kind="stable")
        first = np.searchsorted(right[others], left[order], "left")
        counts = np.searchsorted(right[others], left[order], "right") - first
        a = np.repeat(order, counts)
        b = others[np.repeat(first, counts) + within(counts)]
        together = np.lexsort((left[a], columns[b], rows[a]))
        a, b = a[together], b[together]
        return Meetings(a, b, rows[a], left[a], columns[b])

    @cached_property
    def results(self) -> np.ndarray:
        """Where the pairs of each block of the result begin, and behind the last one their number."""
        new = np.flatnonzero((np.diff(self.rows) != 0) | (np.diff(self.columns) != 0)) + 1
        return np.concatenate(([0], new, [len(self.rows)])) if len(self.rows) else np.zeros(1, np.int64)

    def seconds(self, pair: BlockPair) -> float:
        """Return the estimated time if each pair is multiplied by itself and added to the result in place."""
        elements = pair.stacks[self.rows] * pair.heights[self.rows] * pair.widths[self.columns]
        work = FLOP * 2 * (elements * pair.depths[self.middles]).sum() + SUM * elements.sum()
        copied = sum(copy_seconds(x.size, len(x)) for x in (pair.left[1], pair.right[1], pair.result))
        return float(CALL * len(self.rows) + work + copied)


def by_result(pair: BlockPair, meetings: Meetings) -> BlockGroups:
    """Return groups in which each block of the result occurs once."""
    columns_of: dict[tuple[int, bytes], list[int]] = {}
    starts = meetings.results.tolist()
    rows, columns, middles = meetings.rows.tolist(), meetings.columns.tolist(), meetings.middles
    for begin, end in pairwise(starts):
        columns_of.setdefault((rows[begin], middles[begin:end].tobytes()), []).append(columns[begin])
    rows_of: dict[tuple[bytes, tuple[int, ...]], list[int]] = {}
    for (row, summed), wide in columns_of.items():
        rows_of.setdefault((summed, tuple(wide)), []).append(row)
    return BlockGroups.of(
        pair, [(np.array(tall), np.frombuffer(key[0], np.int64), np.array(key[1])) for key, tall in rows_of.items()]
    )


def by_middle(pair: BlockPair) -> BlockGroups:
    """Return groups in which each block of an operand occurs at most once."""
    (rows, left), (right, columns) = pair.left_ids, pair.right_ids
    above, beside = _members(left, rows, pair.counts[1]), _members(right, columns, pair.counts[1])
    middles_of: dict[tuple[bytes, bytes], list[int]] = {}
    for middle, (tall, wide) in enumerate(zip(above, beside)):
        if len(tall) and len(wide):
            middles_of.setdefault((tall.tobytes(), wide.tobytes()), []).append(middle)
    return BlockGroups.of(
        pair,
        [
            (np.frombuffer(tall, np.int64), np.array(deep), np.frombuffer(wide, np.int64))
            for (tall, wide), deep in middles_of.items()
        ],
    )


def by_row(pair: BlockPair) -> BlockGroups:
    """Return groups of rows with the same middles, and of all columns that one of these middles has."""
    (rows, left), (right, columns) = pair.left_ids, pair.right_ids
    groups = _by_members(_members(rows, left, pair.counts[0]), _members(right, columns, pair.counts[1]))
    return BlockGroups.of(pair, groups)


def by_column(pair: BlockPair) -> BlockGroups:
    """Return groups of columns with the same middles, and of all rows that one of these middles has."""
    (rows, left), (right, columns) = pair.left_ids, pair.right_ids
    groups = _by_members(_members(columns, right, pair.counts[2]), _members(left, rows, pair.counts[1]))
    return BlockGroups.of(pair, [group[::-1] for group in groups])


def by_component(pair: BlockPair, batch: bool = False) -> BlockGroups:
    """Return groups of all rows, middles and columns that are connected by blocks, or that have the same batch."""
    (rows, left), (right, columns) = pair.left_ids, pair.right_ids
    n, middles, m = pair.counts
    ends = [(rows, n + left), (n + right, n + middles + columns)]
    if batch:
        ends += [(nodes, n + middles + m + batch_of) for nodes, batch_of in zip((rows, n + right), pair.batch_ids)]
    one, two = (np.concatenate(end) for end in zip(*ends))
    size = int(max(one.max(initial=-1), two.max(initial=-1))) + 1
    graph = scipy.sparse.csr_array((np.ones(len(one)), (one, two)), shape=(size, size))
    count, number = scipy.sparse.csgraph.connected_components(graph, directed=False)
    parts = [_members(x, np.arange(len(x)), count) for x in np.split(number[: n + middles + m], [n, n + middles])]
    found = [group for group in zip(*parts) if all(map(len, group))]
    return replace(BlockGroups.of(pair, found), filled=True)


def groupings(pair: BlockPair, meetings: Meetings) -> dict[str, BlockGroups]:
    """Return all groupings by their names in a printed plan."""
    return {
        "by result": by_result(pair, meetings),
        "by contracted block": by_middle(pair),
        "by row": by_row(pair),
        "by column": by_column(pair),
        "by component": by_component(pair),
        "whole": by_component(pair, batch=True),
    }


def _by_members(middles: Sequence[np.ndarray], others: Sequence[np.ndarray]) -> list[Group]:
    """Return groups of numbers with the same middles, these, and all of the other numbers that one of these has."""
    same: dict[bytes, list[int]] = {}
    for number, own in enumerate(middles):
        used = own[[len(others[middle]) > 0 for middle in own]]
        if len(used):
            same.setdefault(used.tobytes(), []).append(number)
    groups = []
    for key, numbers in same.items():
        own = np.frombuffer(key, np.int64)
        groups.append((np.array(numbers), own, np.unique(np.concatenate([others[middle] for middle in own]))))
    return groups


def _members(keys: np.ndarray, numbers: np.ndarray, count: int) -> list[np.ndarray]:
    """Return for each key below `count` its numbers in increasing order."""
    order = np.lexsort((numbers, keys))
    return np.split(numbers[order], np.searchsorted(keys[order], np.arange(1, count))) if count else []


def within(counts: np.ndarray) -> np.ndarray:
    """Return 0, 1, ... below each count, one after another."""
    total = np.cumsum(counts)
    return np.arange(total[-1] if len(total) else 0) - np.repeat(total - counts, counts)
