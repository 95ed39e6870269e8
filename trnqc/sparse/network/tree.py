"""Trees of a network's contractions: nested tuples of operand numbers, in which a number is a leaf.

A node multiplies its children and sums over the indices that nothing outside it needs. It may have more than two
children; a single node of all operands is the nest of loops without intermediates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from trnqc.errors import ExpressionError
from trnqc.sparse.network.network import Indices, Network

Tree = int | tuple["Tree", ...]


@dataclass(frozen=True)
class Contraction:
    """One node of a tree; `loops` are all indices of its operands, and those not in `kept` are summed.

    Operands are numbered: those of the network, then the nodes in post-order.
    """

    operands: tuple[int, ...]
    loops: Indices
    kept: Indices


def leaves(tree: Tree) -> tuple[int, ...]:
    """Return the operands of a tree in the order in which they appear."""
    return (tree,) if isinstance(tree, int) else tuple(leaf for child in tree for leaf in leaves(child))


def trees(count: int, widest: int = 2) -> tuple[Tree, ...]:
    """Return all trees of `count` leaves whose nodes have two to `widest` children; (0,) for one leaf."""
    return tuple(_trees(tuple(range(count)), widest)) if count > 1 else ((0,),)


def _trees(operands: tuple[int, ...], widest: int) -> Iterator[Tree]:
    if len(operands) == 1:
        yield operands[0]
        return
    for parts in _partitions(operands, widest):
        if len(parts) > 1:
            yield from _products([tuple(_trees(part, widest)) for part in parts])


def _partitions(items: tuple[int, ...], most: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Yield all partitions into at most `most` sets; items stay in order, and sets are ordered by their first item."""
    if not items:
        yield ()
        return
    first, rest = items[0], items[1:]
    if most:
        for size in range(len(rest), -1, -1):
            for others in combinations(rest, size):
                left = tuple(item for item in rest if item not in others)
                yield from (((first, *others), *tail) for tail in _partitions(left, most - 1))


def _products(choices: Sequence[tuple[Tree, ...]]) -> Iterator[tuple[Tree, ...]]:
    if not choices:
        yield ()
        return
    for head in choices[0]:
        yield from ((head, *tail) for tail in _products(choices[1:]))


def greedy(count: int, cost: Callable[[tuple[int, ...], tuple[int, ...]], float]) -> Tree:
    """Return a tree that is built by joining the pair of operand sets of least `cost` until one is left."""
    if count == 1:
        return (0,)
    parts: list[Tree] = list(range(count))
    while len(parts) > 1:
        a, b = min(combinations(parts, 2), key=lambda pair: cost(leaves(pair[0]), leaves(pair[1])))
        parts = [part for part in parts if part not in (a, b)] + [(a, b)]
    return parts[0]


def contractions(network: Network, tree: Tree) -> tuple[Contraction, ...]:
    """Return the nodes of a tree in post-order.

    Raises ExpressionError if the tree does not contain every operand once.
    """
    count = len(network.inputs)
    if sorted(leaves(tree)) != list(range(count)):
        raise ExpressionError(f"a tree must contain each of the operands 0 .. {count - 1} once; found {tree}")
    nodes: list[Contraction] = []
    labels = dict(enumerate(network.inputs))

    def visit(node: Tree) -> int:
        if isinstance(node, int):
            return node
        children = tuple(visit(child) for child in node)
        outside = {x for t in range(count) if t not in leaves(node) for x in network.inputs[t]} | set(network.output)
        used = {x for child in children for x in labels[child]}
        loops = tuple(x for x, _ in network.sizes if x in used)
        nodes.append(Contraction(children, loops, tuple(x for x in loops if x in outside)))
        labels[count + len(nodes) - 1] = nodes[-1].kept
        return count + len(nodes) - 1

    visit(tree if isinstance(tree, tuple) else (tree,))
    return tuple(nodes)
