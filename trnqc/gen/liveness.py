"""Lifetimes of values in a schedule: how many values are live at once, and which of them can share a variable.

A value is live from the step that computes it to the step of its last use. An input is live from before the first step.
The values that are live in a step are those that later steps need and the one that the step computes; an operand that
is read for the last time makes room for the result. A target that no later step needs is live in its own step only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trnqc.gen.graph import Graph


@dataclass(frozen=True)
class Lifetime:
    """The lifetime of a node: the step that computes the node, or -1 for an input, and the step of its last use.

    The death is the birth if no step uses the node.
    """

    node: int
    birth: int
    death: int


def lifetimes(graph: Graph, order: Sequence[int]) -> tuple[Lifetime, ...]:
    """The lifetimes of all computed nodes and of the inputs that are used, in the order of birth."""
    step = {v: i for i, v in enumerate(order)}
    born = [(v, -1) for v in graph.inputs if graph.users[v]] + [(v, i) for i, v in enumerate(order)]
    return tuple(Lifetime(v, b, max((step[u] for u in graph.users[v]), default=b)) for v, b in born)


def live_counts(graph: Graph, order: Sequence[int]) -> list[int]:
    """The number of values that are live in each step."""
    change = [0] * (len(order) + 1)
    for life in lifetimes(graph, order):
        change[max(life.birth, 0)] += 1
        # A value no longer counts in the step of its last use, unless that step computes it.
        change[max(life.death, life.birth + 1, 0)] -= 1
    counts, now = [], 0
    for delta in change[:-1]:
        now += delta
        counts.append(now)
    return counts


def peak_live(graph: Graph, order: Sequence[int]) -> int:
    """The largest number of values that are live at once."""
    inputs = sum(1 for v in graph.inputs if graph.users[v])
    return max(live_counts(graph, order), default=0) if order else inputs


@dataclass(frozen=True)
class Slots:
    """An assignment of values to slots, which are variables that several values share.

    `place` is -1 for a node without a slot; `before` counts the values that have one.
    """

    place: tuple[int, ...]
    count: int
    before: int

    def __str__(self) -> str:
        return f"{self.before} values in {self.count} slots"


def allocate(graph: Graph, order: Sequence[int]) -> Slots:
    """Assign slots to values so that values in the same slot have lifetimes that do not overlap.

    Notes
    -----
    Linear scan: in the order of birth, each value takes the slot that became free last. The number of slots is the
    largest number of lifetimes that overlap at one step, which is the smallest possible one.
    """
    lives = lifetimes(graph, order)
    place = [-1] * len(graph)
    free: list[tuple[int, int]] = []  # (step at which it became free, slot)
    busy: list[tuple[int, int]] = []  # (step of last use, slot)
    count = 0
    for life in lives:
        # All inputs are live together, even those whose last use is the first step.
        freed = [(death, slot) for death, slot in busy if death <= life.birth]
        busy = [entry for entry in busy if entry not in freed]
        free = sorted(free + freed)
        if free:
            slot = free.pop()[1]
        else:
            slot, count = count, count + 1
        place[life.node] = slot
        busy.append((max(life.death, life.birth + 1), slot))
    return Slots(tuple(place), count, len(lives))


def overlap(a: Lifetime, b: Lifetime) -> bool:
    """Whether both values are live in the same step."""
    return a.birth < max(b.death, b.birth + 1) and b.birth < max(a.death, a.birth + 1)
