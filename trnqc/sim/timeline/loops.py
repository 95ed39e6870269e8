"""Device loops: a body is issued pass after pass until its time repeats; the passes left are added without being
placed.

Engines run ahead into later passes as far as hazards let them. A loop is steady when, over windows of one to four
passes, every queue that the body uses has advanced by the same time as in the window before.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

from trnqc.sim.timeline.record import Loop, Step
from trnqc.sim.timeline.schedule import Schedule
from trnqc.sim.timeline.totals import SCALAR

_WINDOWS = (1, 2, 3, 4)  # passes
_TOLERANCE = 1e-3  # of the window
_PATIENCE = 48  # passes without a steady window, after which the mean of the last ones is taken


class Extent(NamedTuple):
    """What a loop body uses."""

    queues: set[int]
    storages: set[int]
    writers: set[int]


class Runner:
    """Places a program; ``words`` says what was extrapolated. ``extrapolate=False`` places every pass."""

    def __init__(self, schedule: Schedule, extrapolate: bool = True):
        self.schedule = schedule
        self.extrapolate = extrapolate
        self.words: dict[int, str] = {}
        self._extents: dict[int, Extent] = {}

    def run(self, program: list[Step | Loop]) -> None:
        """Place everything."""
        self._block(program)
        self.schedule.totals.compare(float("inf"))

    def _block(self, body: list[Step | Loop]) -> None:
        issue = self.schedule.issue
        for item in body:
            if isinstance(item, Step):
                issue(item)
            else:
                self._loop(item)

    def _loop(self, loop: Loop) -> None:
        schedule, extent = self.schedule, self._extent(loop)
        schedule.enter(loop, extent.queues)
        outer, done = schedule.iteration, 0
        history: list[tuple[list[float], dict[str, Any]]] = [self._snapshot(extent)]
        while done < loop.trips:
            schedule.iteration = (*outer, done)
            self._block(loop.body)
            schedule.turn_around(extent.queues)
            done += 1
            history.append(self._snapshot(extent))
            if self.extrapolate and done < loop.trips:
                done += self._skip(loop, extent, history, done)
        schedule.iteration = outer

    def _snapshot(self, extent: Extent) -> tuple[list[float], dict[str, Any]]:
        schedule = self.schedule
        together = [schedule.free[q] for q in extent.queues if q <= SCALAR]
        schedule.totals.compare(min(together) if together else 0.0)
        return [schedule.free[q] for q in sorted(extent.queues)], schedule.totals.snapshot()

    def _skip(self, loop: Loop, extent: Extent, history: list[tuple[list[float], dict[str, Any]]], done: int) -> int:
        """Passes added without being placed."""
        window, how = _steady(history), "steady"
        if not window and len(history) > _PATIENCE:
            window, how = 16, "not steady, mean of the last 16 passes"
        times = (loop.trips - done) // window if window else 0
        if not times:
            return 0
        (now, _), (then, before) = history[-1], history[-1 - window]
        period = max(a - b for a, b in zip(now, then, strict=True))
        schedule = self.schedule
        schedule.shift(times * period, extent.queues, extent.storages, extent.writers)
        schedule.totals.repeat(before, times)
        del history[:-1]
        history[-1] = self._snapshot(extent)
        self.words.setdefault(
            loop.id,
            f"loop {loop.id}: {done} of {loop.trips} passes placed, {times * window} added at "
            f"{period / window / 1e3:.3f} us a pass ({how} over {window} {'pass' if window == 1 else 'passes'})",
        )
        return times * window

    def _extent(self, loop: Loop) -> Extent:
        found = self._extents.get(id(loop))
        if found is None:
            found = self._extents[id(loop)] = self._measure(loop)
        return found

    def _measure(self, loop: Loop) -> Extent:
        extent = Extent(set(), set(), set())
        for item in loop.body:
            if isinstance(item, Step):
                node = self.schedule.node(item)
                parts = ({node.queue}, node.storages, {node.id})
            else:
                parts = self._extent(item)
            for mine, more in zip(extent, parts, strict=True):
                mine.update(more)
        return extent


def _steady(history: list[tuple[list[float], dict[str, Any]]]) -> int:
    """Length of the shortest window whose last three repeats took all queues equally long; 0 if there is none."""
    for window in _WINDOWS:
        if len(history) < 3 * window + 2:  # the first pass fills empty buffers
            return 0
        ends = [history[-1 - n * window][0] for n in range(4 if len(history) > 3 * window else 3)]
        steps = [a - b for late, early in pairwise(ends) for a, b in zip(late, early, strict=True)]
        longest = max(steps)
        if all(longest - step <= _TOLERANCE * longest for step in steps):
            return window
    return 0
