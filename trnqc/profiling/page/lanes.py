"""The engine lanes: the events of each engine over time, as inline SVG that a script can redraw for another window.

In a wide window a lane shows the share of time in which the engine was busy. In a narrow window every instruction is a
block that is preceded by its stall. ``lanes.js`` draws the same pictures from the same numbers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from trnqc.profiling import activity, intervals, words
from trnqc.profiling.page.markup import Markup, element, join
from trnqc.profiling.profile import ENGINES, NO_STALL, Labels, Lane, Profile

WIDTH, LEFT, RIGHT, TOP, AXIS = 1120, 92, 28, 6, 30
TALL, SHORT, GAP = 30, 10, 6
# Number of time bins of a lane that is drawn as shares.
BINS = 640
# Largest number of blocks in a lane; lanes with more events are drawn as shares.
BLOCKS = 900
# Largest number of events in a page; beyond it, neighbouring events are merged.
EVENTS = 60_000
# Largest number of DMA queues that are drawn as separate lanes.
MANY_DMA = 16


@dataclass(frozen=True, eq=False)
class Row:
    """One drawn lane: its top and height in pixels and its colour class."""

    lane: Lane
    label: str
    colour: str
    top: float
    height: float


def rows(profile: Profile, core: int) -> tuple[list[Row], list[str]]:
    """(the rows of a core, what was merged to draw them); the close-up is never merged."""
    near = close_up(profile, core)
    mine = [lane for lane in profile.lanes if lane.core == core and len(lane)]
    engines = [lane for lane in mine if not activity.is_dma(lane.engine)]
    dma = [lane for lane in mine if activity.is_dma(lane.engine)]
    notes = []
    if len(dma) > MANY_DMA:
        notes.append(f"{len(dma)} DMA queues are drawn as one lane: the time in which any of them was busy")
        dma = [_one_lane(dma)]
    share = _share_of_each([len(lane) for lane in engines + dma])
    drawn_rows: list[Row] = []
    top = float(TOP)
    for lane in engines + dma:
        height = SHORT if activity.is_dma(lane.engine) and len(dma) > 2 else TALL
        drawn = _ranked(_thinned(lane, share, near))
        if len(drawn) < len(lane):
            which = f"{words.engine(lane.engine)}: {len(lane)} events"
            notes.append(f"{which} are drawn as {len(drawn)} blocks of the same busy time")
        colour = lane.engine if lane.engine in ENGINES else ("dma" if activity.is_dma(lane.engine) else "other")
        drawn_rows.append(Row(drawn, _label(lane.engine), colour, top, height))
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
    """The most events a lane may have so that all stay below EVENTS; what short lanes leave goes to long ones."""
    left = EVENTS
    for k, length in enumerate(sorted(lengths)):
        equal = left // (len(lengths) - k)
        if length > equal:
            return equal
        left -= length
    return EVENTS


def _ranked(lane: Lane) -> Lane:
    """Its instructions numbered by the time they take, so that the longest has the full colour."""
    if not len(lane):
        return lane
    time = np.bincount(lane.op.codes, weights=lane.end - lane.start, minlength=len(lane.op.names))
    order = np.argsort(-time, kind="stable")
    place = np.empty(len(order), dtype=np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    return replace(lane, op=Labels(place[lane.op.codes], tuple(lane.op.names[k] for k in order)))


def _thinned(lane: Lane, most: int, near: tuple[float, float] | None) -> Lane:
    """At most about so many blocks: one for each of equal slices of time, as long as the lane was busy within it.

    What lies in the window ``near`` stays as it is.
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
    # A slice that the window cuts keeps to its own side.
    first = np.where((edges[:-1] > low) & (edges[:-1] < high), high, edges[:-1])[used]
    rest = _plain(lane.engine, np.column_stack([first, first + share[used]]), lane.core, "several instructions")
    return Lane.joined([rest, lane.part(kept)])


def first_view(profile: Profile) -> tuple[float, float]:
    """The whole run, or its longest part whose events are listed."""
    parts = activity.stretches(profile)
    start, end = parts[np.argmax(parts[:, 1] - parts[:, 0])]
    return float(start), float(end)


def close_up(profile: Profile, core: int, blocks: int = 26) -> tuple[float, float] | None:
    """A window past the middle that shows about so many events of the busiest engine; None if all fit anyway."""
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


def figure(drawn: Sequence[Row], window: tuple[float, float], whole: tuple[float, float], name: str) -> Markup:
    """One SVG; ``name`` is what it shows, for those who do not see it."""
    bottom = drawn[-1].top + drawn[-1].height if drawn else TOP
    parts = [_grid(window, bottom)]
    for row in drawn:
        parts.append(_row(row, window))
    busy = "; ".join(
        f"{row.label} {100 * _share(row.lane, window):.0f} % busy"
        for row in drawn
        if row.colour not in ("dma", "other")
    )
    return element(
        "svg",
        element("title", f"{name}. {busy}"),
        *parts,
        viewBox=f"0 0 {WIDTH} {bottom + AXIS:.0f}",
        class_="lanes",
        role="img",
        tabindex=0,
        data_start=repr(window[0]),
        data_end=repr(window[1]),
        data_from=repr(whole[0]),
        data_to=repr(whole[1]),
        data_bottom=bottom,
    )


def _share(lane: Lane, window: tuple[float, float]) -> float:
    return float(intervals.coverage(activity.busy(lane), np.asarray(window))[0]) / (window[1] - window[0])


def _grid(window: tuple[float, float], bottom: float) -> Markup:
    marks = []
    times = ticks(*window)
    step = times[1] - times[0] if len(times) > 1 else window[1] - window[0]
    for t in times:
        x = LEFT + (t - window[0]) / (window[1] - window[0]) * (WIDTH - LEFT - RIGHT)
        marks.append(element("line", x1=x, x2=x, y1=TOP, y2=bottom + 4, class_="grid"))
        marks.append(
            element("text", words.moment(t, step, window[1]), x=x, y=bottom + 20, class_="tick", text_anchor="middle")
        )
    return element("g", *marks, class_="axis")


def ticks(start: float, end: float, about: int = 8) -> list[float]:
    """Round numbers 1, 2, 5 x 10^k apart inside [start, end]."""
    step = 10.0 ** np.floor(np.log10((end - start) / about))
    step *= next(m for m in (1, 2, 5, 10) if (end - start) / (m * step) <= about)
    first = int(np.ceil(start / step - 1e-9))
    return [k * float(step) for k in range(first, int(np.floor(end / step + 1e-9)) + 1)]


def _row(row: Row, window: tuple[float, float]) -> Markup:
    label = element("text", row.label, x=LEFT - 8, y=row.top + row.height / 2 + 4, class_="lane", text_anchor="end")
    if row.height == SHORT:
        label = element("text", row.label, x=LEFT - 8, y=row.top + 8.5, class_="lane small", text_anchor="end")
    back = element("rect", x=LEFT, y=row.top, width=WIDTH - LEFT - RIGHT, height=row.height, class_="bed")
    lane = row.lane
    near = np.flatnonzero((lane.end > window[0]) & (lane.start - lane.stall_ns < window[1]))
    shape = _blocks(row, near, window) if len(near) <= BLOCKS else _shares(row, window)
    return element("g", label, back, element("g", shape, class_="body"), class_=f"row {row.colour}")


def _x(t: np.ndarray, window: tuple[float, float]) -> np.ndarray:
    inside = np.clip(t, *window)
    return LEFT + (inside - window[0]) / (window[1] - window[0]) * (WIDTH - LEFT - RIGHT)


def _blocks(row: Row, near: np.ndarray, window: tuple[float, float]) -> Markup:
    """One path for every shade: three shades tell instructions of a lane apart."""
    lane = row.lane
    left, right = _x(lane.start[near], window), _x(lane.end[near], window)
    wait = _x((lane.start - lane.stall_ns)[near], window)
    waits = lane.op.among(activity.WAITS)[near]
    shade = np.where(waits, 3, lane.op.codes[near] % 3)
    parts = []
    for k in range(4):
        pick = shade == k
        if pick.any():
            d = "".join(_box(a, max(b - a - 0.6, 0.5), row) for a, b in zip(left[pick], right[pick]))
            parts.append(element("path", d=d, class_=f"s{k}"))
    late = (left - wait) > 0.3
    if late.any() and row.height > SHORT:
        y = row.top + row.height - 4
        d = "".join(f"M{a:.2f} {y:.2f}h{b - a:.2f}v3h-{b - a:.2f}z" for a, b in zip(wait[late], left[late]))
        parts.append(element("path", d=d, class_="wait"))
    return join(parts)


def _box(x: float, width: float, row: Row) -> str:
    return f"M{x:.2f} {row.top:.2f}h{width:.2f}v{row.height:.2f}h-{width:.2f}z"


def _shares(row: Row, window: tuple[float, float]) -> Markup:
    edges = np.linspace(*window, BINS + 1)
    share = intervals.coverage(activity.busy(row.lane), edges) / np.diff(edges)
    x = _x(edges, window)
    bottom = row.top + row.height
    heights = bottom - np.clip(share, 0, 1) * row.height
    steps = "".join(f"V{y:.2f}H{b:.2f}" for y, b in zip(heights, x[1:]))
    return element("path", d=f"M{x[0]:.2f} {bottom:.2f}{steps}V{bottom:.2f}Z", class_="s0")


def data(drawn: Sequence[Row]) -> Markup:
    """The numbers behind the lanes for the script: starts and lengths in ns, differences so that they stay short."""
    lanes = []
    for row in drawn:
        lane = row.lane
        start = np.round(lane.start, 2)
        lanes.append(
            {
                "label": words.engine(lane.engine),
                "colour": row.colour,
                "top": row.top,
                "height": row.height,
                "ops": lane.op.names,
                "names": lane.name.names if len(lane.name.names) <= 5000 else [""],
                "causes": [words.CAUSES.get(cause, cause) for cause in lane.stall.names],
                "start": np.round(np.diff(start, prepend=0.0), 2).tolist(),
                "length": np.round(lane.end - lane.start, 2).tolist(),
                "op": lane.op.codes.tolist(),
                "name": lane.name.codes.tolist() if len(lane.name.names) <= 5000 else [0] * len(lane),
                "cause": lane.stall.codes.tolist(),
                "stall": np.round(lane.stall_ns, 2).tolist(),
                "waits": [k for k, op in enumerate(lane.op.names) if op in activity.WAITS],
            }
        )
    # "</script>" inside a name must not end the element.
    return Markup(json.dumps(lanes, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"))
