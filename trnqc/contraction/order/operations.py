"""The order of binary contractions with the least work.

    operands, output, extents ─ LabelNetwork.of ─► LabelNetwork ─ best_splits ─► Splits ─ build ─► Tree

The search is exact for up to EXACT operands, over all binary trees, outer products included, and for chains, rings and
trees of operands, where outer products pay between vectors only. For other networks of more operands see `heuristic`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from trnqc.contraction.order import arcs, exact, heuristic, starts, trees
from trnqc.contraction.order.network import LabelNetwork, Splits
from trnqc.contraction.tree import Tree, TreeNode, union
from trnqc.errors import InputError
from trnqc.expression.operand import Leaf
from trnqc.expression.spaces import Index
from trnqc.expression.symmetry import Symmetry

# Largest number of operands for which all binary trees are searched.
EXACT = 12
# The same for trees of operands with vectors, of which the best order without outer products is known.
VECTORS = 11


def minimise(
    leaves: Sequence[Leaf],
    output: Sequence[str],
    indices: Mapping[str, Index],
    name: str = "result",
    symmetries: Sequence[Sequence[Symmetry]] = (),
    first: int = 1,
) -> Tree:
    """Return the tree of least multiply-adds for name[output] = product of the leaves, summed over all other labels.

    Parameters
    ----------
    leaves : sequence of Leaf
        The operands.
    output : sequence of str
        Labels of the result.
    indices : mapping
        Label -> index with its extent.
    name : str
        Name of the result.
    symmetries : sequence
        For each leaf the symmetries of its axes. If there are any, loops over unique elements are counted.
    first : int
        Number of the first temporary.

    Notes
    -----
    Of the two operands of a step, the one is computed first for which less memory is held.
    """
    network = network_of(
        [leaf.indices for leaf in leaves], output, {x: i.extent for x, i in indices.items()}, symmetries
    )
    return build(network, best_splits(network), leaves, output, indices, name, first)


def best_splits(network: LabelNetwork) -> Splits:
    """Return the cheapest order that the searches find; empty for one operand."""
    operands = len(network.operands)
    if operands == 1:
        return {}
    network = network.without_common()
    # Next to a bond of extent one, outer products may pay; few operands are then better searched with them.
    least = 1 if operands > EXACT else 2
    if operands > 2 and (splits := arcs.cheapest(network, least)):
        return splits
    start = trees.cheapest(network, least) if operands > 2 else None
    if start and len(vectors(network)) < 2:
        return start
    if operands > (VECTORS if start else EXACT):
        return heuristic.improve(network, start, subtree=4) if start else heuristic.search(network)
    start = heuristic.improve(network, start or starts.greedy(network, 0), subtree=5)
    bound = network.cost(start, network.everything)
    cheapest = exact.subsets(network, [1 << k for k in range(operands)], bound)
    return cheapest[1] if cheapest else start


def vectors(network: LabelNetwork) -> list[int]:
    """Return the operands with one neighbour that share all of their labels of extents above one with it."""
    return [
        k
        for k, (labels, near) in enumerate(zip(network.operands, network.neighbours))
        if near.bit_count() == 1 and network.size(labels & network.output) == 1
    ]


def build(
    network: LabelNetwork,
    splits: Splits,
    leaves: Sequence[Leaf],
    output: Sequence[str],
    indices: Mapping[str, Index],
    name: str = "result",
    first: int = 1,
) -> Tree:
    """Return the tree of an order. Temporaries are numbered from `first` in order of evaluation: T1, T2, ..."""
    builder = _Builder(network, splits, leaves, tuple(output), name, first)
    root = builder.root()
    used = {label: indices[label] for label in union(*(leaf.indices for leaf in leaves))}
    return Tree(root, used)


class _Builder:
    """Builds a tree from an order, without recursion: a tree may be as deep as it has operands."""

    def __init__(
        self,
        network: LabelNetwork,
        splits: Splits,
        leaves: Sequence[Leaf],
        output: tuple[str, ...],
        name: str,
        first: int,
    ) -> None:
        self.network, self.leaves, self.output = network, leaves, output
        self.name, self.next = name, first
        self.where: dict[str, int] = {}
        for k, leaf in enumerate(leaves):
            for label in leaf.indices:
                self.where[label] = self.where.get(label, 0) | 1 << k
        self.peaks = {1 << k: 0 for k in range(len(leaves))}
        self.splits = self._ordered(splits)

    def _ordered(self, splits: Splits) -> Splits:
        """Return the order in which the first operand of a step is the one that frees more memory once it is computed.

        The peak of memory of each part is stored in `peaks`.
        """
        ordered: Splits = {}
        for part in sorted(splits, key=int.bit_count):
            left, right = splits[part]
            if self._excess(right) > self._excess(left):
                left, right = right, left
            ordered[part] = left, right
            during = self._held(left) + self._held(right) + self._held(part)
            self.peaks[part] = max(self.peaks[left], self._held(left) + self.peaks[right], during)
        return ordered

    def _excess(self, part: int) -> int:
        """Return the elements that a part frees once it is computed: its peak without its result."""
        return self.peaks[part] - self._held(part)

    def _held(self, part: int) -> int:
        """Return the elements that the result of a part holds; none for an operand."""
        return self.network.size(self.network.kept(part)) if part.bit_count() > 1 else 0

    def root(self) -> TreeNode:
        """Return the root of the tree."""
        everything = self.network.everything
        if everything == 1:
            return TreeNode(self.name, self.output, (self.leaves[0],))
        results: dict[int, Leaf | TreeNode] = {}
        for part, labels in self._evaluated():
            if part.bit_count() == 1:
                results[part] = self._single(part, labels)
                continue
            operands = tuple(results.pop(half) for half in self.splits[part])
            if part == everything:
                return TreeNode(self.name, self.output, operands)
            kept = self._kept(part, union(*(operand.indices for operand in operands)))
            results[part] = TreeNode(self._next(), kept, operands)
        raise AssertionError("a plan ends with all operands")

    def _evaluated(self) -> Iterator[tuple[int, int]]:
        """Yield (part, labels with which it enters its step) in order of evaluation."""
        parts, todo = [], [(self.network.everything, 0)]
        while todo:
            part, labels = todo.pop()
            parts.append((part, labels))
            if part.bit_count() > 1:
                todo += zip(self.splits[part], self._ways(part))
        return reversed(parts)

    def _ways(self, part: int) -> tuple[int, int]:
        """Return the labels with which the two operands of a step enter it."""
        left, right = self.splits[part]
        return min(
            (x + y + self.network.loops(a | b, part), (a, b))
            for a, x in self.network.ways(left)
            for b, y in self.network.ways(right)
        )[1]

    def _single(self, part: int, labels: int) -> Leaf | TreeNode:
        """Return one operand, first summed over its own labels where that is cheaper."""
        number = part.bit_length() - 1
        leaf = self.leaves[number]
        if labels == self.network.operands[number]:
            return leaf
        return TreeNode(self._next(), self._kept(part, union(leaf.indices)), (leaf,))

    def _next(self) -> str:
        """Return the name of the next temporary."""
        self.next += 1
        return f"T{self.next - 1}"

    def _kept(self, part: int, labels: tuple[str, ...]) -> tuple[str, ...]:
        """Return which of the labels of its operands the result of a part has, in the order of the leaves."""

        def first(label: str) -> tuple[int, int]:
            inside = self.where[label] & part
            number = (inside & -inside).bit_length() - 1
            return number, self.leaves[number].indices.index(label)

        kept = [label for label in labels if label in self.output or self.where[label] & ~part]
        return tuple(sorted(kept, key=first))


def network_of(
    inputs: Sequence[Sequence[str]],
    output: Iterable[str],
    extents: Mapping[str, int],
    symmetries: Sequence[Sequence[Symmetry]],
) -> LabelNetwork:
    """Return the network of at least one operand."""
    if not inputs:
        raise InputError("a contraction has at least one operand; found none")
    return LabelNetwork.of(inputs, output, extents, symmetries)
