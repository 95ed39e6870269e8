"""A pairwise product made ready to run: where blocks lie in packed matrices.

pair -> grouping of least time -> homes in packed operands, stacks, homes of the result -> `BlockProduct`
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse

from trnqc.sparse.blocks.groups import BlockGroups, Lists, Meetings, groupings, within
from trnqc.sparse.blocks.homes import BlockCopy, BlockHomes, matrix_homes, plain_homes
from trnqc.sparse.blocks.pair import BlockPair, Labelled
from trnqc.sparse.blocks.product import AddedProducts, BlockProduct, Matrix, StackedProducts
from trnqc.sparse.network.network import Indices

Axes = tuple[Indices, Indices, Indices]
"""Indices of stack, rows and columns of the matrices of a tensor."""


def block_product(pair: BlockPair, left: BlockHomes, right: BlockHomes) -> BlockProduct:
    """Return a product, with its blocks joined in the way that is estimated to be fastest.

    Parameters
    ----------
    pair
        The operands and the result.
    left, right
        Where the blocks of the operands lie.
    """
    meetings = Meetings.of(pair)
    joined = groupings(pair, meetings)
    seconds = {way: groups.seconds(pair.result) for way, groups in joined.items()}
    way = min(seconds, key=lambda way: seconds[way])
    if (alone := meetings.seconds(pair)) < seconds[way]:
        return replace(added(pair, meetings, left, right), seconds=alone)
    return replace(stacked(pair, way, joined[way], left, right), seconds=seconds[way])


def stacked(pair: BlockPair, way: str, groups: BlockGroups, left: BlockHomes, right: BlockHomes) -> BlockProduct:
    """Return a product whose blocks are joined in groups."""
    # Elements that are next to each other stay so: matrices are packed as transposes if the last index is a row of
    # the left operand, or a contracted index of the right one.
    turned = pair.left[0][-1:] in [(x,) for x in pair.rows], pair.right[0][-1:] in [(x,) for x in pair.summed]
    shapes, counts = np.unique(groups.extents, axis=0, return_counts=True)
    stacks = tuple((h * count, m, d, n) for (h, m, d, n), count in zip(shapes.tolist(), counts.tolist()))
    result = (pair.output, pair.result)
    packer = _Packer(pair, groups)
    blocks, packed = packer.homes(pair.left, (pair.rows, pair.summed), pair.left_ids, (0, 1), turned[0])
    a = BlockCopy(left.of(blocks), packed, int(groups.elements(0, 1, 2).sum()))
    blocks, packed = packer.homes(pair.right, (pair.summed, pair.columns), pair.right_ids, (1, 2), turned[1])
    b = BlockCopy(right.of(blocks), packed, int(groups.elements(0, 2, 3).sum()))
    size = int(groups.elements(0, 1, 3).sum())
    blocks, made = packer.homes(result, (pair.rows, pair.columns), pair.result_ids, (0, 2), False)
    products = StackedProducts(stacks, turned, size)
    plain = plain_homes(pair.result)
    if len(blocks) == len(pair.result):
        return BlockProduct(pair, way, a, b, products, None, made.of(np.argsort(blocks)))
    rows_columns = plain.of(blocks).places, made.places
    ones = scipy.sparse.csr_array((np.ones(size), rows_columns), shape=(pair.result.size, size))
    return BlockProduct(pair, way, a, b, products, ones, plain)


def added(pair: BlockPair, meetings: Meetings, left: BlockHomes, right: BlockHomes) -> BlockProduct:
    """Return a product in which each pair of blocks is multiplied by itself and added to the result in place."""
    a, lefts = _alone(pair.left, (pair.batch, pair.rows, pair.summed))
    b, rights = _alone(pair.right, (pair.batch, pair.summed, pair.columns))
    made, results = _alone((pair.output, pair.result), (pair.batch, pair.rows, pair.columns))
    into = _Lookup(pair.result_ids, pair.counts[2]).blocks(meetings.rows, meetings.columns)[1]
    steps = tuple(zip(meetings.left.tolist(), meetings.right.tolist(), into.tolist()))
    products = AddedProducts(lefts, rights, results, steps, pair.result.size)
    copies = BlockCopy(left, a, pair.left[1].size), BlockCopy(right, b, pair.right[1].size)
    return BlockProduct(pair, "added", *copies, products, None, made)


class _Lookup:
    """Finds blocks by two of their numbers."""

    def __init__(self, ids: tuple[np.ndarray, np.ndarray], count: int) -> None:
        keys = ids[0] * count + ids[1]
        self.count, self.order = count, np.argsort(keys)
        self.keys = keys[self.order]

    def blocks(self, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return which of the pairs of numbers are those of a block, and the blocks."""
        wanted = first * self.count + second
        at = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        there = self.keys[at] == wanted if len(self.keys) else np.zeros(len(wanted), bool)
        return there, self.order[at[there]]


class _Packer:
    """Finds where blocks lie in the matrices of groups."""

    def __init__(self, pair: BlockPair, groups: BlockGroups) -> None:
        self.pair, self.groups = pair, groups
        self.lists = groups.rows, groups.middles, groups.columns
        self.sizes = pair.heights, pair.depths, pair.widths

    def homes(
        self,
        operand: Labelled,
        axes: tuple[Indices, Indices],
        ids: tuple[np.ndarray, np.ndarray],
        which: tuple[int, int],
        turned: bool,
    ) -> tuple[np.ndarray, BlockHomes]:
        """Return the numbers of the stored blocks in all matrices and their homes there.

        Parameters
        ----------
        operand, axes, ids
            The tensor, the indices of rows and columns of its matrices, and their numbers for each block.
        which
            Which of rows, middles and columns of the groups these are.
        turned
            Whether each matrix is stored as its transpose.
        """
        one, two = which
        first, second = self.lists[one], self.lists[two]
        group, p, q = _crossed(first, second)
        tall, wide = (self.groups.extents[:, n + 1][group] for n in which)
        extents = self.groups.elements(0, one + 1, two + 1)
        down, across = (1, tall) if turned else (wide, 1)
        at = (np.cumsum(extents) - extents)[group]
        at = at + first.before(self.sizes[one])[p] * down + second.before(self.sizes[two])[q] * across
        there, blocks = _Lookup(ids, self.pair.counts[two]).blocks(first.numbers[p], second.numbers[q])
        (labels, pattern), (rows, columns) = operand, axes
        steps = ((self.pair.batch, tall * wide), (rows, down), (columns, across))
        modes = [
            ([labels.index(x) for x in indices], np.broadcast_to(step, len(there))[there]) for indices, step in steps
        ]
        return blocks, matrix_homes(pattern.block_shapes[blocks], at[there], modes)


def _crossed(first: Lists, second: Lists) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (group, place in first, place in second) for all pairs of members of the same group."""
    counts = first.lengths * second.lengths
    group = np.repeat(np.arange(len(counts)), counts)
    p, q = np.divmod(within(counts), second.lengths[group])
    return group, first.starts[group] + p, second.starts[group] + q


def _alone(operand: Labelled, axes: Axes) -> tuple[BlockHomes, tuple[Matrix, ...]]:
    """Return the homes of blocks that are packed as matrices one by one, and these matrices."""
    labels, pattern = operand
    modes = [[labels.index(x) for x in group] for group in axes]
    extents = np.stack([pattern.block_shapes[:, group].prod(axis=1) for group in modes], axis=1)
    steps = extents[:, 1] * extents[:, 2], extents[:, 2], 1
    matrices = tuple(
        (begin, end, tuple(shape[1:] if shape[0] == 1 else shape))
        for begin, end, shape in zip(pattern.offsets[:-1].tolist(), pattern.offsets[1:].tolist(), extents.tolist())
    )
    return matrix_homes(pattern.block_shapes, pattern.offsets[:-1], list(zip(modes, steps))), matrices
