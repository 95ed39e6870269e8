"""How many values an order keeps at once, and for how long.

A value lives from the step that produces it (an input: from before the first) to the step of its last use. At a step
the values that a later step needs and the one being produced are counted: operands read for the last time give their
place to the result. A target that nothing needs later is handed out in its own step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trnqc.gen.graph import Graph


@dataclass(frozen=True)
class Lifetime:
    """Steps of birth (-1 for an input) and of last use; equal for a value that nothing needs."""

    node: int
    birth: int
    death: int


def lifetimes(graph: Graph, order: Sequence[int]) -> tuple[Lifetime, ...]:
    """One for each input that is used and each computed node, in order of birth."""
    step = {v: i for i, v in enumerate(order)}
    born = [(v, -1) for v in graph.inputs if graph.users[v]] + [(v, i) for i, v in enumerate(order)]
    return tuple(Lifetime(v, b, max((step[u] for u in graph.users[v]), default=b)) for v, b in born)


def live_counts(graph: Graph, order: Sequence[int]) -> list[int]:
    """Values that live during each step."""
    change = [0] * (len(order) + 1)
    for life in lifetimes(graph, order):
        change[max(life.birth, 0)] += 1
        # In the step of its last use a value no longer counts, unless it is being produced there.
        change[max(life.death, life.birth + 1, 0)] -= 1
    counts, now = [], 0
    for delta in change[:-1]:
        now += delta
        counts.append(now)
    return counts


def peak_live(graph: Graph, order: Sequence[int]) -> int:
    """The largest number of values that live at once, the inputs before the first step included."""
    waiting = sum(1 for v in graph.inputs if graph.users[v])
    return max(live_counts(graph, order), default=0) if order else waiting
