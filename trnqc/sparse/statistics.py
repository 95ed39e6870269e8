"""How often loops over sparse operands turn: exact counts of each operand, joined as if they were independent.

The number of distinct coordinates that an operand has in some of its modes is counted. Where several operands restrict
the same index, containment is assumed, as data bases do: of an index's coordinates, those of the operand that has the
fewest occur in all others, spread evenly (Selinger et al., SIGMOD 1979).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Protocol

from trnqc.sparse.network import Indices, Network

# Indices, how many coordinates there are in them, and how many in each of them alone.
Pattern = tuple[Indices, float, tuple[float, ...]]


class Counted(Protocol):
    """What is asked of an operand: SparseTensor has it."""

    @property
    def ones(self) -> bool:
        """Whether it is a 0/1 map."""

    def nonzeros(self, modes: Sequence[int]) -> int:
        """Distinct coordinates of its stored elements in these modes."""


class Statistics:
    """Counts and estimates of one network over its operands. A tensor is named by the operands that it is made of."""

    def __init__(self, network: Network, operands: Sequence[Counted]) -> None:
        self.network = network
        self.extents = network.extents
        self.ones = tuple(operand.ones for operand in operands)
        self._operands = tuple(operands)
        self.count = cache(self._count)
        self.join = cache(self._join)

    def _count(self, operands: tuple[int, ...], indices: frozenset[str]) -> float:
        """Distinct coordinates that the product of operands has in some of its indices; of one operand, exactly."""
        if len(operands) == 1:
            axes = self.network.inputs[operands[0]]
            return float(self._operands[operands[0]].nonzeros(sorted(axes.index(index) for index in indices)))
        labels = frozenset(index for t in operands for index in self.network.inputs[t])
        found = self.join(frozenset(self._pattern(t, labels) for t in operands), labels)
        if indices != labels:
            found = occupied(found, self.join(frozenset(self._pattern(t, indices) for t in operands), indices))
        return found

    def fill(self, operands: tuple[int, ...], indices: Iterable[str]) -> float:
        labels = frozenset(indices)
        return self.count(operands, labels) / max(product(self.extents, labels), 1)

    def _pattern(self, operand: int, indices: frozenset[str]) -> Pattern:
        """What an operand admits in some of the indices."""
        labels = tuple(index for index in self.network.inputs[operand] if index in indices)
        each = tuple(self.count((operand,), frozenset(index)) for index in labels)
        return labels, self.count((operand,), frozenset(labels)), each

    def _join(self, patterns: frozenset[Pattern], indices: frozenset[str]) -> float:
        """Distinct coordinates over `indices` that all patterns admit."""
        found = 1.0
        width: dict[str, list[float]] = {index: [] for index in indices}
        for labels, number, each in sorted(patterns):
            found *= number
            for index, distinct in zip(labels, each):
                width[index].append(distinct)
        for index, several in width.items():
            found *= self.extents[index] if not several else 1.0
            for distinct in sorted(several)[1:]:
                found /= max(distinct, 1.0)
        return found


def occupied(balls: float, places: float) -> float:
    """Expected number of places taken by balls thrown at random."""
    return places * -math.expm1(-balls / places) if places > 0 else 0.0


def product(extents: Mapping[str, int], indices: Iterable[str]) -> int:
    return math.prod(extents[index] for index in indices)
