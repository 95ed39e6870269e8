"""Cartesian functions to real solid harmonics, as values of a program."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from trnqc.eri.kernels.angular import ncart, spherical
from trnqc.gen import Value, const
from trnqc.gen.values import fma


def harmonics(l1: int, l2: int, values: Sequence[Value]) -> list[Value]:
    """Transform both indices of a Cartesian pair [l1, l2] to solid harmonics; common factors are multiplied in last."""
    rows, columns = ncart(l1), ncart(l2)
    half = [_sums(l2, values[n * columns : (n + 1) * columns]) for n in range(rows)]
    whole = [_sums(l1, column) for column in zip(*half)]
    harmonic_pairs = []
    for m, (factor1, _) in enumerate(_factored(l1)):
        for n, (factor2, _) in enumerate(_factored(l2)):
            factor = factor1 * factor2
            harmonic_pairs.append(whole[n][m] if factor == 1 else whole[n][m] * factor)
    return harmonic_pairs


@cache
def _factored(l: int) -> tuple[tuple[float, tuple[tuple[float, int], ...]], ...]:
    """Return each harmonic as its most frequent coefficient and a list of (ratio to that, Cartesian function)."""
    harmonics = []
    for column in spherical(l).T:
        terms = [(float(c), n) for n, c in enumerate(column) if c]
        same = [sum(abs(abs(c / d) - 1) < 1e-12 for c, _ in terms) for d, _ in terms]
        factor = abs(terms[same.index(max(same))][0])
        ratios = [(round(c / factor) if abs(abs(c / factor) - 1) < 1e-12 else c / factor, n) for c, n in terms]
        harmonics.append((factor, tuple(sorted(ratios, key=lambda term: (abs(term[0]) != 1, -term[0], term[1])))))
    return tuple(harmonics)


def _sums(l: int, values: Sequence[Value]) -> list[Value]:
    """Transform one index to solid harmonics without their common factors."""
    sums = []
    for _, ((ratio, first), *rest) in _factored(l):
        total = values[first] if ratio == 1 else -values[first]
        for ratio, n in rest:
            if abs(ratio) == 1:
                total = total + values[n] if ratio == 1 else total - values[n]
            else:
                total = fma(const(ratio), values[n], total)
        sums.append(total)
    return sums
