"""Spectra as drawings for a page: infrared absorption of vibrations, and absorption of excited states."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from trnqc.interfaces.mean_field.result import Excitation, Vibrations
from trnqc.interfaces.optimization_page import HEIGHT, WIDTH, drawing
from trnqc.profiling.page.markup import Markup, element

# Left margin of the drawings in pixels.
MARGIN = 46
# Standard deviation of the lines, eV and 1/cm.
BROADENING, WAVENUMBER_BROADENING = 0.15, 15.0
# What is shown beyond the outermost lines, and the distance of the ticks, in the same units.
BEYOND, WAVENUMBERS_BEYOND = 1.0, 200.0
TICK, WAVENUMBER_TICK = 1.0, 500.0


def absorption(states: Sequence[Excitation]) -> list[Markup]:
    """The spectrum of excited states, or nothing if they have no oscillator strengths."""
    if not states or states[0].oscillator_strength is None:
        return []
    energies = np.array([state.energy for state in states])
    strengths = np.array([state.oscillator_strength or 0.0 for state in states])
    return [_spectrum(energies, strengths, "absorption spectrum", "eV", BROADENING, BEYOND, TICK)]


def infrared(vibrations: Vibrations) -> list[Markup]:
    """The infrared spectrum of vibrations, or nothing if all of their frequencies are imaginary."""
    real = np.array(vibrations.wavenumbers) > 0
    if not real.any():
        return []
    wavenumbers, intensities = np.array(vibrations.wavenumbers)[real], np.array(vibrations.intensities)[real]
    width, beyond, tick = WAVENUMBER_BROADENING, WAVENUMBERS_BEYOND, WAVENUMBER_TICK
    return [_spectrum(wavenumbers, intensities, "infrared spectrum", "1/cm", width, beyond, tick)]


def _spectrum(
    positions: np.ndarray, heights: np.ndarray, title: str, unit: str, width: float, beyond: float, tick: float
) -> Markup:
    """Sticks at the positions, and the sum of Gaussian lines of these heights."""
    axis = np.linspace(max(positions.min() - beyond, 0.0), positions.max() + beyond, 600)
    curve = (heights[:, None] * np.exp(-0.5 * ((axis - positions[:, None]) / width) ** 2)).sum(axis=0)
    top = max(float(curve.max()), float(heights.max()), 1e-6)

    def x(position: float) -> float:
        return float(MARGIN + (position - axis[0]) / (axis[-1] - axis[0]) * (WIDTH - MARGIN - 20))

    def y(value: float) -> float:
        return HEIGHT - 40 - value / top * (HEIGHT - 60)

    points = " ".join(f"{x(p):.1f},{y(v):.1f}" for p, v in zip(axis, curve))
    sticks = [element("line", x1=x(p), x2=x(p), y1=y(0), y2=y(h), class_="stick") for p, h in zip(positions, heights)]
    ticks = [
        element("text", f"{n * tick:g}", x=x(n * tick), y=HEIGHT - 20, class_="tick", text_anchor="middle")
        for n in range(math.ceil(axis[0] / tick), math.floor(axis[-1] / tick) + 1)
    ]
    label = element("text", unit, x=WIDTH / 2, y=HEIGHT - 4, class_="label", text_anchor="middle")
    line = element("line", x1=MARGIN, x2=WIDTH - 20, y1=y(0), y2=y(0), class_="grid")
    curve_line = element("polyline", points=points, class_="curve")
    return drawing(element("title", title), line, *sticks, curve_line, *ticks, label)
