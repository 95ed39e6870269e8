"""Sums of floating-point arrays that come out the same in whatever order and grouping their terms arrive.

Terms are rounded once, to multiples of one quantum that is settled before the first of them; integers then add up
exactly. (Demmel, Nguyen, Parallel Reproducible Summation, IEEE Trans. Comput. 64, 2060 (2015), with one bin.)
"""

from __future__ import annotations

import threading

import numpy as np

BITS = 62


class ExactSum:
    """The sum of terms [n, m], given the bound [n] of what it and all its partial sums can be.

    Every term is off by half a quantum, bound / 2^61, at most; the sum wraps around only beyond the bound.
    """

    def __init__(self, shape: tuple[int, int], bound: np.ndarray) -> None:
        _, exponent = np.frexp(np.where(bound > 0, bound, 1.0))
        self.scale = np.ldexp(1.0, BITS - exponent)[:, None]
        self.total = np.zeros(shape, np.int64)
        self._lock = threading.Lock()

    def value(self) -> np.ndarray:
        """f64."""
        return self.total / self.scale


class Terms:
    """One thread's way to add to a sum: make a term in `array`, which is zero, then `flush` it."""

    def __init__(self, total: ExactSum) -> None:
        self.total, self.array = total, np.zeros(total.total.shape)
        self._whole = np.empty(total.total.shape, np.int64)

    def flush(self) -> None:
        """Add the term; the array is zero again."""
        self.array *= self.total.scale
        np.copyto(self._whole, np.rint(self.array, out=self.array), casting="unsafe")
        self.array.fill(0.0)
        with self.total._lock:
            self.total.total += self._whole
