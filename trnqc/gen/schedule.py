"""Orders of a graph's computations, side by side and named by method; `best_of` draws ties and keeps the best.

Every method takes a graph and a `Ties`, and returns the computed nodes in order. The same seed gives the same order.
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
    """Ties go to the node found first."""
    return 0.0


def listed(graph: Graph, ties: Ties = first) -> Order:
    """The graph's own order: the targets as they were listed, each after what it needs. Large graphs take no time."""
    return graph.computed


def level(graph: Graph, ties: Ties = first) -> Order:
    """All of one level before the next: as many values live as the widest level has."""
    rank = {v: (graph.levels[v], ties()) for v in graph.computed}
    return tuple(sorted(graph.computed, key=rank.__getitem__))


def fifo(graph: Graph, ties: Ties = first) -> Order:
    """Kahn's order: nodes in the order in which they become ready."""
    ready = _Ready(graph)
    order: list[int] = []
    while ready.nodes:
        v = ready.nodes[0]
        order.append(v)
        ready.take(v)
    return tuple(order)


def greedy(graph: Graph, ties: Ties = first) -> Order:
    """The ready node with the smallest net change of the number of live values, one step ahead."""
    return by_score(graph, lambda state, v: state.freed(v) - bool(graph.users[v]), ties)


def reach(graph: Graph, ties: Ties = first) -> Order:
    """The ready node from which the fewest nodes are reached: what is nearly used up is finished before more begins."""
    above = [0] * len(graph)
    for v in reversed(range(len(graph))):
        above[v] = _union(above[w] | 1 << w for w in graph.users[v])
    return by_score(graph, lambda state, v: -above[v].bit_count(), ties)


class State:
    """What a score may ask: `waiting` users of each node, `missing` operands of each, `done` nodes as bits."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.waiting = [len(users) for users in graph.users]
        self.ready = _Ready(graph)
        self.missing = self.ready.missing
        self.done = sum(1 << v for v in graph.inputs)

    def freed(self, v: int) -> int:
        """Operands that v is the last to use."""
        return sum(self.waiting[u] == 1 for u in self.graph.operands[v])

    def take(self, v: int) -> None:
        for u in self.graph.operands[v]:
            self.waiting[u] -= 1
        self.done |= 1 << v
        self.ready.take(v)


def by_score(graph: Graph, score: Callable[[State, int], float], ties: Ties = first) -> Order:
    """List scheduling: of the ready nodes the one of highest score; ties to the one that became ready last.

    A published score is tried by writing it as a function of the state and a node.
    """
    state = State(graph)
    order: list[int] = []
    while state.ready.nodes:
        best = max(enumerate(state.ready.nodes), key=lambda entry: (score(state, entry[1]), ties(), entry[0]))[1]
        order.append(best)
        state.take(best)
    return tuple(order)


class _Ready:
    """Nodes whose operands are all there, in the order in which that came true."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        given = set(graph.inputs)
        self.missing = [sum(u not in given for u in needed) for needed in graph.operands]
        self.nodes = [v for v in graph.computed if not self.missing[v]]

    def take(self, v: int) -> None:
        self.nodes.remove(v)
        for w in self.graph.users[v]:
            self.missing[w] -= 1
            if not self.missing[w]:
                self.nodes.append(w)


def target(graph: Graph, ties: Ties = first) -> Order:
    """Complete one target after the other, each time the one whose completion leaves the fewest extra live values."""
    return _Completion(graph, ties).run()


class _Completion:
    """Sets of nodes are integers, node v being bit v: a target's cost is a few operations on them."""

    def __init__(self, graph: Graph, ties: Ties) -> None:
        self.graph, self.ties = graph, ties
        self.users = graph.masks(graph.users)
        self.needed = graph.masks(graph.operands)
        self.below: list[int] = []  # the node and all that it needs
        for v, operands in enumerate(graph.operands):
            self.below.append((1 << v) | _union(self.below[u] for u in operands))
        self.done = sum(1 << v for v in graph.inputs)
        self.order: list[int] = []

    def run(self) -> Order:
        # Of equal costs the larger: what it shares with others is then there, and its own values are soon gone.
        missing = {t: self.below[t] & ~self.done for t in self.graph.targets if t not in self.graph.inputs}
        costs: dict[int, int] = {}
        around: dict[int, int] = {}  # what a target's cost was found from
        while missing:
            for t in missing:
                if t not in costs:
                    costs[t], around[t] = self.extra(missing[t]), self.around(missing[t])
            t = min(missing, key=lambda t: (costs[t], -missing[t].bit_count(), self.ties()))
            fresh = missing.pop(t)
            self.complete(t)
            # Only targets that share nodes or operands with what was completed have changed.
            near = fresh | _union(self.needed[v] for v in _bits(fresh))
            missing = {u: m & ~fresh for u, m in missing.items() if m & ~fresh}
            costs = {u: c for u, c in costs.items() if u in missing and not around[u] & near}
        left = [v for v in self.graph.computed if not self.done >> v & 1]
        return (*self.order, *left)

    def around(self, nodes: int) -> int:
        return nodes | _union(self.needed[v] for v in _bits(nodes))

    def extra(self, nodes: int) -> int:
        """Values that live after the nodes are computed less those that live before."""
        later = ~(self.done | nodes)
        kept = sum(1 for v in _bits(nodes) if self.users[v] & later)
        read = _union(self.needed[v] for v in _bits(nodes)) & self.done
        return kept - sum(1 for u in _bits(read) if not self.users[u] & later)

    def complete(self, t: int) -> None:
        """Depth first from the target, the operand that frees most first."""
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
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


def _union(masks: Iterable[int]) -> int:
    total = 0
    for mask in masks:
        total |= mask
    return total


METHODS: dict[str, Callable[[Graph, Ties], Order]] = {
    method.__name__: method for method in (listed, level, fifo, greedy, reach, target)
}


def best_of(graph: Graph, method: str = "target", draws: int = 8, seed: int = 0) -> Order:
    """The order of fewest live values among `draws`: ties to the first found, then ties drawn from the seed.

    Raises ProgramError for a method that is not in METHODS.
    """
    if method not in METHODS:
        raise ProgramError(f"no scheduler {method!r}; there are {', '.join(METHODS)}")
    best, fewest = METHODS[method](graph, first), -1
    fewest = peak_live(graph, best)
    for draw in range(1, draws):
        order = METHODS[method](graph, random.Random(f"{seed}/{draw}").random)
        peak = peak_live(graph, order)
        if peak < fewest:
            best, fewest = order, peak
    return best
