"""Pairs of labels over which a step runs once: a < b if its operands are antisymmetric in a and b, a <= b if symmetric.

    symmetries of leaves ─► closed pairs of every step ─► those that pay ─► Tree.pairs ─ lower, execute ─► packed steps

An operand keeps one element of each pair (it is packed), the product is half as large for each pair, and a result that
keeps the pair is spread out again. A pair is closed in a step if each of its operands is (anti)symmetric in it or lacks
both labels. The result of a step is (anti)symmetric in its closed pairs. Declared symmetry is trusted.

Nothing is packed where the pair leads: if A[r,s,...] has it on its first axes, the slices A[r, r:] lie in memory as
matrices, and the step multiplies them one by one. Its result has the pair first too. An operand with declared exchanges
may take its labels in another order for that: of real integrals (pq|rs) = (rs|qp), so that A[p,q,r,s] is A[r,s,q,p].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from math import comb, prod
from types import ModuleType
from typing import Any

import numpy as np

from trnqc.contraction.time_limit import out_of_time
from trnqc.contraction.tree import Pair, Tree, TreeNode
from trnqc.expression.operand import Leaf
from trnqc.expression.symmetry import Exchange, Symmetry

# Time to pack or spread one element, in multiply-adds of a matrix product.
GATHER = 60
# Time of one turn of a loop over slices, and of copying one element of its result, relative to packing one element.
TURN, COPIED = 2500, 0.2
# Largest number of orders of labels that are tried for an operand.
ORDERS = 48
# Pair of labels -> what their exchange multiplies an operand with.
Signs = dict[tuple[str, str], int]


def with_pairs(
    tree: Tree,
    symmetries: Mapping[str, Sequence[Symmetry]],
    price: int = GATHER,
    *,
    exchanges: Mapping[str, Sequence[Exchange]] | None = None,
) -> Tree:
    """Return the tree with the pairs over which its steps run once, where that costs less than it saves.

    Packing or spreading one element costs `price` multiply-adds. `symmetries` are by name of leaf, and so are
    `exchanges`, by which leaves take their labels in another order where a pair then leads.
    """
    if not any(symmetries.values()):
        return tree
    signs: dict[str, Signs] = {}
    chosen: dict[str, tuple[Pair, ...]] = {}
    nodes: dict[str, TreeNode] = {}
    for old in tree.nodes:
        operands = tuple(nodes[o.name] if isinstance(o, TreeNode) else o for o in old.operands)
        node = replace(old, operands=operands)
        closed = _closed(node, [_signs(operand, symmetries, signs) for operand in node.operands])
        signs[node.name] = {pair: sign for pair, (sign, _) in closed.items() if set(pair) <= set(node.indices)}
        pairs = [Pair(*pair, sign, held) for pair, (sign, held) in closed.items() if tree.extent(pair[0]) > 1]
        loops = [loop for pair in pairs if (loop := _leading(node, pair, exchanges or {}, chosen))]
        choices: list[tuple[TreeNode, tuple[Pair, ...]]] = [(node, ()), *((led, (pair,)) for led, pair in loops)]
        node, best = min(choices, key=lambda choice: _cost(tree, choice[0], choice[1], price))
        best = _packing_less(tree, node, pairs, best, price)
        nodes[node.name] = node
        if best:
            chosen[node.name] = best
    return Tree(nodes[tree.root.name], tree.indices, tuple(chosen.items()))


def _signs(operand: Leaf | TreeNode, symmetries: Mapping[str, Sequence[Symmetry]], nodes: Mapping[str, Signs]) -> Signs:
    """Return the pairs in which an operand is (anti)symmetric; `nodes` has the pairs of earlier steps."""
    if isinstance(operand, TreeNode):
        return nodes[operand.name]
    if operand.cost or operand.reciprocal or len(set(operand.indices)) != len(operand.indices):
        return {}
    return {
        (min(x, y), max(x, y)): symmetry.sign
        for symmetry in symmetries.get(operand.name, ())
        for x, y in combinations([operand.indices[axis] for axis in symmetry.axes], 2)
    }


def _closed(node: TreeNode, signs: Sequence[Signs]) -> dict[tuple[str, str], tuple[int, tuple[bool, ...]]]:
    """Return the closed pairs of a step: pair -> (sign of the product, which operands hold it)."""
    if len(node.operands) != 2:
        return {}
    closed = {}
    for pair in dict.fromkeys(pair for one in signs for pair in one):
        held = tuple(pair in one for one in signs)
        if any(not h and set(pair) & set(operand.indices) for h, operand in zip(held, node.operands)):
            continue
        sign = prod(one[pair] for one in signs if pair in one)
        kept = len(set(pair) & set(node.indices))
        # A summed pair occurs in both operands. With different signs the sum is zero, which is not detected here.
        if kept == 2 or (kept == 0 and all(held) and sign == 1):
            closed[pair] = sign if kept else signs[0][pair], held
    return closed


def _leading(
    node: TreeNode,
    pair: Pair,
    exchanges: Mapping[str, Sequence[Exchange]],
    chosen: Mapping[str, Sequence[Pair]],
) -> tuple[TreeNode, Pair] | None:
    """Return the step with the pair on the first axes of the only operand that has it; None if that cannot be.

    `chosen` has the pairs of earlier steps.
    """
    if pair.held.count(True) != 1 or pair.first not in node.indices:
        return None
    place = pair.held.index(True)
    operand = node.operands[place]
    orders: list[tuple[str, ...]]
    if isinstance(operand, TreeNode):
        before = chosen.get(operand.name, ())
        orders = [(x.first, x.second) for x in before if x.leads]
    else:
        orders = _orders(operand, exchanges.get(operand.name, ()))
    orders = [order for order in orders if set(order[:2]) == {pair.first, pair.second}]
    if not orders:
        return None
    # Summed labels come last, so that slices are matrices for BLAS.
    order = min(orders, key=lambda labels: [label not in node.indices for label in labels])
    pair = replace(pair, first=order[0], second=order[1], leads=True)
    if isinstance(operand, TreeNode):
        return node, pair
    operands = list(node.operands)
    operands[place] = replace(operand, indices=order)
    return replace(node, operands=tuple(operands)), pair


def _orders(leaf: Leaf, exchanges: Sequence[Exchange]) -> list[tuple[str, ...]]:
    """Return the orders of the labels of a leaf that denote the same array, because exchanges leave it unchanged."""
    orders = {leaf.indices: None}
    todo = [leaf.indices]
    while todo and len(orders) < ORDERS:
        labels = todo.pop()
        for exchange in exchanges:
            other = tuple(labels[axis] for axis in exchange.order(len(labels)))
            if exchange.sign == 1 and other not in orders:
                orders[other] = None
                todo.append(other)
    return list(orders)


def _packing_less(
    tree: Tree, node: TreeNode, pairs: Sequence[Pair], best: tuple[Pair, ...], price: int
) -> tuple[Pair, ...]:
    """Return the pairs, no two with a label in common, that are packed if the step then costs less than with `best`."""
    least = _cost(tree, node, best, price)
    for count in range(1, len(pairs) + 1):
        for some in combinations(pairs, count):
            if out_of_time("pairs of labels to run over once"):
                return best
            labels = [label for pair in some for label in (pair.first, pair.second)]
            if len(set(labels)) == len(labels) and (cost := _cost(tree, node, some, price)) < least:
                least, best = cost, some
    return best


def _cost(tree: Tree, node: TreeNode, pairs: Sequence[Pair], price: int) -> float:
    """Return the multiply-adds of a step over these pairs, with what it moves in multiply-adds."""
    work = unique(tree, node.loops, pairs)
    moved = 0.0
    for k, operand in enumerate(node.operands):
        mine = [pair for pair in pairs if pair.held[k] and not pair.leads]
        moved += unique(tree, operand.indices, mine) * bool(mine)
    for pair in pairs:
        moved += TURN * tree.extent(pair.first) * pair.leads
    spread = [COPIED if pair.leads else 1 for pair in pairs if pair.first in node.indices]
    return work + price * (moved + max(spread, default=0) * tree.size(node.indices))


def unique(tree: Tree, labels: Sequence[str], pairs: Sequence[Pair]) -> int:
    """Return the number of elements over these labels, with elements that a pair makes equal counted once."""
    total = tree.size(labels)
    for pair in pairs:
        if pair.first in labels:
            extent = tree.extent(pair.first)
            total = total // extent**2 * passes(extent, pair.sign)
    return total


def passes(extent: int, sign: int) -> int:
    """Return the number of x < y (sign -1) or x <= y (sign 1)."""
    return comb(extent, 2) if sign < 0 else comb(extent + 1, 2)


def symmetric_work(tree: Tree, price: int = GATHER) -> float:
    """Return the multiply-adds of the tree with its pairs, plus the cost of packing in multiply-adds."""
    pairs = dict(tree.pairs)
    return sum(_cost(tree, node, pairs.get(node.name, ()), price) for node in tree.nodes)


# The functions below pack and spread arrays.


@lru_cache(maxsize=256)
def _places(extent: int, sign: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (position x n + y of each unique element, its weight in a sum over the pair, element number of (x, y))."""
    x, y = np.triu_indices(extent, 1 if sign < 0 else 0)
    back = np.zeros((extent, extent), np.int64)
    back[x, y] = back[y, x] = np.arange(len(x))
    return x * extent + y, np.where(x == y, 1, 2), back.ravel()


def packed(library: ModuleType, array: Any, axis: int, sign: int, weighted: bool) -> Any:
    """Return the array with axes `axis` and `axis` + 1 merged into one over unique elements.

    With `weighted`, each element is multiplied by the number of times that a sum over both axes contains it.
    """
    extent = array.shape[axis]
    places, weights, _ = _places(extent, sign)
    merged = array.reshape((*array.shape[:axis], extent * extent, *array.shape[axis + 2 :]))
    elements = _taken(library, merged, places, axis)
    if weighted:
        elements *= _along(library, weights, axis, elements)
    return elements


def spread(library: ModuleType, array: Any, axis: int, extent: int, sign: int) -> Any:
    """Return the inverse of `packed`: axis `axis` becomes two axes of this extent."""
    x_y, _, back = _places(extent, sign)
    whole = _taken(library, array, back, axis)
    if sign < 0:
        signs = np.zeros(extent * extent, np.int64)
        signs[x_y] = 1
        signs = (signs.reshape(extent, extent) - signs.reshape(extent, extent).T).ravel()
        whole *= _along(library, signs, axis, whole)
    return whole.reshape((*array.shape[:axis], extent, extent, *array.shape[axis + 1 :]))


def _taken(library: ModuleType, array: Any, places: np.ndarray, axis: int) -> Any:
    """Return the elements at these positions along an axis."""
    if library is np:
        return np.take(array, places, axis)
    if library.__name__ != "torch":
        return library.take(array, library.asarray(places), axis=axis)
    return library.index_select(array, axis, library.as_tensor(places, device=array.device))


def _along(library: ModuleType, values: np.ndarray, axis: int, array: Any) -> Any:
    """Return values in the shape and type that multiply an array along one axis."""
    shaped = values.reshape(tuple(-1 if k == axis else 1 for k in range(array.ndim)))
    if library is np:
        return shaped.astype(array.dtype)
    if library.__name__ != "torch":
        return library.asarray(shaped, dtype=array.dtype)
    return library.as_tensor(shaped, dtype=array.dtype, device=array.device)


@dataclass(frozen=True)
class Packing:
    """An array with the labels of each pair side by side, `packed` with one label for each pair."""

    order: tuple[str, ...]
    packed: tuple[str, ...]
    pairs: tuple[tuple[str, Pair], ...]


def packing(labels: Sequence[str], pairs: Sequence[tuple[str, Pair]]) -> Packing:
    """Return the packing of an array: the label of a pair that comes first keeps its position."""
    order, short = [], []
    second = {pair.second for _, pair in pairs if pair.first in labels}
    names = {pair.first: (name, pair.second) for name, pair in pairs if pair.first in labels}
    flip = {b: (name, a) for a, (name, b) in names.items()}
    done: set[str] = set()
    for label in labels:
        if label in done:
            continue
        if label in names or label in second:
            name, other = names.get(label) or flip[label]
            first = label if label in names else other
            order += [first, names[first][1]]
            short.append(name)
            done |= {label, other}
        else:
            order.append(label)
            short.append(label)
    return Packing(tuple(order), tuple(short), tuple((name, p) for name, p in pairs if p.first in labels))
