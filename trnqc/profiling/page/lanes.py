"""The engine lanes: the events of each engine over time, as inline SVG that a script can redraw for another window.

In a wide window a lane shows the share of time in which the engine was busy. In a narrow window every instruction is a
block that is preceded by its stall. ``lanes.js`` draws the same pictures from the same numbers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from trnqc.profiling import activity, intervals, words
from trnqc.profiling.page.markup import Markup, element, join
from trnqc.profiling.page.rows import SHORT, TOP, LaneRow
from trnqc.profiling.profile import Lane

# Width of the picture, margins for labels on the left and for the last tick on the right, and height of the time axis,
# in pixels.
WIDTH, LEFT, RIGHT, AXIS = 1120, 92, 28, 30
# Number of time bins of a lane that is drawn as shares.
BINS = 640
# Largest number of blocks in a lane; lanes with more events are drawn as shares.
BLOCKS = 900


def figure(drawn: Sequence[LaneRow], window: tuple[float, float], whole: tuple[float, float], name: str) -> Markup:
    """Return the rows, from top to bottom, as one SVG image.

    `window` and `whole` are start and end in ns of the shown part and of the run; screen readers read `name` aloud.
    """
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
    """Return about so many round times within [start, end], at a distance of 1, 2 or 5 times a power of ten."""
    step = 10.0 ** np.floor(np.log10((end - start) / about))
    step *= next(m for m in (1, 2, 5, 10) if (end - start) / (m * step) <= about)
    first = int(np.ceil(start / step - 1e-9))
    return [k * float(step) for k in range(first, int(np.floor(end / step + 1e-9)) + 1)]


def _row(row: LaneRow, window: tuple[float, float]) -> Markup:
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


def _blocks(row: LaneRow, near: np.ndarray, window: tuple[float, float]) -> Markup:
    """Return the events of a row as blocks, one SVG path for each shade; the shade distinguishes instructions."""
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


def _box(x: float, width: float, row: LaneRow) -> str:
    return f"M{x:.2f} {row.top:.2f}h{width:.2f}v{row.height:.2f}h-{width:.2f}z"


def _shares(row: LaneRow, window: tuple[float, float]) -> Markup:
    edges = np.linspace(*window, BINS + 1)
    share = intervals.coverage(activity.busy(row.lane), edges) / np.diff(edges)
    x = _x(edges, window)
    bottom = row.top + row.height
    heights = bottom - np.clip(share, 0, 1) * row.height
    steps = "".join(f"V{y:.2f}H{b:.2f}" for y, b in zip(heights, x[1:]))
    return element("path", d=f"M{x[0]:.2f} {bottom:.2f}{steps}V{bottom:.2f}Z", class_="s0")


def data(drawn: Sequence[LaneRow]) -> Markup:
    """Return the events of the rows as JSON for the script.

    Times are in ns. Starts are stored as differences, which keeps the numbers short.
    """
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
