"""Where the elements of blocks lie in packed matrices: a pairwise product made ready to run.

pair -> grouping of least time -> places of packed operands, stacks, places of the result -> `BlockProduct`
"""

from __future__ import annotations

import numpy as np
import scipy.sparse

from trnqc.sparse.blocks.groups import BlockGroups, Lists, Meetings, by_middle, by_result, within
from trnqc.sparse.blocks.pair import BlockPair, Labelled
from trnqc.sparse.blocks.pattern import shape_classes
from trnqc.sparse.blocks.product import AddedProducts, BlockProduct, Matrix, Places, StackedProducts
from trnqc.sparse.network.network import Indices


def block_product(pair: BlockPair, left: Places = None, right: Places = None) -> BlockProduct:
    """Return a product, with its blocks joined in the way that is estimated to be fastest.

    Parameters
    ----------
    pair
        The operands and the result.
    left, right
        Where the elements of the operands are found, in the order of their patterns.
    """
    meetings = Meetings.of(pair)
    joined = {"by result": by_result(pair, meetings), "by contracted block": by_middle(pair)}
    seconds = {way: groups.seconds(pair.result.size) for way, groups in joined.items()}
    way = min(seconds, key=lambda way: seconds[way])
    if meetings.seconds(pair) < seconds[way]:
        return added(pair, meetings, left, right)
    return stacked(pair, way, joined[way], left, right)


def stacked(pair: BlockPair, way: str, groups: BlockGroups, left: Places = None, right: Places = None) -> BlockProduct:
    """Return a product whose blocks are joined in groups."""
    a, _ = _packed(pair.left, (pair.batch, pair.rows, pair.summed), pair.left_ids, groups, (0, 1, 2), pair)
    b, _ = _packed(pair.right, (pair.batch, pair.summed, pair.columns), pair.right_ids, groups, (0, 2, 3), pair)
    made, size = _packed(
        (pair.output, pair.result), (pair.batch, pair.rows, pair.columns), pair.result_ids, groups, (0, 1, 3), pair
    )
    shapes, counts = np.unique(groups.extents, axis=0, return_counts=True)
    stacks = tuple((h * count, *rest) for (h, *rest), count in zip(shapes.tolist(), counts.tolist()))
    products = StackedProducts(stacks, size)
    packed = _seen(_inverse(*a), left), _seen(_inverse(*b), right)
    blocks, places = made
    if size == pair.result.size:
        return BlockProduct(pair, way, *packed, products, _plain(_inverse(places, blocks)), None)
    ones = scipy.sparse.csr_array((np.ones(size), (blocks, places)), shape=(pair.result.size, size))
    return BlockProduct(pair, way, *packed, products, None, ones)


def added(pair: BlockPair, meetings: Meetings, left: Places = None, right: Places = None) -> BlockProduct:
    """Return a product in which each pair of blocks is multiplied by itself and added to the result in place."""
    a, lefts = _alone(pair.left, (pair.batch, pair.rows, pair.summed))
    b, rights = _alone(pair.right, (pair.batch, pair.summed, pair.columns))
    c, results = _alone((pair.output, pair.result), (pair.batch, pair.rows, pair.columns))
    lookup = _Lookup(pair.result_ids, pair.counts[2])
    into = lookup.blocks(meetings.rows, meetings.columns)
    steps = tuple(zip(meetings.left.tolist(), meetings.right.tolist(), into.tolist()))
    products = AddedProducts(lefts, rights, results, steps, pair.result.size)
    return BlockProduct(pair, "added", _seen(a, left), _seen(b, right), products, _plain(np.argsort(c)), None)


class _Lookup:
    """Finds blocks by two of their numbers."""

    def __init__(self, ids: tuple[np.ndarray, np.ndarray], count: int) -> None:
        keys = ids[0] * count + ids[1]
        self.count, self.order = count, np.argsort(keys)
        self.keys = keys[self.order]

    def blocks(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return self.order[np.searchsorted(self.keys, first * self.count + second)]


def _packed(
    operand: Labelled,
    axes: tuple[Indices, Indices, Indices],
    ids: tuple[np.ndarray, np.ndarray],
    groups: BlockGroups,
    which: tuple[int, int, int],
    pair: BlockPair,
) -> tuple[tuple[np.ndarray, np.ndarray], int]:
    """Return places of elements among blocks and in the matrices [stack, first, second] of all groups; their size."""
    lists, sizes = (groups.rows, groups.middles, groups.columns), (pair.heights, pair.depths, pair.widths)
    one, two = which[1] - 1, which[2] - 1
    first, second = lists[one], lists[two]
    extents = groups.elements(*which)
    begins = np.cumsum(extents) - extents
    group, p, q = _crossed(first, second)
    tall, wide = groups.extents[:, which[1]][group], groups.extents[:, which[2]][group]
    at = begins[group] + first.before(sizes[one])[p] * wide + second.before(sizes[two])[q]
    blocks = _Lookup(ids, pair.counts[two]).blocks(first.numbers[p], second.numbers[q])
    return _elements(operand, axes, blocks, at, tall * wide, wide), int(extents.sum())


def _crossed(first: Lists, second: Lists) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (group, place in first, place in second) for all pairs of members of the same group."""
    counts = first.lengths * second.lengths
    group = np.repeat(np.arange(len(counts)), counts)
    inside = within(counts)
    p, q = np.divmod(inside, second.lengths[group])
    return group, first.starts[group] + p, second.starts[group] + q


def _elements(
    operand: Labelled,
    axes: tuple[Indices, Indices, Indices],
    blocks: np.ndarray,
    at: np.ndarray,
    stack_step: np.ndarray,
    row_step: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return for each element of blocks its place among the values, and its place in the matrices.

    Parameters
    ----------
    operand, axes
        The tensor, and the indices of stack, rows and columns of its matrices.
    blocks, at, stack_step, row_step
        Numbers of blocks; for each where it begins in the matrices, and the distances of stack and rows there.
    """
    labels, pattern = operand
    axis = [labels.index(x) for group in axes for x in group]
    inside, outside = [], []
    for shape, chosen in shape_classes(pattern.block_shapes[blocks]):
        extents = [int(np.prod([shape[labels.index(x)] for x in group])) for group in axes]
        elements = np.arange(int(np.prod(shape))).reshape(shape).transpose(axis).reshape(-1)
        h, r, c = np.unravel_index(np.arange(len(elements)), extents) if len(shape) else ([0], [0], [0])
        inside.append(pattern.offsets[blocks[chosen], None] + elements)
        outside.append(at[chosen, None] + h * stack_step[chosen, None] + r * row_step[chosen, None] + c)
    nothing = np.empty(0, np.int64)
    return (
        np.concatenate([nothing, *(x.reshape(-1) for x in inside)]),
        np.concatenate([nothing, *(x.reshape(-1) for x in outside)]),
    )


def _alone(operand: Labelled, axes: tuple[Indices, Indices, Indices]) -> tuple[np.ndarray, tuple[Matrix, ...]]:
    """Return places of the elements of blocks that are packed as matrices one by one, and these matrices."""
    labels, pattern = operand
    extents = np.stack(
        [pattern.block_shapes[:, [labels.index(x) for x in group]].prod(axis=1) for group in axes], axis=1
    )
    begins = pattern.offsets[:-1]
    pair = _elements(operand, axes, np.arange(len(pattern)), begins, extents[:, 1] * extents[:, 2], extents[:, 2])
    matrices = tuple(
        (begin, end, tuple(shape[1:] if shape[0] == 1 else shape))
        for begin, end, shape in zip(begins.tolist(), pattern.offsets[1:].tolist(), extents.tolist())
    )
    return _inverse(*pair), matrices


def _inverse(found: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return `found` in the order of their places, which are 0, 1, ... in any order."""
    ordered = np.empty(len(found), np.int64)
    ordered[places] = found
    return ordered


def _plain(places: np.ndarray) -> Places:
    """Return None for places in their order."""
    return None if np.array_equal(places, np.arange(len(places))) else places


def _seen(places: np.ndarray, earlier: Places) -> Places:
    """Return where elements are found that are at `places` of an array which is itself found at `earlier`."""
    return _plain(places) if earlier is None else earlier[places]
