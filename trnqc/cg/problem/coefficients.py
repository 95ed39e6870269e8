"""Real Clebsch-Gordan coefficients C[i, j, k] in e3nn's basis and phases, from exact arithmetic.

The complex coefficients are Racah's sum over factorials (Varshalovich, Moskalev and Khersonskii 1988, eq. 8.2.1(3)),
each the square root of a rational; the real basis combines at most two equal ones, so what vanishes is exactly zero
and everything else has one rounding of the quotient and one of the root.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from math import copysign, factorial, sqrt

import numpy as np

from trnqc.errors import IrrepsError


@lru_cache(maxsize=4096)
def clebsch_gordan(l1: int, l2: int, l3: int) -> np.ndarray:
    """C f64[2 l1 + 1, 2 l2 + 1, 2 l3 + 1], read-only: e3nn's ``o3.wigner_3j(l1, l2, l3)``, of norm 1.

    Components run over m = -l .. l; for l = 1 these are y, z, x. Raises IrrepsError unless
    |l1 - l2| <= l3 <= l1 + l2.
    """
    if min(l1, l2, l3) < 0 or not abs(l1 - l2) <= l3 <= l1 + l2:
        raise IrrepsError(
            f"degrees l1 = {l1} and l2 = {l2} couple to l3 from {abs(l1 - l2)} to {l1 + l2}; found l3 = {l3}"
        )
    c = np.zeros((2 * l1 + 1, 2 * l2 + 1, 2 * l3 + 1))
    for i in range(-l1, l1 + 1):
        for j in range(-l2, l2 + 1):
            # The real m and -m mix the complex ones, so only these |m3| can appear.
            for size in sorted({abs(i) + abs(j), abs(abs(i) - abs(j))}):
                for k in sorted({-size, size}) if size <= l3 else ():
                    c[l1 + i, l2 + j, l3 + k] = _real(l1, i, l2, j, l3, k)
    c.flags.writeable = False
    return c


def sparse(l1: int, l2: int, l3: int) -> tuple[tuple[int, int, int, float], ...]:
    """(i, j, k, C[i, j, k]) of what is not zero, in the order of the array."""
    c = clebsch_gordan(l1, l2, l3)
    return tuple((int(i), int(j), int(k), float(c[i, j, k])) for i, j, k in np.argwhere(c))


def _real(l1: int, i: int, l2: int, j: int, l3: int, k: int) -> float:
    """One real coefficient: sum of U[m1, i] U[m2, j] conj(U[m3, k]) <l1 m1 l2 m2|l3 m3> over the complex m."""
    terms: defaultdict[Fraction, int] = defaultdict(int)
    for m1, e1 in _mix(l1, i):
        for m2, e2 in _mix(l2, j):
            for m3, e3 in _mix(l3, k):
                if m1 + m2 != m3:
                    continue
                sign, square = _complex(l1, m1, l2, m2, l3, m3)
                # Every coefficient is real in the end: odd powers of i cancel in pairs and are left out.
                phase = (e1 + e2 - e3) % 4
                if phase % 2 == 0:
                    terms[square] += sign * (1 - phase)
    # U holds 1/sqrt(2) for each component other than m = 0; e3nn divides by sqrt(2 l3 + 1) to reach norm 1.
    scale = Fraction(1, 2 ** sum(m != 0 for m in (i, j, k)) * (2 * l3 + 1))
    return sum(copysign(sqrt(square * scale * n * n), n) for square, n in terms.items() if n)


def _mix(l: int, m: int) -> Iterator[tuple[int, int]]:
    """(complex m', e) with U[m', m] = i^e, up to 1/sqrt(2): e3nn's real harmonics times (-i)^l."""
    shift = -l
    if m == 0:
        yield 0, shift
    elif m > 0:
        yield -m, shift
        yield m, shift + 2 * m
    else:
        yield m, shift - 1
        yield -m, shift + 1 + 2 * m


@lru_cache(maxsize=65536)
def _complex(l1: int, m1: int, l2: int, m2: int, l3: int, m3: int) -> tuple[int, Fraction]:
    """(sign, square) of <l1 m1 l2 m2|l3 m3> with the phases of Condon and Shortley."""
    f = factorial
    total = Fraction(0)
    for s in range(max(0, l2 - l3 - m1, l1 - l3 + m2), min(l1 + l2 - l3, l1 - m1, l2 + m2) + 1):
        below = f(s) * f(l1 + l2 - l3 - s) * f(l1 - m1 - s) * f(l2 + m2 - s) * f(l3 - l2 + m1 + s) * f(l3 - l1 - m2 + s)
        total += Fraction((-1) ** s, below)
    triangle = Fraction(f(l1 + l2 - l3) * f(l1 - l2 + l3) * f(l2 + l3 - l1), f(l1 + l2 + l3 + 1))
    factors = f(l1 + m1) * f(l1 - m1) * f(l2 + m2) * f(l2 - m2) * f(l3 + m3) * f(l3 - m3)
    sign = (total > 0) - (total < 0)
    return sign, (2 * l3 + 1) * triangle * factors * total * total
