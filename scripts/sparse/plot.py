"""The figure of the part `density` of `bench_sparse`: CPU time over the density of the integrals, as SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from trnqc.profiling.page.markup import Markup, element

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 430, 70, 190, 40, 50
COLOURS = {
    "trnqc": "#4269d0",
    "fused, all sparse": "#6cc5b0",
    "TACO, paper's loops": "#ff725c",
    "dense matrices": "#9498a0",
    "scipy": "#efb118",
    "MKL": "#a463f2",
}


def plot(rows: Sequence[Mapping[str, Any]]) -> str:
    """Draw one line for each contestant of COLOURS that ran."""
    names = [name for name in COLOURS if all(name in row["milliseconds"] for row in rows)]
    densities = [row["density"] for row in rows]
    times = [row["milliseconds"][name] for row in rows for name in names]
    across, up = _scale(densities, LEFT, WIDTH - RIGHT), _scale(times, HEIGHT - BOTTOM, TOP)
    title = "Milliseconds (CPU, one thread) over the density of the integrals: Eq. (1), 25 atoms"
    shapes = [element("title", title), element("text", title, x=10, y=20, font_weight="bold")]
    shapes += [_label(f"{100 * x:.2g} %", across(x), HEIGHT - BOTTOM + 20) for x in densities]
    shapes += [_label(f"{y:g}", LEFT - 25, up(y) + 4) for y in _ticks(times)]
    for n, name in enumerate(names):
        path = " ".join(f"{across(row['density']):.1f},{up(row['milliseconds'][name]):.1f}" for row in rows)
        colour, y = COLOURS[name], TOP + 20 * n
        shapes.append(element("polyline", points=path, fill="none", stroke=colour, stroke_width=2))
        shapes.append(element("rect", x=WIDTH - RIGHT + 20, y=y, width=12, height=12, fill=colour))
        shapes.append(element("text", name, x=WIDTH - RIGHT + 38, y=y + 10))
    return str(
        element(
            "svg",
            *shapes,
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {WIDTH} {HEIGHT}",
            font_family="sans-serif",
            font_size=11,
            style="background:white",
        )
    )


def _scale(values: Sequence[float], first: float, last: float) -> Any:
    """Return the function from a value to its place on a logarithmic axis from `first` to `last`."""
    low, high = math.log(min(values)), math.log(max(values))
    return lambda value: first + (last - first) * (math.log(value) - low) / max(high - low, 1e-9)


def _ticks(values: Sequence[float]) -> list[float]:
    low, high = math.ceil(math.log10(min(values))), math.floor(math.log10(max(values)))
    return [10.0**n for n in range(low, high + 1)]


def _label(text: str, x: float, y: float) -> Markup:
    return element("text", text, x=x, y=y, text_anchor="middle", fill="#555")
