"""Angular factors of shells as polynomials in x, y and z, and their derivatives.

A polynomial is a dictionary from powers of x, y and z to coefficients.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from math import comb, prod

from trnqc.eri.kernels.angular import Powers, cartesians, raised, spherical

Polynomial = Mapping[Powers, float]


@cache
def components(order: int) -> tuple[Powers, ...]:
    """Return all derivatives up to an order, in PySCF's order: value, x, y, z, xx, xy, xz, yy, yz, zz, xxx, ...

    >>> components(1)
    ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1))
    """
    return tuple(powers for n in range(order + 1) for powers in cartesians(n))


@cache
def angular_factors(l: int, cartesian: bool) -> tuple[Polynomial, ...]:
    """Return the angular factors of a shell's functions: Cartesian powers, or real solid harmonics."""
    powers = cartesians(l)
    if cartesian or l < 2:
        return tuple({p: 1.0} for p in powers)
    return tuple({p: float(c) for p, c in zip(powers, column) if c} for column in spherical(l).T)


def derivative(polynomial: Polynomial, by: Powers) -> Polynomial:
    """Return the derivative, `by` times with respect to x, y and z."""
    terms = {}
    for powers, coefficient in polynomial.items():
        if all(p >= n for p, n in zip(powers, by)):
            factor = prod(_falling(p, n) for p, n in zip(powers, by))
            x, y, z = (p - n for p, n in zip(powers, by))
            terms[x, y, z] = coefficient * factor
    return terms


def _falling(p: int, n: int) -> int:
    """Return p (p - 1) ... (p - n + 1)."""
    return prod(range(p - n + 1, p + 1))


def leibniz(by: Powers) -> tuple[tuple[int, Powers, Powers], ...]:
    """Return the terms (factor, a, b) of the derivative of a product: its sum of factor (d^a f) (d^b g)."""
    ranges = [range(n + 1) for n in by]
    terms = []
    for x in ranges[0]:
        for y in ranges[1]:
            for z in ranges[2]:
                factor = comb(by[0], x) * comb(by[1], y) * comb(by[2], z)
                terms.append((factor, (by[0] - x, by[1] - y, by[2] - z), (x, y, z)))
    return tuple(terms)


def radial_derivative(by: Powers) -> tuple[tuple[int, Powers, int], ...]:
    """Return the derivative of a function of r^2 as terms (factor, powers, k).

    A term stands for factor x^i y^j z^k G_k, where G_k is 2^k times the k-th derivative with respect to r^2. The
    derivative of G_k with respect to x is then x G_(k+1).
    """
    terms: dict[tuple[Powers, int], int] = {((0, 0, 0), 0): 1}
    for axis, times in enumerate(by):
        for _ in range(times):
            terms = _differentiated(terms, axis)
    return tuple((factor, powers, k) for (powers, k), factor in sorted(terms.items(), key=lambda term: term[0]))


def _differentiated(terms: dict[tuple[Powers, int], int], axis: int) -> dict[tuple[Powers, int], int]:
    new: dict[tuple[Powers, int], int] = {}
    for (powers, k), factor in terms.items():
        up = raised(powers, axis, 1), k + 1
        new[up] = new.get(up, 0) + factor
        if powers[axis]:
            down = raised(powers, axis, -1), k
            new[down] = new.get(down, 0) + factor * powers[axis]
    return new
