"""How a network of block tensors is planned.

subscripts, patterns -> sums over indices of one operand -> order of least work -> products in order -> `BlockPlan`
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from threading import Lock
from typing import Any

import numpy as np

from trnqc.errors import ExpressionError, MemoryLimit, OperandError
from trnqc.host.memory import installed_memory
from trnqc.sparse.blocks.charges import of_product
from trnqc.sparse.blocks.homes import BlockCopy, BlockHomes, dense_homes, plain_homes
from trnqc.sparse.blocks.order import block_tree
from trnqc.sparse.blocks.packing import block_product
from trnqc.sparse.blocks.pair import BlockPair, Labelled
from trnqc.sparse.blocks.pattern import BlockPattern, every_block
from trnqc.sparse.blocks.plan import BlockPlan, BlockStep
from trnqc.sparse.blocks.tensor import BlockTensor
from trnqc.sparse.network.network import Indices, Network, network
from trnqc.sparse.network.tree import Tree, leaves

# Number of plans that are remembered, and bytes up to which one is: they hold the places of elements.
REMEMBERED = 32
SMALL = 2**25
_chosen: dict[Any, BlockPlan] = {}
_lock = Lock()

Sizes = dict[str, tuple[int, ...]]


def plan_blocks(
    subscripts: str,
    operands: Sequence[Any],
    out: str = "auto",
    tree: Tree | None = None,
    memory_limit: int | None = None,
) -> BlockPlan:
    """Plan a network of block tensors and arrays; see `trnqc.sparse.plan`.

    Raises OperandError if other tensors are among the operands, or sizes or quantum numbers do not match.
    """
    for t, x in enumerate(operands):
        if not isinstance(x, BlockTensor | np.ndarray):
            raise OperandError(
                f"with block tensors, operands are BlockTensors and NumPy arrays; operand {t} is a {type(x).__name__}"
            )
    net = network(subscripts, [x.shape for x in operands])
    patterns = tuple(x.pattern if isinstance(x, BlockTensor) else None for x in operands)
    chosen = _chosen.get((net, patterns, tree)) or plan_patterns(net, patterns, tree)
    limit = installed_memory() if memory_limit is None else memory_limit
    chosen = replace(chosen, dense=out == "dense")
    if chosen.bytes > limit:
        raise MemoryLimit(f"the products of blocks of {net} take {chosen.bytes} B; the limit is {limit} B")
    if chosen.bytes <= SMALL:
        with _lock:
            while len(_chosen) >= REMEMBERED:
                del _chosen[next(iter(_chosen))]
            _chosen[net, patterns, tree] = chosen
    return replace(chosen, arguments=tuple(operands), packed={})


def plan_patterns(
    net: Network, given: tuple[BlockPattern | None, ...], tree: Tree | None = None, dense: bool = False
) -> BlockPlan:
    """Return a plan for block tensors of these patterns, and for arrays where there is None.

    Parameters
    ----------
    net
        The network.
    given
        The patterns of its operands.
    tree
        The order of contractions; by default that of the least work on stored blocks.
    dense
        Whether the result is an array.

    Raises
    ------
    OperandError
        If sizes of blocks or quantum numbers do not match.
    ExpressionError
        If the tree is not one of these operands.
    """
    charges = of_product(net.inputs, net.output, [None if own is None else own.charges for own in given])
    sizes = _sizes(net, given)
    patterns = tuple(
        _whole(labels, sizes) if own is None else replace(own, charges=None) for labels, own in zip(net.inputs, given)
    )
    products = _Products(net, patterns, [own is None for own in given], sizes)
    if tree is None:
        tree = block_tree([products.operands[t] for t in products.leaves], net.output)
    elif sorted(leaves(tree)) != list(range(len(given))):
        raise ExpressionError(f"a tree must contain each of the operands 0 .. {len(given) - 1} once; found {tree}")
    products.build(tree)
    last = products.steps[-1].product
    made = last.pair.result
    arranged = BlockCopy(last.result, plain_homes(made), made.size)
    spread = BlockCopy(last.result, dense_homes(made), math.prod(made.shape))
    result = replace(made, charges=charges)
    stored = tuple(pattern if own is None else own for pattern, own in zip(patterns, given))
    return BlockPlan(net, tree, stored, tuple(products.steps), arranged, spread, result, tuple(products.ones), dense)


class _Products:
    """Operands, then ones, then products of a network so far, with labels, patterns and homes of blocks."""

    def __init__(self, net: Network, patterns: Sequence[BlockPattern], arrays: Sequence[bool], sizes: Sizes) -> None:
        self.net = net
        self.operands: list[Labelled] = list(zip(net.inputs, patterns))
        # Arrays are read in C order, not block by block.
        self.homes: list[BlockHomes] = [
            dense_homes(pattern) if array else plain_homes(pattern) for pattern, array in zip(patterns, arrays)
        ]
        self.steps: list[BlockStep] = []
        self.ones: list[int] = []
        self.leaves = list(range(len(patterns)))
        self._sum_alone(sizes)

    def _sum_alone(self, sizes: Sizes) -> None:
        """Multiply operands by ones to sum indices that they alone have; a network of one operand always."""
        alone = [self._alone(t) for t in self.leaves]
        with_ones = [t for t, labels in enumerate(alone) if labels or len(alone) == 1]
        for t in with_ones:
            pattern = _whole(alone[t], sizes)
            self.operands.append((alone[t], pattern))
            self.homes.append(plain_homes(pattern))
            self.ones.append(pattern.size)
        for n, t in enumerate(with_ones, len(alone)):
            last = len(alone) == 1
            kept = self.net.output if last else tuple(x for x in self.net.inputs[t] if x not in alone[t])
            self.leaves[t] = self.multiply(t, n, kept, last)

    def _alone(self, t: int) -> Indices:
        others = {x for k, labels in enumerate(self.net.inputs) if k != t for x in labels} | set(self.net.output)
        return tuple(x for x in self.net.inputs[t] if x not in others)

    def multiply(self, left: int, right: int, kept: Indices, last: bool) -> int:
        """Add a product and return its number.

        The last product has the indices of the result, another one those of its matrices, which are in order there.
        """
        pair = BlockPair(self.operands[left], self.operands[right], kept)
        if not last:
            pair = replace(pair, output=pair.batch + pair.rows + pair.columns)
        product = block_product(pair, self.homes[left], self.homes[right])
        self.steps.append(BlockStep((left, right), product))
        self.operands.append((pair.output, pair.result))
        self.homes.append(product.result)
        return len(self.operands) - 1

    def build(self, tree: Tree) -> int:
        """Add the products of a tree and return the number of its result."""
        if isinstance(tree, int):
            return self.leaves[tree]
        done, inside = self.build(tree[0]), set(leaves(tree[0]))
        for child in tree[1:]:
            other = self.build(child)
            inside |= set(leaves(child))
            outside = {x for t in range(len(self.leaves)) if t not in inside for x in self.net.inputs[t]} | set(
                self.net.output
            )
            last = len(inside) == len(self.leaves)
            labels = (*self.operands[done][0], *self.operands[other][0])
            kept = self.net.output if last else tuple(x for x in dict.fromkeys(labels) if x in outside)
            done = self.multiply(done, other, kept, last)
        return done


def _whole(labels: Indices, sizes: Sizes) -> BlockPattern:
    return every_block(tuple(sizes[x] for x in labels))


def _sizes(net: Network, given: Sequence[BlockPattern | None]) -> Sizes:
    """Return the block sizes of each index; an index of arrays alone is one block.

    Raises OperandError if they differ between operands.
    """
    found: dict[str, tuple[int, tuple[int, ...]]] = {}
    for t, (labels, pattern) in enumerate(zip(net.inputs, given)):
        for label, mode in zip(labels, () if pattern is None else pattern.sizes):
            first, expected = found.setdefault(label, (t, mode))
            if mode != expected:
                raise OperandError(
                    f"index {label} has blocks of the sizes {expected} in operand {first} and {mode} in operand {t}"
                )
    alone = {label: (extent,) * (extent > 0) for label, extent in net.sizes}
    return alone | {label: mode for label, (_, mode) in found.items()}
