"""The roofline: attainable flop/s over arithmetic intensity, both logarithmic, with every profile as a point."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from trnqc.profiling import words
from trnqc.profiling.page.markup import Markup, element
from trnqc.profiling.utilisation import Roofline

# Size and margins of the plot in pixels.
WIDTH, HEIGHT = 560, 360
LEFT, RIGHT, TOP, BOTTOM = 66, 26, 30, 46


def figure(points: Sequence[tuple[str, Roofline]]) -> Markup:
    """Return the roofline plot of one target as SVG, with the letter and position of each profile."""
    machine = points[0][1].machine
    xs = [p.intensity for _, p in points] + [machine.peak_fp32 / machine.hbm_share, machine.peak / machine.hbm_share]
    ys = [p.achieved for _, p in points] + [machine.peak]
    x0, x1 = _decades(min(xs) / 2, max(xs) * 2)
    y0, y1 = _decades(min(ys) / 2, machine.peak * 1.6)

    def x(value: float) -> float:
        return LEFT + math.log10(value / x0) / math.log10(x1 / x0) * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - math.log10(value / y0) / math.log10(y1 / y0) * (HEIGHT - TOP - BOTTOM)

    def roof(peak: float, bandwidth: float, kind: str) -> Markup:
        ridge = peak / bandwidth
        start = max(x0, y0 / bandwidth)
        path = f"M{x(start):.1f} {y(bandwidth * start):.1f}L{x(ridge):.1f} {y(peak):.1f}H{x(x1):.1f}"
        return element("path", d=path, class_=f"roof {kind}")

    def slope(bandwidth: float, kind: str) -> Markup:
        start, end = max(x0, y0 / bandwidth), machine.peak / bandwidth
        path = f"M{x(start):.1f} {y(bandwidth * start):.1f}L{x(end):.1f} {y(machine.peak):.1f}"
        return element("path", d=path, class_=f"roof {kind}")

    def right(peak: float, label: str) -> Markup:
        return element("text", label, x=WIDTH - RIGHT - 4, y=y(peak) - 6, class_="note", text_anchor="end")

    grid = [_vertical(x(t), t) for t in _powers(x0, x1)] + [_horizontal(y(t), t) for t in _powers(y0, y1)]
    marks = [_point(letter, p, x, y) for letter, p in points]
    words_of_points = "; ".join(
        f"{letter or 'the kernel'} at {p.intensity:.4g} flop per byte and {words.amount(p.achieved, 'flop/s')}, "
        f"{p.reached_percent:.1f} % of what is attainable, {p.bound} bound"
        for letter, p in points
    )
    return element(
        "svg",
        element("title", f"Roofline of one core of {machine.words}. {words_of_points}"),
        *grid,
        roof(machine.peak, machine.hbm_share, "main"),
        roof(machine.peak_fp32, machine.hbm_share, "fp32"),
        slope(machine.dma, "dma"),
        right(machine.peak, f"bf16 peak {words.amount(machine.peak, 'flop/s')}"),
        right(machine.peak_fp32, f"fp32 peak {words.amount(machine.peak_fp32, 'flop/s')}"),
        *marks,
        element(
            "text",
            "arithmetic intensity, flop per byte of HBM traffic",
            x=(LEFT + WIDTH) / 2,
            y=HEIGHT - 8,
            class_="label",
            text_anchor="middle",
        ),
        element("text", "flop/s", x=LEFT - 6, y=TOP - 14, class_="label", text_anchor="end"),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        class_="roofline",
        role="img",
    )


def _decades(low: float, high: float) -> tuple[float, float]:
    return 10.0 ** math.floor(math.log10(low)), 10.0 ** math.ceil(math.log10(high) - 1e-9)


def _powers(low: float, high: float) -> list[float]:
    return [10.0**k for k in range(round(math.log10(low)), round(math.log10(high)) + 1)]


def _vertical(x: float, t: float) -> Markup:
    line = element("line", x1=x, x2=x, y1=TOP, y2=HEIGHT - BOTTOM, class_="grid")
    tick = element("text", f"{t:g}", x=x, y=HEIGHT - BOTTOM + 16, class_="tick", text_anchor="middle")
    return element("g", line, tick)


def _horizontal(y: float, t: float) -> Markup:
    line = element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="grid")
    tick = element("text", words.amount(t, ""), x=LEFT - 6, y=y + 4, class_="tick", text_anchor="end")
    return element("g", line, tick)


def _point(letter: str, p: Roofline, x: Callable[[float], float], y: Callable[[float], float]) -> Markup:
    at, reached, possible = x(p.intensity), y(p.achieved), y(p.attainable)
    return element(
        "g",
        element("line", x1=at, x2=at, y1=reached, y2=possible, class_="lift"),
        element("circle", cx=at, cy=possible, r=3, class_="ceiling"),
        element("circle", cx=at, cy=reached, r=6.5, class_="point"),
        element("text", letter, x=at + 11, y=reached + 5, class_="letter"),
        class_=f"mark {letter.lower() or 'a'}",
    )
