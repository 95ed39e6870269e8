"""The binary operation tree: the order of contractions, on which all later stages work.

A leaf is an operand: an array, or a function whose elements have a cost. A node multiplies two operands, or takes one,
and sums over the indices that nothing else needs. Names are unique in a tree, so that later stages refer to nodes by
name in what they decide (fused loops, tiles, placements).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

from trnqc.contraction.cost.counts import MonomialSum
from trnqc.errors import InputError
from trnqc.expression.operand import Leaf
from trnqc.expression.spaces import Index


def union(*groups: Iterable[str]) -> tuple[str, ...]:
    """Return the labels of all groups in order of first appearance."""
    return tuple(dict.fromkeys(label for group in groups for label in group))


@dataclass(frozen=True)
class TreeNode:
    """name[indices] = sum over the other indices of the product of one or two operands."""

    name: str
    indices: tuple[str, ...]
    operands: tuple[Leaf | TreeNode, ...]

    @cached_property
    def loops(self) -> tuple[str, ...]:
        """Labels of the perfect loop nest of this step: the labels of the result, then the summed labels."""
        return union(self.indices, *(operand.indices for operand in self.operands))

    @property
    def summed(self) -> tuple[str, ...]:
        """Labels that the step sums over."""
        return self.loops[len(self.indices) :]

    @property
    def operations(self) -> int:
        """Floating-point operations of one iteration: one multiplication for a product, one addition for a sum."""
        return len(self.operands) - 1 + bool(self.summed)

    def __str__(self) -> str:
        total = f"sum({','.join(self.summed)}) " if self.summed else ""
        factors = [str(o) if isinstance(o, Leaf) else f"{o.name}[{','.join(o.indices)}]" for o in self.operands]
        return f"{self.name}[{','.join(self.indices)}] = {total}{' * '.join(factors)}"


@dataclass(frozen=True)
class Pair:
    """Two labels of a step that runs over first < second (sign -1) or first <= second (sign 1) only.

    Exchanging the labels multiplies the result with `sign`, or either operand if the labels are summed. `held` says
    which operands have the two labels. If it `leads`, they are the first axes of the only operand that has them, and
    the step is a loop over slices of this operand.
    """

    first: str
    second: str
    sign: int
    held: tuple[bool, ...]
    leads: bool = False

    @property
    def name(self) -> str:
        """The pair, as x≤y or x<y."""
        return f"{self.first}{'<' if self.sign < 0 else '≤'}{self.second}"


@dataclass(frozen=True)
class Tree:
    """The steps that compute `root`, the last of them.

    `pairs` gives by name of step the pairs of labels over which the step runs once (see `order.symmetric_pairs`).
    Raises InputError if names of steps repeat, or a step's labels are inconsistent.
    """

    root: TreeNode
    indices: Mapping[str, Index]
    pairs: tuple[tuple[str, tuple[Pair, ...]], ...] = ()

    def __post_init__(self) -> None:
        count = Counter(node.name for node in self.nodes)
        for node in self.nodes:
            missing = [label for label in node.loops if label not in self.indices]
            if missing or len(set(node.indices)) != len(node.indices) or not 1 <= len(node.operands) <= 2:
                raise InputError(f"a step has one or two operands, known indices and no index twice; found {node}")
            if count[node.name] > 1:
                raise InputError(f"the names of steps are unique; found {node.name} twice")
            have = union(*(operand.indices for operand in node.operands))
            if not set(node.indices) <= set(have):
                raise InputError(f"the operands of {node} do not carry all indices of its result")

    @cached_property
    def nodes(self) -> tuple[TreeNode, ...]:
        """All steps, producers before consumers, left before right; the root is last."""
        return tuple(_postorder(self.root))

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        """All leaves in the order of `nodes`; a function that occurs twice is there twice."""
        return tuple(operand for node in self.nodes for operand in node.operands if isinstance(operand, Leaf))

    def consumer(self, name: str) -> TreeNode | None:
        """Return the step that reads the result of a step; None for the root."""
        return self._consumers.get(name)

    @cached_property
    def _consumers(self) -> Mapping[str, TreeNode]:
        return {o.name: node for node in self.nodes for o in node.operands if isinstance(o, TreeNode)}

    def extent(self, label: str) -> int:
        """Return the extent of a label."""
        return self.indices[label].extent

    def size(self, labels: Iterable[str]) -> int:
        """Return the product of extents; 1 for no labels."""
        return prod(self.indices[label].extent for label in labels)

    def count(self, labels: Iterable[str]) -> MonomialSum:
        """Return the product of extents in symbols."""
        return MonomialSum.product(self.indices[label].symbol for label in labels)

    @property
    def multiply_adds(self) -> int:
        """Sum over the steps of the product of the extents of each step's indices."""
        return sum(self.size(node.loops) for node in self.nodes)

    @property
    def symbolic_multiply_adds(self) -> MonomialSum:
        """`multiply_adds` as a polynomial in the symbols of the indices."""
        return sum((self.count(node.loops) for node in self.nodes), MonomialSum())

    @property
    def operations(self) -> MonomialSum:
        """Multiplications and additions, each counted: 6 N^6 where `symbolic_multiply_adds` is 3 N^6."""
        return sum((node.operations * self.count(node.loops) for node in self.nodes), MonomialSum())

    @property
    def function_cost(self) -> int:
        """Multiply-adds of computing every element of every function once."""
        return sum(leaf.cost * self.size(union(leaf.indices)) for leaf in self.leaves)

    @property
    def temporaries(self) -> tuple[TreeNode, ...]:
        """All steps but the last."""
        return self.nodes[:-1]

    def __str__(self) -> str:
        rows = [(str(node), str(self.count(node.loops)), f"{self.size(node.loops):.3g}") for node in self.nodes]
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip() for row in rows)


def _postorder(root: TreeNode) -> Iterator[TreeNode]:
    """Yield the nodes, producers first, without recursion: a tree may be as deep as it has operands."""
    nodes, todo = [], [root]
    while todo:
        nodes.append(node := todo.pop())
        todo += [operand for operand in node.operands if isinstance(operand, TreeNode)]
    # Consumers came first, right before left.
    yield from reversed(nodes)
