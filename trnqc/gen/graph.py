"""The dependence graph that schedulers order: values that are kept, and which of them each needs.

A node is a value that will have a name of its own; what lies between nodes is computed with the node that uses it and
is never kept. In a recurrence a node is one intermediate, not each of the products in its sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from trnqc.errors import ProgramError
from trnqc.gen.values import Value, walk

# Kept nowhere of their own: constants are in the code, variables and array elements have a place already.
FREE = ("const", "lane", "var", "load")


@dataclass(frozen=True)
class Graph:
    """Nodes 0..n-1, operands before users.

    operands[v]: nodes that v needs. targets: nodes that are results. inputs: nodes without operands that are there from
    the start and occupy a place until their last use. values: what each node computes, empty for a bare graph.
    """

    operands: tuple[tuple[int, ...], ...]
    targets: tuple[int, ...]
    inputs: tuple[int, ...] = ()
    values: tuple[Value, ...] = ()

    def __post_init__(self) -> None:
        for v, needed in enumerate(self.operands):
            if any(not 0 <= u < v for u in needed) or len(set(needed)) != len(needed):
                raise ProgramError(f"node {v} needs earlier nodes, each once; found {needed}")
        if any(self.operands[v] for v in self.inputs):
            raise ProgramError("an input has operands")

    def __len__(self) -> int:
        return len(self.operands)

    @cached_property
    def users(self) -> tuple[tuple[int, ...], ...]:
        """Nodes that need v, in order."""
        found: list[list[int]] = [[] for _ in self.operands]
        for v, needed in enumerate(self.operands):
            for u in needed:
                found[u].append(v)
        return tuple(map(tuple, found))

    @cached_property
    def computed(self) -> tuple[int, ...]:
        """All nodes but the inputs: what an order is an order of."""
        given = set(self.inputs)
        return tuple(v for v in range(len(self)) if v not in given)

    @cached_property
    def edges(self) -> int:
        return sum(map(len, self.operands))

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """Length of the longest path from a node without operands."""
        level: list[int] = []
        for needed in self.operands:
            level.append(1 + max((level[u] for u in needed), default=-1))
        return tuple(level)

    def masks(self, lists: Sequence[Sequence[int]]) -> list[int]:
        """The same as sets of bits: node v is bit v."""
        return [sum(1 << u for u in nodes) for nodes in lists]

    def check(self, order: Sequence[int]) -> None:
        """Raise ProgramError unless `order` holds every computed node once, operands first."""
        if sorted(order) != list(self.computed):
            raise ProgramError(f"an order of {len(self.computed)} nodes is wanted, found {len(order)} or repeats")
        done = set(self.inputs)
        for v in order:
            if not done.issuperset(self.operands[v]):
                raise ProgramError(f"node {v} stands before one that it needs")
            done.add(v)


def graph_of(targets: Sequence[Value], nodes: Sequence[Value] | None = None, inputs: Sequence[Value] = ()) -> Graph:
    """The graph of all that the targets need.

    nodes: the values to keep; by default every operation. Those that no target needs are dropped.
    inputs: variables or loaded values that occupy a place from the start; others are free.
    """
    given = dict.fromkeys(inputs)
    results = set(targets)
    keep = None if nodes is None else {*nodes, *given}
    index: dict[Value, int] = {}
    below: dict[Value, tuple[int, ...]] = {}  # the nodes that a value needs, seen through what is not kept
    operands: list[tuple[int, ...]] = []
    for value in walk(tuple(targets)):
        needed = tuple(dict.fromkeys(u for a in value.args for u in ((index[a],) if a in index else below[a])))
        is_node = value in given or (value.op not in FREE if keep is None else value in keep) or value in results
        if is_node:
            index[value] = len(operands)
            operands.append(() if value in given else needed)
        else:
            below[value] = needed
    wanted = tuple(dict.fromkeys(index[t] for t in targets))
    return Graph(tuple(operands), wanted, tuple(index[v] for v in given if v in index), tuple(index))
