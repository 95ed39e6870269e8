"""The figure of time over size of a record of `bench_scf.py`: seconds of water clusters over functions, as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from scripts.jobs.scaling_plot import Axis
from trnqc.profiling.page.markup import Markup, element

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 480, 440, 58, 24, 92, 46
# The lines: contestant, part of the energy, and colour.
LINES = (
    ("PySCF", "all", "#9498a0"),
    ("trnqc", "all", "#4269d0"),
    ("trnqc", "XC", "#6cc5b0"),
    ("trnqc", "J and K", "#efb118"),
    ("trnqc", "fitted integrals", "#9c6b4e"),
)
Points = list[tuple[float, float]]


def size_plot(record: dict[str, Any]) -> str:
    """Draw wall seconds over the number of functions, both logarithmic; "" where there are fewer than two sizes.

    Exponents are those between the two largest clusters.
    """
    rows = sorted(record["parts"].get("scaling", {}).get("rows", ()), key=lambda row: row["nao"])
    if len(rows) < 2:
        return ""
    lines = {
        (who, part): [(row["nao"], row["seconds"]["scf"][who][part]["wall_s"]) for row in rows]
        for who, part, _ in LINES
    }
    seconds = [s for points in lines.values() for _, s in points]
    x = Axis(rows[0]["nao"], rows[-1]["nao"], LEFT, WIDTH - RIGHT)
    low, high = math.floor(math.log10(min(seconds))), math.ceil(math.log10(max(seconds)))
    y = Axis(10**low, 10**high, HEIGHT - BOTTOM, TOP)
    title = f"B3LYP/def2-SVP of water clusters, {rows[-1]['threads']} threads, seconds"
    return str(
        element(
            "svg",
            element("title", title),
            element("text", title, x=8, y=20, font_weight="bold"),
            *_scales(rows, x, y, range(low, high + 1)),
            *(shape for n, line in enumerate(LINES) for shape in _line(n, line, lines[line[:2]], x, y)),
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {WIDTH} {HEIGHT}",
            width=WIDTH,
            font_family="sans-serif",
            font_size=14,
            style="background:white",
        )
    )


def _scales(rows: list[dict[str, Any]], x: Axis, y: Axis, powers: range) -> Iterator[Markup]:
    for power in powers:
        at = y(10.0**power)
        yield element("line", x1=x.begin, x2=x.end, y1=at, y2=at, stroke="#ddd")
        yield element("text", f"{10.0**power:g}", x=x.begin - 6, y=at + 5, text_anchor="end")
    for row in rows:
        yield element("text", row["nao"], x=x(row["nao"]), y=HEIGHT - BOTTOM + 18, text_anchor="middle")
    yield element("text", "basis functions", x=(x.begin + x.end) / 2, y=HEIGHT - 8, text_anchor="middle")


def _line(n: int, line: tuple[str, str, str], points: Points, x: Axis, y: Axis) -> Iterator[Markup]:
    who, part, colour = line
    shown = [(x(size), y(max(seconds, y.low))) for size, seconds in points]
    yield element("polyline", points=" ".join(f"{a:.1f},{b:.1f}" for a, b in shown), fill="none", stroke=colour)
    yield from (element("circle", cx=a, cy=b, r=4, fill=colour) for a, b in shown)
    (size, before), (largest, last) = points[-2:]
    exponent = math.log(last / before) / math.log(largest / size)
    column, row = n % 2, n // 2
    at = 8 + column * (WIDTH // 2), 44 + 18 * row
    yield element("circle", cx=at[0] + 5, cy=at[1] - 5, r=5, fill=colour)
    yield element("text", f"{who}, {part}: n^{exponent:.1f}", x=at[0] + 16, y=at[1])
