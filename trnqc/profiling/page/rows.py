"""The lanes of one core as rows of the page: which are drawn, how high, and with how many of their events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from trnqc.profiling import activity, intervals, words
from trnqc.profiling.profile import ENGINES, NO_STALL, Labels, Lane, Profile

# Top of the first row, heights of the rows of engines and of DMA queues, and the gap between rows, in pixels.
TOP, TALL, SHORT, GAP = 6, 30, 10, 6


# Largest number of events in a page; beyond it, neighbouring events are merged.
EVENTS = 60_000


# Largest number of DMA queues that are drawn as separate lanes.
MANY_DMA = 16


@dataclass(frozen=True, eq=False)
class LaneRow:
    """One drawn lane: its top and height in pixels and its colour class."""

    lane: Lane
    label: str
    colour: str
    top: float
    height: float


def rows(profile: Profile, core: int) -> tuple[list[LaneRow], list[str]]:
    """Return the rows of one core, and notes on events that were merged. Events of the close-up are never merged."""
    near = close_up(profile, core)
    mine = [lane for lane in profile.lanes if lane.core == core and len(lane)]
    engines = [lane for lane in mine if not activity.is_dma(lane.engine)]
    dma = [lane for lane in mine if activity.is_dma(lane.engine)]
    notes = []
    if len(dma) > MANY_DMA:
        notes.append(f"{len(dma)} DMA queues are drawn as one lane: the time in which any of them was busy")
        dma = [_one_lane(dma)]
    share = _share_of_each([len(lane) for lane in engines + dma])
    drawn_rows: list[LaneRow] = []
    top = float(TOP)
    for lane in engines + dma:
        height = SHORT if activity.is_dma(lane.engine) and len(dma) > 2 else TALL
        drawn = _ranked(_thinned(lane, share, near))
        if len(drawn) < len(lane):
            which = f"{words.engine(lane.engine)}: {len(lane)} events"
            notes.append(f"{which} are drawn as {len(drawn)} blocks of the same busy time")
        colour = lane.engine if lane.engine in ENGINES else ("dma" if activity.is_dma(lane.engine) else "other")
        drawn_rows.append(LaneRow(drawn, _label(lane.engine), colour, top, height))
        top += height + (2 if height == SHORT else GAP)
    return drawn_rows, notes


def _label(engine: str) -> str:
    label = words.engine(engine)
    return label if len(label) <= 13 else label[:12] + "…"


def _plain(engine: str, busy: np.ndarray, core: int, op: str) -> Lane:
    n = len(busy)
    same = Labels.same
    return Lane(engine, busy[:, 0], busy[:, 1], same(op, n), same("", n), same(NO_STALL, n), np.zeros(n), core)


def _one_lane(group: list[Lane]) -> Lane:
    return _plain("dma", intervals.merge(*map(activity.busy, group)), group[0].core, "any queue busy")


def _share_of_each(lengths: Sequence[int]) -> int:
    """Return the largest number of events per lane for which all lanes together have at most EVENTS.

    Lanes with fewer events leave the rest of their share to longer ones.
    """
    left = EVENTS
    for k, length in enumerate(sorted(lengths)):
        equal = left // (len(lengths) - k)
        if length > equal:
            return equal
        left -= length
    return EVENTS


def _ranked(lane: Lane) -> Lane:
    """Return the lane with its instructions numbered by total time, so that the longest has the first colour."""
    if not len(lane):
        return lane
    time = np.bincount(lane.op.codes, weights=lane.end - lane.start, minlength=len(lane.op.names))
    order = np.argsort(-time, kind="stable")
    place = np.empty(len(order), dtype=np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    return replace(lane, op=Labels(place[lane.op.codes], tuple(lane.op.names[k] for k in order)))


def _thinned(lane: Lane, most: int, near: tuple[float, float] | None) -> Lane:
    """Return the lane with at most about `most` blocks: one for each of equal slices of time, as long as its busy time.

    Events in the window `near` are kept.
    """
    if len(lane) <= most:
        return lane
    low, high = near or (0.0, 0.0)
    kept = np.flatnonzero((lane.end > low) & (lane.start < high)) if near else np.empty(0, dtype=np.int64)
    exact = lane.intervals[kept]
    low, high = (min(low, exact[:, 0].min()), max(high, exact[:, 1].max())) if len(kept) else (low, high)
    busy = activity.busy(lane)
    start, end = busy[0, 0], busy[-1, 1]
    busy = intervals.intersection(busy, intervals.complement(np.asarray([[low, high]]), start, end))
    edges = np.linspace(start, end, most + 1)
    share = intervals.coverage(busy, edges)
    used = share > 0
    # The block of a slice that the window cuts stays outside of the window.
    first = np.where((edges[:-1] > low) & (edges[:-1] < high), high, edges[:-1])[used]
    rest = _plain(lane.engine, np.column_stack([first, first + share[used]]), lane.core, "several instructions")
    return Lane.joined([rest, lane.part(kept)])


def first_view(profile: Profile) -> tuple[float, float]:
    """Return the start and end in ns of the whole run, or of its longest part whose events are listed."""
    parts = activity.stretches(profile)
    start, end = parts[np.argmax(parts[:, 1] - parts[:, 0])]
    return float(start), float(end)


def close_up(profile: Profile, core: int, blocks: int = 26) -> tuple[float, float] | None:
    """Return a window in ns past the middle with about `blocks` events of the busiest engine; None if all fit."""
    mine = [lane for lane in profile.lanes if lane.core == core and lane.engine in ENGINES]
    busiest = max(mine, key=lambda lane: intervals.total(activity.busy(lane)), default=None)
    if busiest is None or len(busiest) < 4 * blocks:
        return None
    low, high = first_view(profile)
    first = int(np.searchsorted(busiest.start, low + 0.55 * (high - low)))
    last = min(first + blocks, int(np.searchsorted(busiest.start, high)) - 1)
    if last <= first:
        return None
    start, end = float(busiest.start[first]), float(busiest.end[first : last + 1].max())
    return (start, end) if end > start else None
