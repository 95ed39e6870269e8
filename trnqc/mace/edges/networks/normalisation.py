"""Layer normalisation of a row of vectors, and of its derivative (Ba, Kiros and Hinton, arXiv:1607.06450).

y = gain u + offset,  u = (x - mean) / s,  s^2 = variance + epsilon
y' = gain / s (x' - mean(x') - u mean(u x'))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trnqc.gen import Array, Value, const
from trnqc.gen import statements as st
from trnqc.gen.build import Builder
from trnqc.gen.values import sqrt


@dataclass(frozen=True)
class PaddedRow:
    """A row in memory, whose lanes beyond its width are zero; `below` is the first vector of its derivative, if any."""

    b: Builder
    array: Array
    first: Value
    below: Value | None
    vectors: int
    width: int
    lanes: int

    def write(self, epsilon: float, gain: st.View, offset: st.View) -> None:
        """Replace the row by the normalised one, with vectors of gains and offsets."""
        b, array = self.b, self.array
        mean = self._mean(lambda v: array[self.first + v])
        with b.loop("v", self.vectors) as v:
            b.store(array[self.first + v], array[self.first + v] - mean)
        # The lanes beyond the width are -mean now.
        unused = self.vectors * self.lanes - self.width
        squares = self._mean(lambda v: array[self.first + v] * array[self.first + v])
        variance = squares - mean * mean * (unused / self.width)
        inverse = b.let("inverse", 1.0 / sqrt(variance + epsilon))
        if self.below is not None:
            self._write_derivative(self.below, inverse, gain)
        with b.loop("v", self.vectors) as v:
            at = self.first + v
            b.store(array[at], _element(gain, v) * (array[at] * inverse) + _element(offset, v))

    def _write_derivative(self, below: Value, inverse: Value, gain: st.View) -> None:
        """Replace the derivative; the row contains x - mean."""
        b, array = self.b, self.array
        mean = self._mean(lambda v: array[below + v])
        along = self._mean(lambda v: array[self.first + v] * array[below + v])
        factor = b.let("factor", along * inverse * inverse)
        with b.loop("v", self.vectors) as v:
            centred = array[below + v] - mean - array[self.first + v] * factor
            b.store(array[below + v], _element(gain, v) * (centred * inverse))

    def _mean(self, term: Callable[[Value], Value]) -> Value:
        """The sum of a term over vectors and lanes, divided by the width."""
        b, dtype = self.b, self.array.dtype
        # A local array would hold one sum for each lane.
        total = b.array("total", dtype, (1,), "shared")
        b.store(total[0], const(0, dtype))
        with b.loop("v", self.vectors) as v:
            b.accumulate(total[0], term(v))
        return b.let("mean", total[0] * (1 / self.width))


def _element(view: st.View, v: Value) -> Value:
    """A vector of a part of an array."""
    return view.array[view.begin + v]
