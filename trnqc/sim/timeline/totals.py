"""Sums that are accumulated while instructions are placed: activity, stalls, traffic, flops and engine overlap."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

ENGINES = ("tensor", "vector", "scalar", "gpsimd", "sync")
TENSOR, VECTOR, SCALAR, GPSIMD, SYNC, DMA = range(6)


class Event(NamedTuple):
    """One interval of the timeline: an instruction on its engine, or the share of a transfer on one DMA engine.

    Times are in ns. ``stall_ns`` is the idle time of the engine before the event and ``stall`` is its cause.
    """

    engine: str
    queue: str
    op: str
    name: str
    static_id: int
    start_ns: float
    end_ns: float
    iteration: tuple[int, ...]
    stall: str
    stall_ns: float


class Totals:
    """Sums by key.

    The active time of an engine is the union of its instructions' intervals, each extended until its results are in
    memory.
    """

    def __init__(self) -> None:
        self.sums: dict[Any, float] = defaultdict(float)
        self.active_end = [0.0] * 5
        # Busy intervals of TensorE, VectorE and ScalarE that `compare` has not processed yet.
        self._busy: list[list[tuple[float, float]]] = [[], [], []]
        self._seen = 0.0

    def engine(self, me: int, start: float, end: float, late: float) -> None:
        """Add an instruction that keeps engine ``me`` busy from ``start`` to ``end``.

        Its results are in memory ``late`` ns after ``end``.
        """
        sums = self.sums
        sums["busy", me] += end - start
        sums["count", me] += 1
        until = end + late
        before = self.active_end[me]
        if until > before:
            sums["active", me] += until - (start if start > before else before)
            self.active_end[me] = until
        if me <= SCALAR:
            mine = self._busy[me]
            if mine and mine[-1][1] >= start:
                mine[-1] = (mine[-1][0], end)
            else:
                mine.append((start, end))

    def compare(self, until: float) -> None:
        """Add the time before ``until`` in which TensorE is busy together with VectorE or ScalarE.

        The caller guarantees that no later instruction starts before ``until``.
        """
        begin = self._seen
        if until <= begin:
            return
        tensor = _cut(self._busy[TENSOR], until)
        others = _union(_cut(self._busy[VECTOR], until) + _cut(self._busy[SCALAR], until))
        self.sums["overlap"] += _common(tensor, others)
        self.sums["others"] += sum(e - s for s, e in others)
        self._seen = until

    def shift(self, dt: float, engines: set[int]) -> None:
        """Delay the intervals of ``engines`` that are not yet compared by ``dt`` ns."""
        for me in engines:
            self.active_end[me] += dt
            if me <= SCALAR:
                self._busy[me][:] = [(s + dt, e + dt) for s, e in self._busy[me]]
        self._seen += dt

    def snapshot(self) -> dict[Any, float]:
        return dict(self.sums)

    def repeat(self, before: dict[Any, float], times: int) -> None:
        """Add the increase of every sum since the snapshot ``before`` another ``times`` times."""
        for key, value in list(self.sums.items()):
            self.sums[key] = value + times * (value - before.get(key, 0.0))


def _cut(intervals: list[tuple[float, float]], until: float) -> list[tuple[float, float]]:
    """Remove and return the parts of ``intervals`` that lie before ``until``."""
    done, rest = [], []
    for start, end in intervals:
        if end <= until:
            done.append((start, end))
        elif start >= until:
            rest.append((start, end))
        else:
            done.append((start, until))
            rest.append((until, end))
    intervals[:] = rest
    return done


def _union(intervals: list[tuple[float, float]]) -> list[tuple[float, float]]:
    merged: list[tuple[float, float]] = []
    for start, end in sorted(intervals):
        if merged and merged[-1][1] >= start:
            if end > merged[-1][1]:
                merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return merged


def _common(first: list[tuple[float, float]], second: list[tuple[float, float]]) -> float:
    """Return the total intersection of two sorted lists of disjoint intervals."""
    total, i, j = 0.0, 0, 0
    while i < len(first) and j < len(second):
        low, high = max(first[i][0], second[j][0]), min(first[i][1], second[j][1])
        if high > low:
            total += high - low
        if first[i][1] < second[j][1]:
            i += 1
        else:
            j += 1
    return total
