"""Radial functions of an edge and their derivatives with respect to its length, as float64 values.

r -> transform u(r) -> functions b_k(u), times the cutoff function f(r) unless that multiplies the weights
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from trnqc.errors import UnsupportedError
from trnqc.gen import Value, const
from trnqc.gen.build import Builder
from trnqc.gen.values import exp, fma, log, lt, select
from trnqc.mace.model import RadialBasis, Transform


@dataclass(frozen=True)
class Slope:
    """A value and its derivative with respect to the length of the edge."""

    value: Value
    slope: Value

    def times(self, other: Slope) -> Slope:
        return Slope(self.value * other.value, fma(self.slope, other.value, self.value * other.slope))


def functions(b: Builder, basis: RadialBasis, r: Value, radii: Value | None) -> tuple[list[Slope], Slope]:
    """Return the radial functions and the cutoff function of an edge of length r in Angstrom.

    A transform needs `radii`, the sum of the covalent radii of the two atoms in Angstrom.
    """
    u = Slope(r, const(1.0))
    if basis.transform is not None:
        assert radii is not None
        u = _let(b, _transform(b, basis.transform, r, radii))
    cutoff = _let(b, _cutoff(b, basis, r))
    values = [_let(b, Slope(f.value, f.slope * u.slope)) for f in FORMS[basis.kind](b, basis, u.value)]
    if not basis.cutoff_on_weights:
        values = [_let(b, f.times(cutoff)) for f in values]
    return values, cutoff


def _let(b: Builder, f: Slope) -> Slope:
    return Slope(b.let("f", f.value), b.let("df", f.slope))


def _power(x: Value, n: int) -> Value:
    """x^n by repeated squaring."""
    if n == 0:
        return const(1.0)
    half = _power(x, n // 2)
    return half * half * x if n % 2 else half * half


def _cutoff(b: Builder, basis: RadialBasis, r: Value) -> Slope:
    """The polynomial cutoff function of `RadialBasis` and its derivative, zero from r_max on."""
    p = basis.cutoff_order
    x = b.let("x", r * (1 / basis.r_max))
    # f = 1 - x^p (c0 - c1 x + c2 x^2), and f' = -p c0 x^(p - 1) (1 - x)^2 / r_max.
    c0, c1, c2 = (p + 1) * (p + 2) / 2, p * (p + 2), p * (p + 1) / 2
    value = 1.0 - _power(x, p) * (c0 - x * (c1 - c2 * x))
    slope = (-p * c0 / basis.r_max) * _power(x, p - 1) * ((1.0 - x) * (1.0 - x))
    inside = lt(r, basis.r_max)
    return Slope(select(inside, value, 0.0), select(inside, slope, 0.0))


def _bessel(b: Builder, basis: RadialBasis, u: Value) -> list[Slope]:
    """scale sin(q u) / u."""
    inverse = b.let("inverse", 1.0 / u)
    results = []
    for q in map(float, basis.parameters):
        sine, cosine = sine_cosine(q * u)
        value = b.let("bessel", basis.scale * sine * inverse)
        results.append(Slope(value, ((basis.scale * q) * cosine - value) * inverse))
    return results


def _gaussian(b: Builder, basis: RadialBasis, u: Value) -> list[Slope]:
    """exp(scale (u - centre)^2)."""
    results = []
    for centre in map(float, basis.parameters):
        distance = b.let("distance", u - centre)
        value = b.let("gaussian", exp(basis.scale * (distance * distance)))
        results.append(Slope(value, (2 * basis.scale) * distance * value))
    return results


def _chebyshev(b: Builder, basis: RadialBasis, u: Value) -> list[Slope]:
    """T_n(u), with T_(n+1) = 2 u T_n - T_(n-1)."""
    degrees = [int(n) for n in basis.parameters]
    polynomials = [Slope(const(1.0), const(0.0)), Slope(u, const(1.0))]
    for _ in range(max(degrees) - 1):
        last, before = polynomials[-1], polynomials[-2]
        value = 2.0 * u * last.value - before.value
        polynomials.append(_let(b, Slope(value, 2.0 * (last.value + u * last.slope) - before.slope)))
    return [polynomials[n] for n in degrees]


FORMS = {"bessel": _bessel, "gaussian": _gaussian, "chebyshev": _chebyshev}


def _transform(b: Builder, transform: Transform, r: Value, radii: Value) -> Slope:
    if transform.kind == "agnesi":
        return _agnesi(b, transform.parameters, r, radii)
    if transform.kind == "soft":
        return _soft(b, transform.parameters, r, radii)
    raise UnsupportedError(f"a distance transform is agnesi or soft; found {transform.kind!r}")


def _agnesi(b: Builder, parameters: tuple[float, ...], r: Value, radii: Value) -> Slope:
    """u = 1 / (1 + g) with g = a x^q / (1 + x^(q - p)) and x = r / r0, where r0 is the mean of the radii."""
    a, q, p = parameters
    logarithm = b.let("logarithm", log(2.0 * r / radii))
    high, low = b.let("high", exp(q * logarithm)), b.let("low", exp((q - p) * logarithm))
    inverse = b.let("inverse", 1.0 / (1.0 + low))
    g = b.let("g", a * high * inverse)
    u = b.let("u", 1.0 / (1.0 + g))
    slope = g * (q - (q - p) * low * inverse) / r
    return Slope(u, -(u * u) * slope)


def _soft(b: Builder, parameters: tuple[float, ...], r: Value, r0: Value) -> Slope:
    """u = p0 + (r - p0) s with s = (1 + tanh(steepness (r - middle))) / 2, p0 = 3/4 r0, p1 = 4/3 r0."""
    (alpha,) = parameters
    low, high = 0.75 * r0, (4.0 / 3.0) * r0
    steepness = b.let("steepness", alpha / (high - low))
    t = b.let("t", tanh(steepness * (r - 0.5 * (low + high))))
    s = 0.5 * (1.0 + t)
    return Slope(low + (r - low) * s, s + (r - low) * (0.5 * steepness * (1.0 - t * t)))


# pi as a sum. The first part has 32 bits, so that its product with an integer below 2^21 is exact.
PI_HIGH, PI_LOW = 3.1415926534682512, 1.2154201013012384e-10
# 1.5 * 2^52: a float64 to which it is added is rounded to an integer.
SHIFT = 6755399441055744.0
# Highest power in the Taylor series for |x| <= pi/2; the next terms are below 2e-18.
HIGHEST = 22


def sine_cosine(x: Value) -> tuple[Value, Value]:
    """The sine and cosine of a float64 value, 0 <= x < 10^6, with an absolute error of a few 1e-16."""
    n = fma(x, 1 / math.pi, const(SHIFT)) - SHIFT
    r = (x - n * PI_HIGH) - n * PI_LOW
    odd = n - 2.0 * (fma(n, 0.5, const(SHIFT)) - SHIFT)
    sign = 1.0 - 2.0 * (odd * odd)
    square = r * r
    return sign * (r * _series(square, 1)), sign * _series(square, 0)


def _series(square: Value, lowest: int) -> Value:
    """The sum of (-1)^k square^k / (2 k + lowest)!."""
    total: Value = const(0.0)
    for k in range((HIGHEST - lowest) // 2, -1, -1):
        total = fma(total, square, const((-1) ** k / math.factorial(2 * k + lowest)))
    return total


def tanh(x: Value) -> Value:
    """The hyperbolic tangent. Its absolute error is about 1e-16."""
    return 1.0 - 2.0 / (exp(2.0 * x) + 1.0)
