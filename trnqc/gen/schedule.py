"""Schedulers: methods that order the computed nodes of a graph so that few values are live at once.

Every method takes a graph and a function that returns numbers to break ties. `best_of` runs a method several times with
random numbers and returns the best order. It depends only on the graph, the method and the seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from trnqc.errors import ProgramError
from trnqc.gen.graph import Graph
from trnqc.gen.liveness import peak_live

Order = tuple[int, ...]
Ties = Callable[[], float]


def first() -> float:
    """Break ties by position: the first of several equal nodes is taken."""
    return 0.0


def listed(graph: Graph, ties: Ties = first) -> Order:
    """The order of the graph itself: the targets as they were listed, each after its operands."""
    return graph.computed


def level(graph: Graph, ties: Ties = first) -> Order:
    """Breadth first, level by level. As many values are live as the widest level contains."""
    rank = {v: (graph.levels[v], ties()) for v in graph.computed}
    return tuple(sorted(graph.computed, key=rank.__getitem__))


def fifo(graph: Graph, ties: Ties = first) -> Order:
    """Kahn's algorithm: the nodes in the order in which they become ready."""
    ready = _Ready(graph)
    order: list[int] = []
    while ready.nodes:
        v = ready.nodes[0]
        order.append(v)
        ready.take(v)
    return tuple(order)


def greedy(graph: Graph, ties: Ties = first) -> Order:
    """Take the ready node that increases the number of live values least."""
    return by_score(graph, lambda state, v: state.freed(v) - bool(graph.users[v]), ties)


def reach(graph: Graph, ties: Ties = first) -> Order:
    """Take the ready node with the fewest direct and indirect users, so that values are finished early."""
    above = [0] * len(graph)
    for v in reversed(range(len(graph))):
        above[v] = _union(above[w] | 1 << w for w in graph.users[v])
    return by_score(graph, lambda state, v: -above[v].bit_count(), ties)


class ScheduleState:
    """The state of list scheduling, from which scores are computed.

    By node, `waiting` and `missing` are the numbers of users and operands that are not ordered yet; `done` has bit v
    for each ordered node or input v.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.waiting = [len(users) for users in graph.users]
        self.ready = _Ready(graph)
        self.missing = self.ready.missing
        self.done = sum(1 << v for v in graph.inputs)

    def freed(self, v: int) -> int:
        """The number of operands whose last user is v."""
        return sum(self.waiting[u] == 1 for u in self.graph.operands[v])

    def take(self, v: int) -> None:
        for u in self.graph.operands[v]:
            self.waiting[u] -= 1
        self.done |= 1 << v
        self.ready.take(v)


def by_score(graph: Graph, score: Callable[[ScheduleState, int], float], ties: Ties = first) -> Order:
    """List scheduling: take the ready node with the highest score(state, node).

    Nodes of equal score are compared by `ties`, and if these are equal too, the node that became ready last is taken.
    """
    state = ScheduleState(graph)
    order: list[int] = []
    while state.ready.nodes:
        best = max(enumerate(state.ready.nodes), key=lambda entry: (score(state, entry[1]), ties(), entry[0]))[1]
        order.append(best)
        state.take(best)
    return tuple(order)


class _Ready:
    """The ready nodes, whose operands are all available, in the order in which they became ready."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        inputs = set(graph.inputs)
        self.missing = [sum(u not in inputs for u in needed) for needed in graph.operands]
        self.nodes = [v for v in graph.computed if not self.missing[v]]

    def take(self, v: int) -> None:
        self.nodes.remove(v)
        for w in self.graph.users[v]:
            self.missing[w] -= 1
            if not self.missing[w]:
                self.nodes.append(w)


def target(graph: Graph, ties: Ties = first) -> Order:
    """Complete one target after the other, each time the target that increases the number of live values least."""
    return _Completion(graph, ties).run()


class _Completion:
    """The scheduler `target`. Sets of nodes are integers with bit v for node v, which makes costs fast to compute."""

    def __init__(self, graph: Graph, ties: Ties) -> None:
        self.graph, self.ties = graph, ties
        self.users = graph.masks(graph.users)
        self.needed = graph.masks(graph.operands)
        self.below: list[int] = []  # for each node, the node itself and all nodes that it needs
        for v, operands in enumerate(graph.operands):
            self.below.append((1 << v) | _union(self.below[u] for u in operands))
        self.done = sum(1 << v for v in graph.inputs)
        self.order: list[int] = []

    def run(self) -> Order:
        # Of targets with equal cost the larger one is taken, because other targets may share values with it.
        missing = {t: self.below[t] & ~self.done for t in self.graph.targets if t not in self.graph.inputs}
        costs: dict[int, int] = {}
        around: dict[int, int] = {}  # the nodes that a target's cost depends on
        while missing:
            for t in missing:
                if t not in costs:
                    costs[t], around[t] = self.extra(missing[t]), self.around(missing[t])
            t = min(missing, key=lambda t: (costs[t], -missing[t].bit_count(), self.ties()))
            fresh = missing.pop(t)
            self.complete(t)
            # Only the costs of targets that share nodes or operands with the completed one have changed.
            touched = fresh | _union(self.needed[v] for v in _bits(fresh))
            missing = {u: m & ~fresh for u, m in missing.items() if m & ~fresh}
            costs = {u: c for u, c in costs.items() if u in missing and not around[u] & touched}
        rest = [v for v in self.graph.computed if not self.done >> v & 1]
        return (*self.order, *rest)

    def around(self, nodes: int) -> int:
        """The nodes and their operands."""
        return nodes | _union(self.needed[v] for v in _bits(nodes))

    def extra(self, nodes: int) -> int:
        """Increase of the number of live values when the nodes are computed."""
        later = ~(self.done | nodes)
        added = sum(1 for v in _bits(nodes) if self.users[v] & later)
        read = _union(self.needed[v] for v in _bits(nodes)) & self.done
        return added - sum(1 for u in _bits(read) if not self.users[u] & later)

    def complete(self, t: int) -> None:
        """Order a target and its operands depth first, each time the operand that adds the fewest live values."""
        stack = [t]
        while stack:
            v = stack[-1]
            lacking = [u for u in self.graph.operands[v] if not self.done >> u & 1]
            if not lacking:
                stack.pop()
                self.done |= 1 << v
                self.order.append(v)
                continue
            draws = {u: self.ties() for u in lacking}
            stack.append(min(lacking, key=lambda u: (self.extra(self.below[u] & ~self.done), draws[u])))


def _bits(mask: int) -> list[int]:
    bits = []
    while mask:
        low = mask & -mask
        bits.append(low.bit_length() - 1)
        mask ^= low
    return bits


def _union(masks: Iterable[int]) -> int:
    total = 0
    for mask in masks:
        total |= mask
    return total


METHODS: dict[str, Callable[[Graph, Ties], Order]] = {
    method.__name__: method for method in (listed, level, fifo, greedy, reach, target)
}


def best_of(graph: Graph, method: str = "target", draws: int = 8, seed: int = 0) -> Order:
    """Run a method several times and return the best order.

    Parameters
    ----------
    graph : Graph
        The graph to order.
    method : str
        A key of METHODS.
    draws : int
        The number of orders that are compared. The first breaks ties by position, the others at random.
    seed : int
        The seed of the random numbers.

    Returns
    -------
    tuple of int
        The computed nodes in the order with the smallest peak of live values.

    Raises
    ------
    ProgramError
        If there is no such method.
    """
    if method not in METHODS:
        raise ProgramError(f"a scheduler is one of {', '.join(METHODS)}; found {method!r}")
    best = METHODS[method](graph, first)
    fewest = peak_live(graph, best)
    for draw in range(1, draws):
        order = METHODS[method](graph, random.Random(f"{seed}/{draw}").random)
        peak = peak_live(graph, order)
        if peak < fewest:
            best, fewest = order, peak
    return best
