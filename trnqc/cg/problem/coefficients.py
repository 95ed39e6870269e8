"""Real Clebsch-Gordan coefficients C[i, j, k] in e3nn's basis and phases, from exact arithmetic.

The complex coefficients follow from Racah's sum over factorials (Varshalovich, Moskalev and Khersonskii 1988,
eq. 8.2.1(3)). Each is the square root of a rational number. A real coefficient combines at most two equal ones, so
coefficients that vanish are exactly zero, and the others are rounded only in the quotient and in the square root.
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
    """Return the real coupling coefficients of degrees l1, l2 and l3, as e3nn's ``o3.wigner_3j(l1, l2, l3)``.

    Returns
    -------
    numpy.ndarray
        C, float64 [2 l1 + 1, 2 l2 + 1, 2 l3 + 1], read-only, of Frobenius norm 1. Components run over m = -l .. l; for
        l = 1 these are y, z, x.

    Raises
    ------
    IrrepsError
        Unless |l1 - l2| <= l3 <= l1 + l2.
    """
    if min(l1, l2, l3) < 0 or not abs(l1 - l2) <= l3 <= l1 + l2:
        raise IrrepsError(
            f"degrees l1 = {l1} and l2 = {l2} couple to l3 from {abs(l1 - l2)} to {l1 + l2}; found l3 = {l3}"
        )
    c = np.zeros((2 * l1 + 1, 2 * l2 + 1, 2 * l3 + 1))
    for i in range(-l1, l1 + 1):
        for j in range(-l2, l2 + 1):
            # Real components mix the complex m and -m, so only these |m3| can be non-zero.
            for size in sorted({abs(i) + abs(j), abs(abs(i) - abs(j))}):
                for k in sorted({-size, size}) if size <= l3 else ():
                    c[l1 + i, l2 + j, l3 + k] = _real(l1, i, l2, j, l3, k)
    c.flags.writeable = False
    return c


def sparse(l1: int, l2: int, l3: int) -> tuple[tuple[int, int, int, float], ...]:
    """Return (i, j, k, C[i, j, k]) of the non-zero coefficients, in the order of the array."""
    c = clebsch_gordan(l1, l2, l3)
    return tuple((int(i), int(j), int(k), float(c[i, j, k])) for i, j, k in np.argwhere(c))


def _real(l1: int, i: int, l2: int, j: int, l3: int, k: int) -> float:
    """Sum U[m1, i] U[m2, j] conj(U[m3, k]) <l1 m1 l2 m2|l3 m3> over the complex m."""
    terms: defaultdict[Fraction, int] = defaultdict(int)
    for m1, e1 in _mix(l1, i):
        for m2, e2 in _mix(l2, j):
            for m3, e3 in _mix(l3, k):
                if m1 + m2 != m3:
                    continue
                sign, square = _complex(l1, m1, l2, m2, l3, m3)
                # All coefficients are real: terms with odd powers of i cancel in pairs and are skipped.
                phase = (e1 + e2 - e3) % 4
                if phase % 2 == 0:
                    terms[square] += sign * (1 - phase)
    # U contains 1/sqrt(2) for each component with m != 0. Division by sqrt(2 l3 + 1) gives norm 1, as in e3nn.
    scale = Fraction(1, 2 ** sum(m != 0 for m in (i, j, k)) * (2 * l3 + 1))
    return sum(copysign(sqrt(square * scale * n * n), n) for square, n in terms.items() if n)


def _mix(l: int, m: int) -> Iterator[tuple[int, int]]:
    """Yield (m', e) with U[m', m] = i^e up to 1/sqrt(2), for e3nn's real harmonics times (-i)^l."""
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
    """Return sign and square of <l1 m1 l2 m2|l3 m3> with the Condon-Shortley phase."""
    f = factorial
    total = Fraction(0)
    for s in range(max(0, l2 - l3 - m1, l1 - l3 + m2), min(l1 + l2 - l3, l1 - m1, l2 + m2) + 1):
        below = f(s) * f(l1 + l2 - l3 - s) * f(l1 - m1 - s) * f(l2 + m2 - s) * f(l3 - l2 + m1 + s) * f(l3 - l1 - m2 + s)
        total += Fraction((-1) ** s, below)
    triangle = Fraction(f(l1 + l2 - l3) * f(l1 - l2 + l3) * f(l2 + l3 - l1), f(l1 + l2 + l3 + 1))
    factors = f(l1 + m1) * f(l1 - m1) * f(l2 + m2) * f(l2 - m2) * f(l3 + m3) * f(l3 - m3)
    sign = (total > 0) - (total < 0)
    return sign, (2 * l3 + 1) * triangle * factors * total * total
