"""Blocks of sparse tensors that are not given as such, and tensors of such blocks as sparse tensors and back.

Blocks are ranges of each index over which all operands store alike. Two neighbouring values of an index belong to one
range if no operand tells them apart: the elements that are stored at one of them are stored at the other one too. Every
block of ranges is then stored as a whole or not at all, so that block tensors have the same elements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np

from trnqc.sparse.blocks.pattern import BlockPattern
from trnqc.sparse.blocks.tensor import BlockTensor
from trnqc.sparse.network.network import Network
from trnqc.sparse.tensors.levels import Dense
from trnqc.sparse.tensors.storage import SparseTensor, from_coo

# Elements of a block in the mean from which products of matrices may pay.
FEWEST = 16
# Blocks of an operand beyond which they are not looked for: products of so many would take long to plan.
MOST = 2**14
# Stored elements beyond which they are not looked for: that takes about 0.1 microseconds for each.
MOST_ELEMENTS = 2**23
# Stored elements that are looked at first, and the part of them that must be next to another one.
SAMPLE, BESIDE = 4096, 0.4
# Patterns as sparse tensors, and the place of each of their elements among the values of blocks.
_numbered: WeakKeyDictionary[BlockPattern, tuple[SparseTensor, np.ndarray]] = WeakKeyDictionary()
# Odd constants of a multiplicative hash (splitmix64: Steele, Lea and Flood, OOPSLA 2014).
_MIX = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def found_blocks(network: Network, tensors: Sequence[SparseTensor]) -> tuple[BlockPattern | None, ...] | None:
    """Return the blocks of the operands of a network.

    Parameters
    ----------
    network
        The network.
    tensors
        Its operands.

    Returns
    -------
    tuple of BlockPattern or None
        For each operand its stored blocks, and None for one whose elements are all stored. None instead of a tuple if
        blocks have fewer than FEWEST elements in the mean, or there is too much to look at.
    """
    sparse = [t for t, tensor in enumerate(tensors) if tensor.nnz < math.prod(tensor.shape)]
    if not any(_looks_like_blocks(tensors[t]) for t in sparse):
        return None
    if sum(tensors[t].nnz for t in sparse) > MOST_ELEMENTS:
        return None
    coordinates = {t: tensors[t].elements()[0] for t in sparse}
    new = {index: np.zeros(extent, bool) for index, extent in network.sizes}
    for t in sparse:
        for index, differ in zip(network.inputs[t], _differences(coordinates[t], tensors[t].shape)):
            new[index] |= differ
    for starts in new.values():
        starts[:1] = True
    numbers = {index: np.cumsum(starts) - 1 for index, starts in new.items()}
    sizes = {index: tuple(np.bincount(at).tolist()) for index, at in numbers.items()}
    patterns: list[BlockPattern | None] = [None] * len(tensors)
    for t in sparse:
        labels = network.inputs[t]
        extents = tuple(len(sizes[index]) for index in labels)
        blocks = np.stack([numbers[index][row] for index, row in zip(labels, coordinates[t])])
        stored = np.unique(np.ravel_multi_index(tuple(blocks), extents))
        if len(stored) > MOST:
            return None
        at = np.stack(np.unravel_index(stored, extents), axis=1).astype(np.int64)
        patterns[t] = BlockPattern(tuple(sizes[index] for index in labels), at)
    given = [(pattern, tensors[t]) for t, pattern in enumerate(patterns) if pattern is not None]
    if FEWEST * sum(len(pattern) for pattern, _ in given) > sum(tensor.nnz for _, tensor in given):
        return None
    # Equal hashes of different slices would store a block of which elements are missing.
    if any(pattern.size != tensor.nnz for pattern, tensor in given):
        return None
    return tuple(patterns)


def to_blocks(tensor: SparseTensor, pattern: BlockPattern) -> BlockTensor | None:
    """Return a sparse tensor as a block tensor of a pattern; None if elements are stored outside of its blocks."""
    coordinates, values = tensor.elements()
    wanted, places = _places(coordinates, tensor.shape), pattern.in_dense()
    order = np.argsort(places)
    at = np.minimum(np.searchsorted(places, wanted, sorter=order), len(order) - 1)
    if len(wanted) and (not len(order) or (places[order[at]] != wanted).any()):
        return None
    found = np.zeros(pattern.size)
    found[order[at]] = values
    return BlockTensor(pattern, found)


def to_elements(tensor: BlockTensor) -> SparseTensor:
    """Return a block tensor as a sparse tensor of all elements of its stored blocks."""
    numbered = _numbered.get(tensor.pattern)
    if numbered is None:
        coordinates = np.array(np.unravel_index(tensor.pattern.in_dense(), tensor.shape))
        # Values that are positions in the block tensor tell how its values are ordered.
        found = from_coo(
            tensor.shape, coordinates.reshape(len(tensor.shape), -1), np.arange(1.0, tensor.pattern.size + 1)
        )
        assert found.values is not None
        _numbered[tensor.pattern] = numbered = (found, found.values.astype(np.int64) - 1)
    pattern, order = numbered
    return replace(pattern, values=tensor.values.take(order), dtype=tensor.dtype, _counts={})


def _places(coordinates: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return np.asarray(np.ravel_multi_index(tuple(coordinates), shape)) if shape else np.zeros(1, np.int64)


def _looks_like_blocks(tensor: SparseTensor) -> bool:
    """Whether many of a sample of stored elements are followed by their neighbour along the last level."""
    if tensor.nnz < FEWEST or not tensor.ndim:
        return False
    last = tensor.levels[-1]
    if isinstance(last, Dense):
        return True
    coordinates = last.coordinates
    begin = (len(coordinates) - SAMPLE) // 2 if len(coordinates) > SAMPLE else 0
    return float(np.mean(np.diff(coordinates[begin : begin + SAMPLE]) == 1)) >= BESIDE


def _differences(coordinates: np.ndarray, shape: Sequence[int]) -> list[np.ndarray]:
    """Return for each mode whether the elements at a value of it have other coordinates than at the value before."""
    draw = np.random.default_rng(0)
    words = [draw.integers(0, 2**64, extent, np.uint64) for extent in shape]
    parts = [word[row] for word, row in zip(words, coordinates)]
    whole = np.sum(parts, axis=0, dtype=np.uint64) if parts else np.zeros(coordinates.shape[1], np.uint64)
    found = []
    for row, part, extent in zip(coordinates, parts, shape):
        sums = np.zeros(extent, np.uint64)
        np.add.at(sums, row, _mixed(whole - part))
        found.append(np.concatenate(([True] * min(1, extent), sums[1:] != sums[:-1])))
    return found


def _mixed(x: np.ndarray) -> np.ndarray:
    """Return a hash of each number, so that sums of hashes tell sets of numbers apart."""
    x = (x ^ (x >> np.uint64(30))) * _MIX[0]
    x = (x ^ (x >> np.uint64(27))) * _MIX[1]
    return np.asarray(x ^ (x >> np.uint64(31)))
