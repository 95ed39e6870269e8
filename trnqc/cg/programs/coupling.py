"""The couplings A[i, k] = pw sum_j C[i, j, k] y[j] of a path with one channel of y, and sums over them.

    P(x, y)_k = sum_i A[i, k] x[i]        gx_i = sum_k A[i, k] h[k]        gy_j = pw sum_ik C[i, j, k] G[i, k]

Here h is the gradient of the product, and G[i, k] is the sum of x[i] h[k] over channels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from trnqc.cg.problem.coefficients import sparse
from trnqc.gen import Value, const
from trnqc.gen.build import Builder, dot

# Degrees l1, l2 and l3 of x, y and z.
Degrees = tuple[int, int, int]
# Components i of x and k of z.
Pair = tuple[int, int]
# Components of one channel, by number.
Components = Mapping[int, Value] | Sequence[Value]


@dataclass(frozen=True)
class CouplingMatrix:
    """The nonzero A[i, k] as (value, sign); elements that are equal up to their sign have the same value."""

    elements: Mapping[Pair, tuple[Value, int]]
    dtype: str

    @property
    def distinct(self) -> int:
        """Number of different values."""
        return len({value for value, _ in self.elements.values()})

    def product(self, x: Components, k: int, start: Value | None = None) -> Value:
        """Return start + sum_i A[i, k] x[i]."""
        return dot([(a, x[i]) for (i, q), a in self._signed() if q == k], start, dtype=self.dtype)

    def transposed(self, h: Components, i: int, start: Value | None = None) -> Value:
        """Return start + sum_k A[i, k] h[k]."""
        return dot([(a, h[k]) for (q, k), a in self._signed() if q == i], start, dtype=self.dtype)

    def scaled(self, b: Builder, factor: Value) -> CouplingMatrix:
        """Return the coupling times a factor, with one multiplication for each different value."""
        values = dict.fromkeys(value for value, _ in self.elements.values())
        scaled = {value: b.let("wa", factor * value) for value in values}
        return CouplingMatrix(
            {pair: (scaled[value], sign) for pair, (value, sign) in self.elements.items()}, self.dtype
        )

    def _signed(self) -> Iterable[tuple[Pair, Value]]:
        return ((pair, value if sign > 0 else -value) for pair, (value, sign) in self.elements.items())


def sum_of_products(pairs: Iterable[tuple[CouplingMatrix, Components]], k: int, start: Value | None = None) -> Value:
    """Return start + sum of P(x, y)_k over pairs of a coupling and a channel of x."""
    for coupling, x in pairs:
        start = coupling.product(x, k, start)
    assert start is not None
    return start


def by_pair(degrees: Degrees) -> dict[Pair, list[tuple[int, float]]]:
    """Return the nonzero coefficients as {(i, k): [(j, C[i, j, k])]}."""
    pairs: dict[Pair, list[tuple[int, float]]] = {}
    for i, j, k, c in sparse(*degrees):
        pairs.setdefault((i, k), []).append((j, c))
    return pairs


def coupled(degrees: Degrees, y: Mapping[int, Value]) -> dict[Pair, Value]:
    """Return sum_j C[i, j, k] y[j] for every pair (i, k) that some component of y couples."""
    return {
        pair: dot([(const(c, y[j].dtype), y[j]) for j, c in terms]) for pair, terms in sorted(by_pair(degrees).items())
    }


def contracted(
    terms: Iterable[tuple[int, int, int, float]], grams: Mapping[Pair, Value], start: Mapping[int, Value] | None = None
) -> dict[int, Value]:
    """Return start[j] + sum_ik C[i, j, k] G[i, k] for every j in `start` or coupled to a pair in `grams`.

    `terms` are (i, j, k, C[i, j, k]); terms of elements that `grams` lacks are left out.
    """
    sums: dict[int, Value] = dict(start or {})
    for i, j, k, c in terms:
        if (i, k) in grams:
            sums[j] = dot([(const(c, grams[i, k].dtype), grams[i, k])], sums.get(j))
    return dict(sorted(sums.items()))
