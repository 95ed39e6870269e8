"""An HTML page with the energies and forces of a geometry optimisation, in one file without scripts."""

from __future__ import annotations

import math
from collections.abc import Sequence

from trnqc.interfaces.optimization import Optimization
from trnqc.profiling.page.lanes import ticks
from trnqc.profiling.page.markup import Markup, document, element, table

# Size and margins of each plot in pixels.
WIDTH, HEIGHT = 860, 260
LEFT, RIGHT, TOP, BOTTOM = 84, 20, 26, 44
# geomeTRIC's threshold of the largest force (convergence_gmax), Hartree/Bohr.
THRESHOLD = 4.5e-4


def page(optimization: Optimization, title: str) -> str:
    """Return the HTML text with plots of the energy and of the largest force, and a table of all steps."""
    steps = optimization.steps
    last = steps[-1].energy
    state = "converged" if optimization.converged else "NOT converged"
    above = [1e3 * (step.energy - last) for step in steps]
    forces = [math.log10(max(step.largest_force, 1e-12)) for step in steps]
    rows = [
        (n, f"{s.energy:.10f}", f"{s.largest_force:.2e}", f"{s.rms_force:.2e}", f"{s.seconds:.2f}")
        for n, s in enumerate(steps, start=1)
    ]
    body = [
        element("p", f"geometry optimisation, {len(steps)} steps, {state}", class_="kicker"),
        element("h1", title),
        _section("Energy above the last step / millihartree", plot(above, "energy")),
        _section("Largest force / Hartree/Bohr", plot(forces, "force", powers=True, limit=math.log10(THRESHOLD))),
        _section("Steps", table(HEAD, rows, "Energy in Hartree, forces in Hartree/Bohr, wall time in seconds")),
    ]
    return document(f"{title} – geometry optimisation", body, PLOT_STYLE)


# Exponents of the powers of ten on an axis.
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
# Headings of the table of steps.
HEAD = ("step", "energy", "largest force", "rms force", "time")
# The style of `plot`. On a narrow screen a drawing scrolls, so that its labels stay readable.
PLOT_STYLE = """
.course { fill: none; stroke: var(--accent); stroke-width: 2; } .dot { fill: var(--accent); }
.limit { stroke: var(--warn); stroke-dasharray: 5 4; }
.drawing { overflow-x: auto; } .drawing svg { min-width: 560px; display: block; }
"""


def plot(
    values: Sequence[float], name: str, *, powers: bool = False, limit: float | None = None, axis: str = "step"
) -> Markup:
    """Draw values by step as SVG.

    Parameters
    ----------
    values
        The values; with `powers`, their decimal logarithms.
    name
        What the values are, for screen readers.
    powers
        Whether the values are logarithms, so that the axis has powers of ten.
    limit
        Where geomeTRIC's threshold is drawn as a dashed line.
    axis
        What is counted: steps, or cycles.
    """
    low, high = min([*values, *([] if limit is None else [limit])]), max(values)
    low, high = (math.floor(low), math.ceil(high + 1e-9)) if powers else (min(low, 0.0), high or 1.0)
    high = high if high > low else low + 1.0

    def x(step: float) -> float:
        return LEFT + (step - 1) / max(len(values) - 1, 1) * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    rows = range(int(low), int(high) + 1) if powers else ticks(low, high, 5)
    grid = [_row(y(t), "10" + str(t).translate(SUPERSCRIPTS) if powers else f"{t:g}") for t in rows]
    numbers = sorted({1} | {round(t) for t in ticks(1, max(len(values), 2))} & set(range(1, len(values) + 1)))
    grid += [element("text", n, x=x(n), y=HEIGHT - BOTTOM + 18, class_="tick", text_anchor="middle") for n in numbers]
    threshold = [] if limit is None else _threshold(y(limit))
    points = [(x(n), y(value)) for n, value in enumerate(values, start=1)]
    course = element("polyline", points=" ".join(f"{a:.1f},{b:.1f}" for a, b in points), class_="course")
    dots = [element("circle", cx=a, cy=b, r=3.5, class_="dot") for a, b in points]
    label = element("text", axis, x=(LEFT + WIDTH) / 2, y=HEIGHT - 8, class_="label", text_anchor="middle")
    title = element("title", f"{name} of {len(values)} {axis}s")
    return drawing(title, *grid, *threshold, course, *dots, label)


def drawing(*parts: Markup) -> Markup:
    """Return parts as a drawing of WIDTH times HEIGHT, which scrolls on narrow screens."""
    return element("div", element("svg", *parts, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img"), class_="drawing")


def _row(y: float, words: str) -> Markup:
    line = element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="grid")
    return element("g", line, element("text", words, x=LEFT - 8, y=y + 4, class_="tick", text_anchor="end"))


def _threshold(y: float) -> list[Markup]:
    words = element("text", "geomeTRIC's threshold", x=WIDTH - RIGHT, y=y - 6, class_="tick", text_anchor="end")
    return [element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="limit"), words]


def _section(title: str, content: Markup) -> Markup:
    return element("section", element("h2", title), content)
