"""Tables that commands for molecules share, for a terminal."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from rich.table import Table
from rich.text import Text

from trnqc.interfaces.optimization import Optimization
from trnqc.interfaces.optimization_page import HEAD
from trnqc.mp2.reference.molecule import Geometry

# Shorter parts are left out of the table of times.
LEAST_SECONDS = 5e-4


def decimals(value: float, digits: int) -> str:
    """A number with so many digits after the point. Zero has no sign."""
    return f"{round(value, digits) + 0.0:.{digits}f}"


def facts(title: str, rows: dict[str, str]) -> Table:
    """A table of names and values without lines."""
    table = Table(title=title, title_justify="left", show_header=False, box=None, pad_edge=False, title_style="bold")
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(name, Text(value))
    return table


def times_table(seconds: Mapping[str, float]) -> Table:
    """Table of wall seconds by part, with their sum. Parts that took less than a millisecond are not shown."""
    table = Table(title="Wall time / s", title_justify="left", title_style="bold", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for part, value in seconds.items():
        if value >= LEAST_SECONDS:
            table.add_row(part, f"{value:.3f}")
    table.add_row("all", f"{sum(seconds.values()):.3f}", style="bold")
    return table


def titled(title: str, *headings: str) -> Table:
    """An empty table with a title and headings; all columns but the first are aligned to the right."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for n, heading in enumerate(headings):
        table.add_column(heading, justify="right" if n else "left", no_wrap=True)
    return table


def gradient_table(geometry: Geometry, gradient: np.ndarray) -> Table:
    """Table of a gradient [natm, 3] in Hartree/Bohr."""
    table = titled("Gradient / Hartree/Bohr", "atom", "x", "y", "z")
    for symbol, row in zip(geometry.symbols, gradient.tolist()):
        table.add_row(symbol, *(decimals(value, 8) for value in row))
    return table


def steps_table(optimum: Optimization) -> Table:
    """Table of the steps of a geometry optimisation."""
    table = titled("Steps, Hartree and Bohr", *HEAD)
    for n, s in enumerate(optimum.steps, start=1):
        table.add_row(str(n), f"{s.energy:.10f}", f"{s.largest_force:.2e}", f"{s.rms_force:.2e}", f"{s.seconds:.1f} s")
    return table


def positions_table(optimum: Optimization) -> Table:
    """Table of the positions of the atoms at the end of a geometry optimisation."""
    name = "Optimised geometry" if optimum.converged else f"Geometry of step {optimum.best}, not converged,"
    table = titled(f"{name} / Angstrom", "atom", "x", "y", "z")
    for symbol, row in zip(optimum.geometry.symbols, optimum.geometry.coordinates):
        table.add_row(symbol, *(decimals(value, 6) for value in row))
    return table
