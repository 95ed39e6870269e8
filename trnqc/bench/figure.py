"""Times of two contestants as tables and pages show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Figure:
    """A piece of work with the times of trnqc and of another program.

    Attributes
    ----------
    what
        What is computed.
    rival
        The other program.
    theirs, ours
        Seconds of the other program and of trnqc.
    ratio
        How many times trnqc is faster; below 1 it is slower.
    spread
        The smallest and the largest ratio of the rounds; None where they are not known.
    """

    what: str
    rival: str
    theirs: float
    ours: float
    ratio: float
    spread: tuple[float, float] | None = None


@dataclass(frozen=True)
class Section:
    """Figures below one heading.

    Attributes
    ----------
    heading
        The subject.
    figures
        The figures in their order.
    facts
        What a reader needs to judge and repeat them, such as command, machine, threads and date.
    """

    heading: str
    figures: Sequence[Figure]
    facts: Mapping[str, str] = field(default_factory=dict)


def duration(seconds: float) -> str:
    """Three digits of a duration: 12.3 s, 45.6 ms, 789 µs."""
    scale, unit = next((one for one in ((1.0, "s"), (1e-3, "ms")) if seconds >= one[0]), (1e-6, "µs"))
    value = seconds / scale
    return f"{value:.{max(0, 3 - len(str(int(value))))}f} {unit}"


def faster(ratio: float) -> str:
    """How many times trnqc is faster or slower."""
    return f"{ratio:.2f} times faster" if ratio >= 1 else f"{1 / ratio:.2f} times slower"


def spread(figure: Figure) -> str:
    """The smallest and the largest ratio: 1.90 to 2.15; empty where they are not known."""
    return "" if figure.spread is None else "{:.2f} to {:.2f}".format(*figure.spread)
