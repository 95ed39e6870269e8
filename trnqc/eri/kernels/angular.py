"""Angular parts of Gaussians: Cartesian powers and real solid harmonics, ordered and normalised as in libcint."""

from __future__ import annotations

from functools import cache
from math import comb, factorial, pi, sqrt

import numpy as np

Powers = tuple[int, int, int]


def ncart(l: int) -> int:
    """Return the number of Cartesian functions of a shell."""
    return (l + 1) * (l + 2) // 2


@cache
def cartesians(l: int) -> tuple[Powers, ...]:
    """Return the powers of x, y, z in order: x^l, x^(l-1) y, x^(l-1) z, x^(l-2) y^2, ..., z^l."""
    return tuple((x, y, l - x - y) for x in range(l, -1, -1) for y in range(l - x, -1, -1))


def raised(powers: Powers, axis: int, by: int = 1) -> Powers:
    """Return the powers, with the power of one axis changed by `by`."""
    x, y, z = (p + by * (n == axis) for n, p in enumerate(powers))
    return x, y, z


@cache
def spherical(l: int) -> np.ndarray:
    """Return the coefficients [(l+1)(l+2)/2, 2 l + 1] of real solid harmonics, m = -l, ..., l, in the order of
    `cartesians`; read-only.

    Helgaker, Jorgensen and Olsen, Molecular Electronic-Structure Theory (2000), eqs. 6.4.47 to 6.4.50, give S_lm =
    sqrt(4 pi / (2 l + 1)) r^l Y_lm. The functions here are r^l Y_lm, normalised on the unit sphere. For s and p the
    matrix is the identity, in the order x, y, z: libcint keeps their angular factors in the contraction coefficients.

    >>> spherical(2)[:, 2].round(4)  # z^2 - (x^2 + y^2) / 2, times sqrt(5 / (4 pi))
    array([-0.3154,  0.    ,  0.    , -0.3154,  0.    ,  0.6308])
    """
    if l <= 1:
        matrix = np.eye(2 * l + 1)
    else:
        place = {powers: n for n, powers in enumerate(cartesians(l))}
        matrix = np.zeros((ncart(l), 2 * l + 1))
        for m in range(-l, l + 1):
            for powers, value in _harmonic(l, m):
                matrix[place[powers], m + l] += value
    matrix.flags.writeable = False
    return matrix


def _harmonic(l: int, m: int) -> list[tuple[Powers, float]]:
    """Return the terms of r^l Y_lm in Cartesian powers, by Helgaker's eq. 6.4.47."""
    size = abs(m)
    norm = sqrt((2 * l + 1) / (4 * pi) * 2 * factorial(l + size) * factorial(l - size) / (2 if m == 0 else 1))
    norm /= 2**size * factorial(l)
    terms = []
    for t in range((l - size) // 2 + 1):
        for u in range(t + 1):
            # The book's v is an integer for m >= 0 and a half-integer for m < 0.
            for twice_v in range(m < 0, size + 1, 2):
                sign = (-1) ** (t + twice_v // 2)
                count = comb(l, t) * comb(l - t, size + t) * comb(t, u) * comb(size, twice_v)
                y = 2 * u + twice_v
                terms.append(((2 * t + size - y, y, l - 2 * t - size), sign * norm * count / 4**t))
    return terms
