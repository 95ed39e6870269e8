"""Assign values to slots (shared variables): two values may share one if their lifetimes do not overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trnqc.gen.graph import Graph
from trnqc.gen.liveness import Lifetime, lifetimes


@dataclass(frozen=True)
class Slots:
    """place[node] is its slot, or -1. count: number of slots. before: number of values."""

    place: tuple[int, ...]
    count: int
    before: int

    def __str__(self) -> str:
        return f"{self.before} values in {self.count} slots"


def allocate(graph: Graph, order: Sequence[int]) -> Slots:
    """Linear scan: in order of birth each value takes the slot that was freed last.

    The number of slots is the largest number of overlapping lifetimes, which is optimal.
    """
    lives = lifetimes(graph, order)
    place = [-1] * len(graph)
    free: list[tuple[int, int]] = []  # (step it was emptied, slot)
    busy: list[tuple[int, int]] = []  # (step of last use, slot)
    count = 0
    for life in lives:
        freed = [(death, slot) for death, slot in busy if _gone(death, life)]
        busy = [entry for entry in busy if entry not in freed]
        free = sorted(free + freed)
        if free:
            slot = free.pop()[1]
        else:
            slot, count = count, count + 1
        place[life.node] = slot
        busy.append((max(life.death, life.birth + 1), slot))
    return Slots(tuple(place), count, len(lives))


def _gone(death: int, life: Lifetime) -> bool:
    # All inputs live together, even if the first step is the last to use one.
    return death <= life.birth


def overlap(a: Lifetime, b: Lifetime) -> bool:
    """Whether both live at some step, as `liveness` counts."""
    return a.birth < max(b.death, b.birth + 1) and b.birth < max(a.death, a.birth + 1)
