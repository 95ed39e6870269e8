"""Scheduling of device loops: passes are placed until the loop is steady, and the remaining passes are extrapolated.

Engines run ahead into later passes as far as hazards allow. A loop is steady if, over windows of one to four passes,
every queue that the body uses advances by the same time as in the previous window.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

from trnqc.sim.timeline.record import Loop, Step
from trnqc.sim.timeline.schedule import Schedule
from trnqc.sim.timeline.totals import SCALAR

# Window lengths, in passes, that are tested for a steady state.
_WINDOWS = (1, 2, 3, 4)
# Relative difference between the times of two windows below which they are equal.
_TOLERANCE = 1e-3
# Passes after which an unsteady loop is extrapolated from the mean of its last 16 passes.
_PATIENCE = 48


class Extent(NamedTuple):
    """The queues, storages and register-writing instructions that a loop body uses."""

    queues: set[int]
    storages: set[int]
    writers: set[int]


class Runner:
    """Places a program on a schedule.

    ``words`` describes, by loop id, which passes were extrapolated. With ``extrapolate=False`` every pass is placed.
    """

    def __init__(self, schedule: Schedule, extrapolate: bool = True):
        self.schedule = schedule
        self.extrapolate = extrapolate
        self.words: dict[int, str] = {}
        self._extents: dict[int, Extent] = {}

    def run(self, program: list[Step | Loop]) -> None:
        """Place the whole program."""
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
        """Extrapolate as many passes as possible and return their number."""
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
        extent = self._extents.get(id(loop))
        if extent is None:
            extent = self._extents[id(loop)] = self._measure(loop)
        return extent

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
    """Return the shortest window over which all queues advanced equally in its last repeats, or 0 if there is none."""
    for window in _WINDOWS:
        if len(history) < 3 * window + 2:  # the first pass fills empty buffers
            return 0
        ends = [history[-1 - n * window][0] for n in range(4 if len(history) > 3 * window else 3)]
        steps = [a - b for late, early in pairwise(ends) for a, b in zip(late, early, strict=True)]
        longest = max(steps)
        if all(longest - step <= _TOLERANCE * longest for step in steps):
            return window
    return 0
