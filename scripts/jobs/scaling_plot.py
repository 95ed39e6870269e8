"""The plot of a scaling record: seconds by stage over the number of molecules, both logarithmic, as SVG."""

from __future__ import annotations

import math
from typing import Any

from trnqc.profiling.page.markup import Markup, element

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 460, 60, 220, 30, 45
COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#a463f2", "#9c6b4e")


def plot(record: dict[str, Any]) -> str:
    """Points and lines are measured; dashed lines have the expected slope and end at the last point."""
    rows = record["rows"]
    seconds = [s for row in rows for stage, s in row["seconds"].items() if stage in record["exponents"] and s > 0]
    x = Axis(rows[0]["n"], rows[-1]["n"], LEFT, WIDTH - RIGHT)
    y = Axis(
        10 ** math.floor(math.log10(min(seconds))), 10 ** math.ceil(math.log10(max(seconds))), HEIGHT - BOTTOM, TOP
    )
    shapes = [_grid(rows, x, y)]
    for n, (stage, slope) in enumerate(record["exponents"].items()):
        shapes += _stage(rows, stage, slope, record["expected"][stage], x, y, n)
    title = f"DF-MP2/{record['basis']} of (H2O)n by stage, {record['threads']} thread(s)"
    return str(
        element(
            "svg",
            element("title", title),
            element("text", title, x=LEFT, y=18, font_weight="bold"),
            *shapes,
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {WIDTH} {HEIGHT}",
            font_family="sans-serif",
            font_size=12,
            style="background:white",
        )
    )


class Axis:
    """Logarithmic: values low .. high to places begin .. end."""

    def __init__(self, low: float, high: float, begin: float, end: float) -> None:
        self.low, self.high, self.begin, self.end = low, high if high > low else 2 * low, begin, end

    def __call__(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.begin + share * (self.end - self.begin)


def _grid(rows: list[dict[str, Any]], x: Axis, y: Axis) -> Markup:
    shapes = []
    for power in range(round(math.log10(y.low)), round(math.log10(y.high)) + 1):
        at = y(10.0**power)
        shapes.append(element("line", x1=x.begin, x2=x.end, y1=at, y2=at, stroke="#ddd"))
        shapes.append(element("text", f"{10.0**power:g} s", x=x.begin - 6, y=at + 4, text_anchor="end"))
    for row in rows:
        shapes.append(element("text", row["n"], x=x(row["n"]), y=HEIGHT - BOTTOM + 18, text_anchor="middle"))
    shapes.append(element("text", "n molecules", x=(x.begin + x.end) / 2, y=HEIGHT - 8, text_anchor="middle"))
    return element("g", *shapes)


def _stage(
    rows: list[dict[str, Any]], stage: str, slope: float | None, expected: int, x: Axis, y: Axis, n: int
) -> list[Markup]:
    colour = COLOURS[n % len(COLOURS)]
    points = [(row["n"], max(row["seconds"][stage], y.low)) for row in rows]
    line = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in points)
    (last, end), first = points[-1], max(points[0][0], points[-1][0] * (y.low / points[-1][1]) ** (1 / expected))
    dashed = f"{x(first):.1f},{y(end * (first / last) ** expected):.1f} {x(last):.1f},{y(end):.1f}"
    power = "" if slope is None else f"n^{slope:.1f}, "
    legend = f"{stage}: {power}expected n^{expected}"
    at = TOP + 14 + 20 * n
    return [
        element("polyline", points=dashed, fill="none", stroke=colour, stroke_dasharray="3 4", opacity="0.7"),
        element("polyline", points=line, fill="none", stroke=colour, stroke_width=2),
        *(element("circle", cx=x(a), cy=y(b), r=3, fill=colour) for a, b in points),
        element(
            "line", x1=WIDTH - RIGHT + 12, x2=WIDTH - RIGHT + 28, y1=at - 4, y2=at - 4, stroke=colour, stroke_width=3
        ),
        element("text", legend, x=WIDTH - RIGHT + 34, y=at, font_size=11),
    ]
