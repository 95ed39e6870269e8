"""What the engines did and when: activity, overlap, stalls and the instructions that took the time.

Everything here is computed from the events of the lanes. Percentages are of the time whose events are listed, as a rule
from the first event to the last, per core where there are several.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trnqc.profiling import intervals
from trnqc.profiling.profile import ENGINES, NO_STALL, Lane, Profile

# An engine that waits on a semaphore is not active, though the wait is an instruction.
WAITS = ("EVENT_SEMAPHORE",)
DMA = "dma"
HELPERS = ("vector", "scalar")
GAP = 0.05  # of the whole time: where nothing at all runs so long and events are missing, they are missing there


@dataclass(frozen=True)
class Activity:
    """active: ns in which at least one event ran, waits left out; total: ns of all events added up."""

    engine: str
    core: int
    active: float
    total: float
    count: int
    percent: float


@dataclass(frozen=True)
class Overlap:
    """Tensor engine against Vector and Scalar together: ns of each and of both at once, summed over cores."""

    tensor: float
    helpers: float
    both: float

    @property
    def hidden_percent(self) -> float | None:
        """How much of the Vector and Scalar time runs behind the Tensor engine."""
        return 100 * self.both / self.helpers if self.helpers else None

    @property
    def tensor_percent(self) -> float | None:
        """How much of the Tensor time has Vector or Scalar at work beside it."""
        return 100 * self.both / self.tensor if self.tensor else None


@dataclass(frozen=True, eq=False)
class Matrix:
    """Pairwise overlap: ns[i, j] in which engines[i] and engines[j] are both active; the diagonal is their activity."""

    engines: tuple[str, ...]
    ns: np.ndarray


@dataclass(frozen=True)
class Stall:
    """percent: of the whole time of the engine's queues on all cores.

    None where the whole time is unknown, and for waits that overlap one another (those of transfers, and wherever an
    engine's waits add up to more than its whole time): these rank causes and are no shares.
    """

    engine: str
    cause: str
    ns: float
    percent: float | None


@dataclass(frozen=True)
class OpTime:
    """The time of one operation on one engine, in ns: number of instructions, sum, mean."""

    engine: str
    op: str
    count: int
    ns: float
    mean: float


def busy(lane: Lane) -> np.ndarray:
    """The union of a lane's events without waits."""
    return intervals.union(lane.intervals[~lane.op.among(WAITS)])


def unlisted(profile: Profile) -> str | None:
    """What the lanes lack, in words: sources list a part of the events where passes repeat or there are too many."""
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
    """Seconds that the summary says an engine worked; a timeline's active time holds what no event does."""
    times = (profile.number(f"{engine}_engine_{kind}_time") for kind in ("busy", "active"))
    return next((time for time in times if time is not None), 0.0)


def stretches(profile: Profile) -> np.ndarray:
    """[k, 2] ns: the parts of the run whose events are listed. One part unless events are missing."""
    start, end = profile.span
    if not unlisted(profile):
        return np.asarray([[start, end]])
    anything = intervals.merge(*(lane.intervals for lane in profile.lanes))
    idle = intervals.complement(intervals.union(anything), start, end)
    return intervals.complement(idle[idle[:, 1] - idle[:, 0] > GAP * (end - start)], start, end)


def is_dma(engine: str) -> bool:
    """Whether a lane of this name is a DMA queue."""
    return engine.startswith(DMA)


def activities(profile: Profile) -> tuple[Activity, ...]:
    """One for every lane and, for each core, one for all its DMA together (engine ``dma``)."""
    length = intervals.total(stretches(profile))
    made = [_activity(lane.engine, lane.core, [lane], length) for lane in profile.lanes]
    for core in profile.cores:
        group = [lane for lane in profile.lanes if lane.core == core and is_dma(lane.engine)]
        if group and [lane.engine for lane in group] != [DMA]:
            made.append(_activity(DMA, core, group, length))
    return tuple(made)


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
    """How long TensorE, its helper engines and both were active, summed over cores."""
    tensor = helpers = both = 0.0
    for core in profile.cores:
        t, h = _merged(profile, core, "tensor"), _merged(profile, core, *HELPERS)
        tensor += intervals.total(t)
        helpers += intervals.total(h)
        both += intervals.total(intervals.intersection(t, h))
    return Overlap(tensor, helpers, both)


def matrix(profile: Profile) -> Matrix:
    """Over the engines that occur, DMA as one."""
    present = {lane.engine for lane in profile.lanes}
    names = tuple(e for e in ENGINES if e in present) + ((DMA,) if any(map(is_dma, present)) else ())
    ns = np.zeros((len(names), len(names)))
    for core in profile.cores:
        unions = [_merged(profile, core, name) for name in names]
        for i, a in enumerate(unions):
            for j, b in enumerate(unions[: i + 1]):
                ns[i, j] += intervals.total(intervals.intersection(a, b))
    return Matrix(names, np.maximum(ns, ns.T))


def stalls(profile: Profile, top: int | None = None) -> tuple[Stall, ...]:
    """Longest first: the source's own account where it gives one, else what its events say; ``top`` per engine."""
    start, end = profile.span
    whole = profile.number("total_time")
    length = 1e9 * whole if whole else end - start
    table: Mapping[str, Mapping[str, float]] = profile.stalls or _stalls_of_events(profile)
    made = []
    for engine, causes in table.items():
        ranked = sorted(((ns, cause) for cause, ns in causes.items() if ns > 0 and cause != NO_STALL), reverse=True)
        room = 0.0 if is_dma(engine) else length * profile.queues.get(engine, 1) * _cores(profile, engine)
        # Rounded times of an engine that waits all the time may add up to a little more than the whole.
        shared = 0 < sum(ns for ns, _ in ranked) <= 1.001 * room
        made += [Stall(engine, cause, ns, 100 * ns / room if shared else None) for ns, cause in ranked[:top]]
    return tuple(sorted(made, key=lambda stall: -stall.ns))


def _cores(profile: Profile, engine: str) -> int:
    return max(1, len({lane.core for lane in profile.lanes if lane.engine == engine}))


def _stalls_of_events(profile: Profile) -> dict[str, dict[str, float]]:
    table: dict[str, dict[str, float]] = {}
    for lane in profile.lanes:
        by_cause = np.bincount(lane.stall.codes, weights=lane.stall_ns, minlength=len(lane.stall.names))
        found = dict(zip(lane.stall.names, by_cause.tolist()))
        waits = lane.op.among(WAITS)
        # A wait that is an instruction of its own must not count again as the delay of another.
        if waits.any() and not found.get("semaphore"):
            found["semaphore"] = float(np.sum((lane.end - lane.start)[waits]))
        causes = table.setdefault(lane.engine, {})
        for cause, ns in found.items():
            causes[cause] = causes.get(cause, 0.0) + ns
    return table


def ops(profile: Profile, top: int | None = None) -> tuple[OpTime, ...]:
    """Time by engine and instruction, longest first; DMA as one engine."""
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
    made = [OpTime(engine, op, count, ns, ns / count) for (engine, op), (count, ns) in table.items()]
    return tuple(sorted(made, key=lambda one: -one.ns)[:top])
