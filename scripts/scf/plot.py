"""Figures of a record of `bench_scf.py`: stacked bars of the seconds of each part, PySCF's above ours, as SVG.

plot         all rows
short_plot   some rows with words for names, whose letters can be read on a phone
"""

from __future__ import annotations

from collections.abc import Iterator
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


# The rows of the short figure: case, stage, and words. Two threads.
SHORT = {
    ("caffeine/def2-svp/b3lyp/fitted", "scf"): "B3LYP/def2-SVP",
    ("caffeine/def2-svp/b3lyp/fitted", "gradient"): "its gradient",
    ("caffeine/def2-tzvp/r2scan/fitted", "scf"): "r2SCAN/def2-TZVP",
    ("caffeine/def2-svp/b3lyp/direct", "scf"): "B3LYP/def2-SVP, direct",
    ("caffeine/def2-svp/b3lyp/c-pcm", "scf"): "B3LYP/def2-SVP in water, C-PCM",
    ("caffeine/def2-svp/b3lyp/tda-singlet", "excitations"): "ten excited states, TDA B3LYP/def2-SVP",
    ("caffeine/cc-pvtz/mp2/fitted", "scf"): "Hartree-Fock and MP2/cc-pVTZ",
}
SHORT_WIDTH, SHORT_LEFT, SHORT_RIGHT, SHORT_BAR, LINE = 480, 64, 70, 18, 22
# Entries of a line of the short figure's legend.
COLUMNS = 3


def plot(record: dict[str, Any]) -> str:
    """Draw wall seconds of every row; bars of one job and one stage share a scale."""
    groups = list(_groups(record))
    height = TOP + len(groups) * (2 * BAR + GAP) + 10
    title = "Where the time goes: wall seconds by part. Each pair of bars has a scale of its own."
    return _picture(
        title,
        (WIDTH, height),
        11,
        element("text", title, x=10, y=18, font_weight="bold"),
        _legend(len(COLOURS), ENTRY, 30),
        *(_group(*group, TOP + n * (2 * BAR + GAP)) for n, group in enumerate(groups)),
    )


def short_plot(record: dict[str, Any]) -> str:
    """Draw wall seconds of the rows of SHORT that the record has."""
    rows = {(row["case"], stage): bars for row, stage, bars in _groups(record) if row["threads"] == 2}
    title = "Caffeine with PySCF and with trnqc, two threads, seconds"
    y = 34
    shapes = [
        element("text", title, x=8, y=20, font_weight="bold"),
        _legend(COLUMNS, SHORT_WIDTH / COLUMNS, y),
    ]
    y += LINE * -(-len(COLOURS) // COLUMNS) + LINE
    for key, words in SHORT.items():
        if key in rows:
            shapes += [
                element("text", words, x=8, y=y),
                _bars(rows[key], y + 6, SHORT_LEFT, SHORT_WIDTH - SHORT_LEFT - SHORT_RIGHT, SHORT_BAR),
            ]
            y += LINE + 2 * SHORT_BAR + 14
    return _picture(title, (SHORT_WIDTH, y - LINE), 15, *shapes)


def _groups(record: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str, dict[str, Any]]]:
    """Yield each row with each of its stages and the contestants' seconds of it."""
    for part in record["parts"].values():
        for row in part["rows"]:
            for stage, bars in row["seconds"].items():
                yield row, stage, bars


def _picture(title: str, size: tuple[float, float], letters: int, *shapes: Markup) -> str:
    return str(
        element(
            "svg",
            element("title", title),
            *shapes,
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {size[0]} {size[1]}",
            width=size[0],
            font_family="sans-serif",
            font_size=letters,
            style="background:white",
        )
    )


def _legend(columns: int, entry: float, y: float) -> Markup:
    shapes = []
    for n, (part, colour) in enumerate(COLOURS.items()):
        x, top = 10 + entry * (n % columns), y + LINE * (n // columns)
        shapes.append(element("rect", x=x, y=top, width=12, height=12, fill=colour))
        shapes.append(element("text", part, x=x + 17, y=top + 10.5))
    return element("g", *shapes)


def _group(row: dict[str, Any], stage: str, bars: dict[str, Any], y: float) -> Markup:
    threads = f"{row['threads']} thread{'s' * (row['threads'] > 1)}"
    label = f"{row['case']}, {STAGES.get(stage, stage)}, {threads}"
    name = element("text", label, x=LEFT - NAME - 6, y=y + BAR + 4, text_anchor="end")
    return element("g", name, _bars(bars, y, LEFT, WIDTH - LEFT - RIGHT, BAR))


def _bars(bars: dict[str, Any], y: float, left: float, width: float, height: float) -> Markup:
    """Draw bars of one scale below each other, the longest as wide as `width`."""
    longest = max(parts["all"]["wall_s"] for parts in bars.values())
    scale = width / max(longest, 1e-9)
    shapes = []
    for n, (who, parts) in enumerate(bars.items()):
        top = y + n * height
        shapes.append(element("text", who, x=left - 6, y=top + height - 4, text_anchor="end", fill="#555"))
        shapes.append(_bar(parts, left, top, height, scale, longest))
    return element("g", *shapes)


def _bar(parts: dict[str, dict[str, float]], x: float, y: float, height: float, scale: float, longest: float) -> Markup:
    shapes, whole = [], parts["all"]["wall_s"]
    for part, colour in COLOURS.items():
        width = scale * parts.get(part, {"wall_s": 0.0})["wall_s"]
        shapes.append(element("rect", x=x, y=y, width=width, height=height - 2, fill=colour))
        x += width
    faster = f" ({longest / whole:.1f} times as fast)" if 0 < whole < longest else ""
    shapes.append(element("text", f"{whole:.1f} s{faster}", x=x + 5, y=y + height - 4))
    return element("g", *shapes)
