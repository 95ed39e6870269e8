"""Uniform B-splines of the length of an edge.

(C. de Boor, A Practical Guide to Splines, revised edition (2001), chapter IX.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trnqc.gen import Value
from trnqc.gen.build import Builder
from trnqc.gen.values import cast, lt, minimum, select

# Degree of the splines, whose derivatives up to the sixth are continuous. Each weight takes 8 multiply-adds.
DEGREE = 7


@dataclass(frozen=True)
class Knots:
    """Uniform intervals from 0 to r_max in Angstrom, used in place of a radial basis."""

    r_max: float
    intervals: int

    @property
    def rows(self) -> int:
        """Number of B-splines."""
        return self.intervals + DEGREE

    @property
    def size(self) -> int:
        """Number of B-splines that do not vanish on an interval."""
        return DEGREE + 1


def b_splines(t: Any, degree: int = DEGREE, keep: Callable[[Any], Any] = lambda value: value) -> list[Any]:
    """Return the B-splines of an interval at 0 <= t < 1; programs name all intermediate results by `keep`."""
    b: list[Any] = [1.0]
    for d in range(1, degree + 1):
        terms = [[(t + float(d - k)) * b[k - 1]] if k else [] for k in range(d + 1)]
        for k in range(d):
            terms[k].append((float(k + 1) - t) * b[k])
        b = [keep((each[0] if len(each) == 1 else each[0] + each[1]) * (1 / d)) for each in terms]
    return b


def slopes(t: Any, degree: int = DEGREE, keep: Callable[[Any], Any] = lambda value: value) -> list[Any]:
    """Return the derivatives by t of the B-splines of an interval. See `b_splines` for the arguments."""
    b = b_splines(t, degree - 1, keep)
    return [-b[0], *(b[k - 1] - b[k] for k in range(1, degree)), b[-1]]


def functions(b: Builder, knots: Knots, r: Value) -> tuple[list[Value], list[Value], Value]:
    """Return the B-splines of an edge, their derivatives by its length, and the number of its interval.

    From r_max on, B-splines and derivatives are zero.
    """
    scale = knots.intervals / knots.r_max
    s = b.let("s", minimum(r * scale, float(knots.intervals)))
    number = b.let("interval", minimum(cast(s, "i64"), knots.intervals - 1))
    t = b.let("t", s - cast(number, "f64"))
    inside = lt(r, knots.r_max)

    def keep(value: Value) -> Value:
        return b.let("spline", value)

    values = [select(inside, value, 0.0) for value in b_splines(t, keep=keep)]
    return values, [select(inside, value * scale, 0.0) for value in slopes(t, keep=keep)], number
