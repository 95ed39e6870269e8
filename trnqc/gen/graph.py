"""The dependence graph whose nodes the schedulers order.

A node is a value that gets a variable of its own. Other operations are computed as part of the node that uses them. In
a recurrence, for example, each intermediate is a node, and the products in its sum are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from trnqc.errors import ProgramError
from trnqc.gen.values import Value, walk

# Values that need no variable: constants are part of the code, and variables and array elements are stored already.
FREE = ("const", "lane", "var", "load")


@dataclass(frozen=True)
class Graph:
    """A directed acyclic graph of nodes 0 .. n-1, operands (each once) before users; targets are results.

    `inputs` are nodes without operands that are available from the start and live until their last use; `values` is
    empty for a graph without values.
    """

    operands: tuple[tuple[int, ...], ...]
    targets: tuple[int, ...]
    inputs: tuple[int, ...] = ()
    values: tuple[Value, ...] = ()

    def __post_init__(self) -> None:
        for v, needed in enumerate(self.operands):
            if any(not 0 <= u < v for u in needed) or len(set(needed)) != len(needed):
                raise ProgramError(f"the operands of node {v} must be earlier nodes, each once; found {needed}")
        if any(self.operands[v] for v in self.inputs):
            raise ProgramError(f"inputs {self.inputs} must have no operands")

    def __len__(self) -> int:
        return len(self.operands)

    @cached_property
    def users(self) -> tuple[tuple[int, ...], ...]:
        """users[v] contains the nodes that need v, in order."""
        users: list[list[int]] = [[] for _ in self.operands]
        for v, needed in enumerate(self.operands):
            for u in needed:
                users[u].append(v)
        return tuple(map(tuple, users))

    @cached_property
    def computed(self) -> tuple[int, ...]:
        """All nodes except the inputs. A schedule is an order of these."""
        inputs = set(self.inputs)
        return tuple(v for v in range(len(self)) if v not in inputs)

    @cached_property
    def edges(self) -> int:
        return sum(map(len, self.operands))

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """levels[v] is the length of the longest path to v from a node without operands."""
        level: list[int] = []
        for needed in self.operands:
            level.append(1 + max((level[u] for u in needed), default=-1))
        return tuple(level)

    def masks(self, lists: Sequence[Sequence[int]]) -> list[int]:
        """Lists of nodes as integers in which bit v stands for node v."""
        return [sum(1 << u for u in nodes) for nodes in lists]

    def check(self, order: Sequence[int]) -> None:
        """Raise ProgramError unless `order` contains every computed node once, operands first."""
        if sorted(order) != list(self.computed):
            raise ProgramError(
                f"an order must contain each of the {len(self.computed)} computed nodes once; found "
                f"{len(order)} nodes, {len(set(order))} of them different"
            )
        done = set(self.inputs)
        for v in order:
            if not done.issuperset(self.operands[v]):
                raise ProgramError(f"node {v} is ordered before one of its operands")
            done.add(v)


def graph_of(targets: Sequence[Value], nodes: Sequence[Value] | None = None, inputs: Sequence[Value] = ()) -> Graph:
    """Build the graph of all values that the targets need.

    Parameters
    ----------
    targets : sequence of Value
        The results.
    nodes : sequence of Value, optional
        The values that get a variable; by default, every operation. Values that no target needs are left out.
    inputs : sequence of Value
        Variables or array elements that become inputs of the graph. Others are not part of it.

    Returns
    -------
    Graph
        The graph, with operands before their users.
    """
    available = dict.fromkeys(inputs)
    results = set(targets)
    keep = None if nodes is None else {*nodes, *available}
    index: dict[Value, int] = {}
    below: dict[Value, tuple[int, ...]] = {}  # the nodes on which a value that is not a node depends
    operands: list[tuple[int, ...]] = []
    for value in walk(tuple(targets)):
        needed = tuple(dict.fromkeys(u for a in value.args for u in ((index[a],) if a in index else below[a])))
        is_node = value in available or (value.op not in FREE if keep is None else value in keep) or value in results
        if is_node:
            index[value] = len(operands)
            operands.append(() if value in available else needed)
        else:
            below[value] = needed
    wanted = tuple(dict.fromkeys(index[t] for t in targets))
    return Graph(tuple(operands), wanted, tuple(index[v] for v in available if v in index), tuple(index))
