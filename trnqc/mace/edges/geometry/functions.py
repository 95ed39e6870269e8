"""Sine, cosine and hyperbolic tangent as values of float64 programs, from the operations that all lanes have."""

from __future__ import annotations

import math

from trnqc.gen import Value, const
from trnqc.gen.values import exp, fma

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
