"""Activity, overlap and stalls of the engines, and the time of each kind of instruction.

All figures are computed from the events of the lanes. Percentages refer to the part of the run whose events are listed,
normally from the first event to the last, separately for each core.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trnqc.profiling import intervals
from trnqc.profiling.profile import ENGINES, NO_STALL, Lane, Profile

# Instructions that only wait for a semaphore. An engine that executes one of them is not active.
WAITS = ("EVENT_SEMAPHORE",)
# Name under which all DMA queues of a core are taken together.
DMA = "dma"
# Engines whose overlap with TensorE is reported.
HELPERS = ("vector", "scalar")
# If the source lists only part of the events, an interval without any event that exceeds this fraction of the whole
# time counts as not listed.
GAP = 0.05


@dataclass(frozen=True)
class Activity:
    """Activity of one engine on one core.

    `active` is the time in ns in which at least one event ran, without waits, `total` the sum of the lengths of all
    events in ns, and `percent` is `active` in percent of the listed time.
    """

    engine: str
    core: int
    active: float
    total: float
    count: int
    percent: float


@dataclass(frozen=True)
class Overlap:
    """Active time in ns of TensorE, of VectorE and ScalarE together, and of both at once, summed over cores."""

    tensor: float
    helpers: float
    both: float

    @property
    def hidden_percent(self) -> float | None:
        """Percentage of the VectorE and ScalarE time in which TensorE is active too; None if that time is zero."""
        return 100 * self.both / self.helpers if self.helpers else None

    @property
    def tensor_percent(self) -> float | None:
        """Percentage of the TensorE time in which VectorE or ScalarE is active too; None if that time is zero."""
        return 100 * self.both / self.tensor if self.tensor else None


@dataclass(frozen=True, eq=False)
class OverlapMatrix:
    """Pairwise overlap: ``ns[i, j]`` is the time in which engines i and j are both active.

    The diagonal is the active time of each engine.
    """

    engines: tuple[str, ...]
    ns: np.ndarray


@dataclass(frozen=True)
class Stall:
    """Idle time of one engine for one cause, in ns and in percent of the whole time of its queues on all cores.

    ``percent`` is None if the whole time is unknown or the waits overlap one another. Waits of transfers overlap, and
    so do those of an engine whose waits exceed its whole time. Such waits rank the causes but are not shares.
    """

    engine: str
    cause: str
    ns: float
    percent: float | None


@dataclass(frozen=True)
class OpTime:
    """Instructions of one kind on one engine: their number, total time in ns and mean time in ns."""

    engine: str
    op: str
    count: int
    ns: float
    mean: float


def busy(lane: Lane) -> np.ndarray:
    """Return the union of the events of a lane, without waits."""
    return intervals.union(lane.intervals[~lane.op.among(WAITS)])


def unlisted(profile: Profile) -> str | None:
    """Return a sentence that says which part of the events is listed, or None if all are.

    Sources list only part of the events if loop passes were extrapolated or the number of events is limited.
    """
    whole, busiest = max((_claimed(profile, engine), engine) for engine in ENGINES)
    lanes = [lane for lane in profile.lanes if lane.engine == busiest]
    if not lanes:
        return None
    listed = sum(intervals.total(busy(lane)) for lane in lanes) * 1e-9 / len(profile.cores)
    if listed >= 0.98 * whole:
        return None
    return (
        f"The events listed hold {100 * listed / whole:.1f} % of the {busiest} engine's active time: lanes, overlap "
        "and instruction times show that part, the summary the whole run."
    )


def _claimed(profile: Profile, engine: str) -> float:
    """Return the time in seconds for which an engine worked according to the summary.

    The busy time is preferred, because the active time of a timeline includes intervals that no event covers.
    """
    times = (profile.number(f"{engine}_engine_{kind}_time") for kind in ("busy", "active"))
    return next((time for time in times if time is not None), 0.0)


def stretches(profile: Profile) -> np.ndarray:
    """Return the intervals of the run whose events are listed, [k, 2] in ns; a single one unless events are missing."""
    start, end = profile.span
    if not unlisted(profile):
        return np.asarray([[start, end]])
    anything = intervals.merge(*(lane.intervals for lane in profile.lanes))
    idle = intervals.complement(intervals.union(anything), start, end)
    return intervals.complement(idle[idle[:, 1] - idle[:, 0] > GAP * (end - start)], start, end)


def is_dma(engine: str) -> bool:
    """Return whether a lane of this name is a DMA queue."""
    return engine.startswith(DMA)


def activities(profile: Profile) -> tuple[Activity, ...]:
    """Return the activity of every lane and, for each core, of all its DMA queues together (engine ``dma``)."""
    length = intervals.total(stretches(profile))
    lane_activities = [_activity(lane.engine, lane.core, [lane], length) for lane in profile.lanes]
    for core in profile.cores:
        group = [lane for lane in profile.lanes if lane.core == core and is_dma(lane.engine)]
        if group and [lane.engine for lane in group] != [DMA]:
            lane_activities.append(_activity(DMA, core, group, length))
    return tuple(lane_activities)


def _activity(engine: str, core: int, group: list[Lane], span: float) -> Activity:
    active = intervals.total(intervals.merge(*map(busy, group)))
    total = sum(float(np.sum(lane.end - lane.start)) for lane in group)
    return Activity(engine, core, active, total, sum(map(len, group)), 100 * active / span if span else 0.0)


def _merged(profile: Profile, core: int, *engines: str) -> np.ndarray:
    parts = [
        busy(lane)
        for lane in profile.lanes
        if lane.core == core and (lane.engine in engines or (DMA in engines and is_dma(lane.engine)))
    ]
    return intervals.merge(*parts)


def overlap(profile: Profile) -> Overlap:
    """Return the overlap of TensorE with VectorE and ScalarE, summed over cores."""
    tensor = helpers = both = 0.0
    for core in profile.cores:
        t, h = _merged(profile, core, "tensor"), _merged(profile, core, *HELPERS)
        tensor += intervals.total(t)
        helpers += intervals.total(h)
        both += intervals.total(intervals.intersection(t, h))
    return Overlap(tensor, helpers, both)


def matrix(profile: Profile) -> OverlapMatrix:
    """Return the pairwise overlap of the engines that occur. All DMA queues count as one engine."""
    present = {lane.engine for lane in profile.lanes}
    names = tuple(e for e in ENGINES if e in present) + ((DMA,) if any(map(is_dma, present)) else ())
    ns = np.zeros((len(names), len(names)))
    for core in profile.cores:
        unions = [_merged(profile, core, name) for name in names]
        for i, a in enumerate(unions):
            for j, b in enumerate(unions[: i + 1]):
                ns[i, j] += intervals.total(intervals.intersection(a, b))
    return OverlapMatrix(names, np.maximum(ns, ns.T))


def stalls(profile: Profile, top: int | None = None) -> tuple[Stall, ...]:
    """Return the stalls, longest first, at most `top` causes per engine.

    Stalls that the source of the profile states take precedence over those of its events.
    """
    start, end = profile.span
    whole = profile.number("total_time")
    length = 1e9 * whole if whole else end - start
    table: Mapping[str, Mapping[str, float]] = profile.stalls or _stalls_of_events(profile)
    ranked_stalls = []
    for engine, causes in table.items():
        ranked = sorted(((ns, cause) for cause, ns in causes.items() if ns > 0 and cause != NO_STALL), reverse=True)
        room = 0.0 if is_dma(engine) else length * profile.queues.get(engine, 1) * _cores(profile, engine)
        # The sum may slightly exceed the whole time, because the times of the source are rounded.
        shared = 0 < sum(ns for ns, _ in ranked) <= 1.001 * room
        ranked_stalls += [Stall(engine, cause, ns, 100 * ns / room if shared else None) for ns, cause in ranked[:top]]
    return tuple(sorted(ranked_stalls, key=lambda stall: -stall.ns))


def _cores(profile: Profile, engine: str) -> int:
    return max(1, len({lane.core for lane in profile.lanes if lane.engine == engine}))


def _stalls_of_events(profile: Profile) -> dict[str, dict[str, float]]:
    table: dict[str, dict[str, float]] = {}
    for lane in profile.lanes:
        by_cause = np.bincount(lane.stall.codes, weights=lane.stall_ns, minlength=len(lane.stall.names))
        ns_by_cause = dict(zip(lane.stall.names, by_cause.tolist()))
        waits = lane.op.among(WAITS)
        # Wait instructions count as semaphore stalls, unless the source states these as delays of other instructions.
        if waits.any() and not ns_by_cause.get("semaphore"):
            ns_by_cause["semaphore"] = float(np.sum((lane.end - lane.start)[waits]))
        causes = table.setdefault(lane.engine, {})
        for cause, ns in ns_by_cause.items():
            causes[cause] = causes.get(cause, 0.0) + ns
    return table


def ops(profile: Profile, top: int | None = None) -> tuple[OpTime, ...]:
    """Return the time by engine and kind of instruction, longest first, at most ``top`` entries.

    All DMA queues count as one engine.
    """
    table: dict[tuple[str, str], tuple[int, float]] = {}
    for lane in profile.lanes:
        size = len(lane.op.names)
        counts = np.bincount(lane.op.codes, minlength=size)
        times = np.bincount(lane.op.codes, weights=lane.end - lane.start, minlength=size)
        engine = DMA if is_dma(lane.engine) else lane.engine
        for op, count, ns in zip(lane.op.names, counts.tolist(), times.tolist()):
            if count:
                before = table.get((engine, op), (0, 0.0))
                table[engine, op] = (before[0] + count, before[1] + ns)
    op_times = [OpTime(engine, op, count, ns, ns / count) for (engine, op), (count, ns) in table.items()]
    return tuple(sorted(op_times, key=lambda one: -one.ns)[:top])
