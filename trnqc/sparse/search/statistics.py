"""Iteration counts of loops over sparse operands: exact counts of each operand, combined as data bases estimate joins.

The number of distinct coordinates that one operand has in some of its modes is counted exactly. If several operands
restrict the same index, containment is assumed: the coordinates of the operand that has the fewest occur in all others,
and all are distributed evenly (Selinger et al., SIGMOD 1979). This fails for the number of distinct coordinates that a
product has in some of its indices, which is estimated from samples instead.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Protocol, TypeVar

import numpy as np

from trnqc.sparse.network.loops import LARGEST_LISTED
from trnqc.sparse.network.network import Indices, Network
from trnqc.sparse.search.samples import Samples

# Indices, the number of distinct coordinates over all of them, and the number of distinct values of each.
Pattern = tuple[Indices, float, tuple[float, ...]]
# Part of the elements of a row of a sparse result from which reading all of them is faster than keeping a list.
CROWDED = 0.1

T = TypeVar("T")


class Counted(Protocol):
    """The members of an operand that the statistics read; `SparseTensor` has these members."""

    @property
    def ones(self) -> bool:
        """Whether it is a 0/1 map."""

    def nonzeros(self, modes: Sequence[int]) -> int:
        """Distinct coordinates of its stored elements in these modes."""

    def to_coo(self) -> tuple[np.ndarray, np.ndarray]:
        """(coordinates int64 [ndim, n], values [n])."""


class Statistics:
    """Counts and estimates for one network, with the thread's CPU `seconds` spent so far on reading stored elements.

    A tensor is denoted by the operands that it is a product of.
    """

    def __init__(self, network: Network, operands: Sequence[Counted]) -> None:
        self.network = network
        self.extents = network.extents
        self.ones = tuple(operand.ones for operand in operands)
        self._operands = tuple(operands)
        self.count = cache(self._count)
        self.join = cache(self._join)
        self.seconds = 0.0
        self._samples = Samples(network, operands)

    def _count(self, operands: tuple[int, ...], indices: frozenset[str]) -> float:
        """Return the distinct coordinates that a product has in some of its indices; exact for one operand."""
        if len(operands) == 1:
            axes = self.network.inputs[operands[0]]
            modes = sorted(axes.index(index) for index in indices)
            return float(self._timed(lambda: self._operands[operands[0]].nonzeros(modes)))
        if not all(self.count((t,), frozenset(self.network.inputs[t])) for t in operands):
            return 0.0
        full = {t for t in operands if self.fill((t,), self.network.inputs[t]) == 1}
        if full:
            return self._without(full, operands, indices)
        labels = frozenset(index for t in operands for index in self.network.inputs[t])
        expected = self.join(frozenset(self._pattern(t, labels) for t in operands), labels)
        if indices == labels or not indices:
            return expected if indices else min(expected, 1.0)
        elements = {t: self.count((t,), frozenset(self.network.inputs[t])) for t in operands}
        sampled = self._timed(lambda: self._samples.count(elements, indices))
        if sampled is None:
            sampled = occupied(expected, self.join(frozenset(self._pattern(t, indices) for t in operands), indices))
        return sampled

    def _timed(self, look: Callable[[], T]) -> T:
        began = time.thread_time()
        value = look()
        self.seconds += time.thread_time() - began
        return value

    def _without(self, full: set[int], operands: tuple[int, ...], indices: frozenset[str]) -> float:
        """Return the count of a product in which some operands are full and restrict no index."""
        rest = tuple(t for t in operands if t not in full)
        bound = indices & {index for t in rest for index in self.network.inputs[t]}
        free = product(self.extents, indices - bound)
        return (self.count(rest, bound) if rest else 1.0) * free

    def fill(self, operands: tuple[int, ...], indices: Iterable[str]) -> float:
        """Return the part of all coordinates over some indices that a product of operands has."""
        labels = frozenset(indices)
        return self.count(operands, labels) / max(product(self.extents, labels), 1)

    def crowded(self, order: Indices, depth: int) -> bool:
        """Return whether many elements of the parts of a sparse result that are computed out of order occur.

        The first `depth` indices of the stored order are computed in order.
        """
        everything = tuple(range(len(self.network.inputs)))
        size = product(self.extents, order[depth:])
        if depth == len(order) or size > LARGEST_LISTED:
            return False
        return self.count(everything, frozenset(order)) >= CROWDED * size * self.count(
            everything, frozenset(order[:depth])
        )

    def _pattern(self, operand: int, indices: frozenset[str]) -> Pattern:
        """Return the counts of an operand's coordinates, for the given indices that the operand has."""
        labels = tuple(index for index in self.network.inputs[operand] if index in indices)
        each = tuple(self.count((operand,), frozenset(index)) for index in labels)
        return labels, self.count((operand,), frozenset(labels)), each

    def _join(self, patterns: frozenset[Pattern], indices: frozenset[str]) -> float:
        """Estimate the number of distinct coordinates over `indices` that all patterns have in common."""
        number = 1.0
        width: dict[str, list[float]] = {index: [] for index in indices}
        for labels, size, each in sorted(patterns):
            number *= size
            for index, distinct in zip(labels, each):
                width[index].append(distinct)
        for index, several in width.items():
            number *= self.extents[index] if not several else 1.0
            for distinct in sorted(several)[1:]:
                number /= max(distinct, 1.0)
        return number


def occupied(balls: float, bins: float) -> float:
    """Return the expected number of bins that are not empty after balls were thrown at random."""
    return bins * -math.expm1(-balls / bins) if bins > 0 else 0.0


def product(extents: Mapping[str, int], indices: Iterable[str]) -> int:
    """Return the product of the extents of some indices."""
    return math.prod(extents[index] for index in indices)
