"""Lifetimes of values in a schedule, and how many live at once.

A value lives from the step that computes it to the step of its last use; an input lives from before the first step. A
step counts the values that later steps need and the one that it computes: an operand that is read for the last time
makes room for the result. A target that no later step needs lives in its own step only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trnqc.gen.graph import Graph


@dataclass(frozen=True)
class Lifetime:
    """The steps of a value's birth (-1 for an input) and of its last use, equal if nothing needs it."""

    node: int
    birth: int
    death: int


def lifetimes(graph: Graph, order: Sequence[int]) -> tuple[Lifetime, ...]:
    """Lifetimes of all computed nodes and of the inputs that are used, in order of birth."""
    step = {v: i for i, v in enumerate(order)}
    born = [(v, -1) for v in graph.inputs if graph.users[v]] + [(v, i) for i, v in enumerate(order)]
    return tuple(Lifetime(v, b, max((step[u] for u in graph.users[v]), default=b)) for v, b in born)


def live_counts(graph: Graph, order: Sequence[int]) -> list[int]:
    """How many values live during each step."""
    change = [0] * (len(order) + 1)
    for life in lifetimes(graph, order):
        change[max(life.birth, 0)] += 1
        # In the step of its last use a value no longer counts, unless it is computed there.
        change[max(life.death, life.birth + 1, 0)] -= 1
    counts, now = [], 0
    for delta in change[:-1]:
        now += delta
        counts.append(now)
    return counts


def peak_live(graph: Graph, order: Sequence[int]) -> int:
    """The largest number of values that live at once."""
    waiting = sum(1 for v in graph.inputs if graph.users[v])
    return max(live_counts(graph, order), default=0) if order else waiting
