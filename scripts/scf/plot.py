"""The figure of a record of `bench_scf.py`: stacked bars of the seconds of each part, PySCF's above ours, as SVG."""

from __future__ import annotations

from typing import Any

from trnqc.profiling.page.markup import Markup, element

WIDTH, LEFT, RIGHT, TOP, BAR, GAP = 980, 345, 105, 62, 15, 12
# Width of the contestants' names, and of an entry of the legend.
NAME, ENTRY = 48, 107
# Names of stages, where the figure has other ones than the record.
STAGES = {"scf": "energy"}
COLOURS = {
    "XC": "#4269d0",
    "J and K": "#efb118",
    "fitted integrals": "#9c6b4e",
    "grid": "#6cc5b0",
    "diagonalisation": "#ff725c",
    "DIIS": "#a463f2",
    "MP2": "#3ca951",
    "solvent": "#ff8ab7",
    "rest": "#9498a0",
}


def plot(record: dict[str, Any]) -> str:
    """Draw wall seconds of every row; bars of one job and one stage share a scale."""
    groups = [
        (row, stage, bars)
        for part in record["parts"].values()
        for row in part["rows"]
        for stage, bars in row["seconds"].items()
    ]
    height = TOP + len(groups) * (2 * BAR + GAP) + 10
    title = "Where the time goes: wall seconds by part. Each pair of bars has a scale of its own."
    return str(
        element(
            "svg",
            element("title", title),
            element("text", title, x=10, y=18, font_weight="bold"),
            _legend(),
            *(_group(*group, TOP + n * (2 * BAR + GAP)) for n, group in enumerate(groups)),
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {WIDTH} {height}",
            font_family="sans-serif",
            font_size=11,
            style="background:white",
        )
    )


def _legend() -> Markup:
    shapes = []
    for n, (part, colour) in enumerate(COLOURS.items()):
        x = 10 + ENTRY * n
        shapes.append(element("rect", x=x, y=30, width=12, height=12, fill=colour))
        shapes.append(element("text", part, x=x + 17, y=40))
    return element("g", *shapes)


def _group(row: dict[str, Any], stage: str, bars: dict[str, Any], y: float) -> Markup:
    longest = max(parts["all"]["wall_s"] for parts in bars.values())
    scale = (WIDTH - LEFT - RIGHT) / max(longest, 1e-9)
    threads = f"{row['threads']} thread{'s' * (row['threads'] > 1)}"
    label = f"{row['case']}, {STAGES.get(stage, stage)}, {threads}"
    shapes = [element("text", label, x=LEFT - NAME - 6, y=y + BAR + 4, text_anchor="end")]
    for n, (who, parts) in enumerate(bars.items()):
        top = y + n * BAR
        shapes.append(element("text", who, x=LEFT - 6, y=top + BAR - 4, text_anchor="end", fill="#555"))
        shapes.append(_bar(parts, top, scale, longest))
    return element("g", *shapes)


def _bar(parts: dict[str, dict[str, float]], y: float, scale: float, longest: float) -> Markup:
    shapes, x, whole = [], float(LEFT), parts["all"]["wall_s"]
    for part, colour in COLOURS.items():
        width = scale * parts.get(part, {"wall_s": 0.0})["wall_s"]
        shapes.append(element("rect", x=x, y=y, width=width, height=BAR - 2, fill=colour))
        x += width
    faster = f" ({longest / whole:.1f} times as fast)" if 0 < whole < longest else ""
    shapes.append(element("text", f"{whole:.1f} s{faster}", x=x + 5, y=y + BAR - 4))
    return element("g", *shapes)
