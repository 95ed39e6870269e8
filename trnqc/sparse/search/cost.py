"""The cost model of loops: seconds from the number of iterations (turns) and from the memory that they access.

A loop over an index that operands store compressed runs over the coordinates that all of them have in common; any other
loop runs over all values of its index. An operand restricts the loops of the assignment that reads it. Loops that
several assignments share are restricted by the operands of all of them. If the part of a tensor that some inner loops
access fits into a cache, it is loaded from behind this cache once in every turn of the loops around them. Where stored
coordinates of another operand choose the part, it may still be in the cache from an earlier turn: with the probability
that any part of what all turns access is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from trnqc.sparse.network.loops import LARGEST_LISTED, LARGEST_NUMBER, in_order
from trnqc.sparse.network.nest import Format, Kind
from trnqc.sparse.network.network import Indices
from trnqc.sparse.search.rates import WorkRates
from trnqc.sparse.search.statistics import Pattern, Statistics, product

# Bytes of a cache line.
LINE = 64
# Bytes of an element of an array, and of a stored element with its int32 coordinate.
DENSE_ELEMENT, STORED_ELEMENT = 8, 12


@dataclass(frozen=True)
class Access:
    """A tensor, as one assignment reads or writes it, with its levels outermost first.

    `operands` are those of the network that the tensor is a product of; `entry` the seconds of an update to enter its
    coordinate in a list or hash table, or of a read to look it up. A workspace does not store the first `outer` levels,
    because every turn of their loops clears it.
    """

    operands: tuple[int, ...]
    order: Indices
    kinds: tuple[Kind, ...]
    entry: float = 0.0
    outer: int = 0

    def compressed(self, index: str) -> bool:
        """Whether the tensor has the index and stores it compressed."""
        return index in self.order and self.kinds[self.order.index(index)] == "compressed"

    def along(self, index: str) -> bool:
        """Whether consecutive values of `index` are consecutive in memory, or all of them are the same element."""
        return index not in self.order or (self.order[-1] == index and self.kinds[-1] == "dense")


@dataclass(frozen=True)
class Enclosing:
    """The loops around a piece of code, outermost first; the code inside all of them runs `turns` times.

    Each loop is started `reached` times, and `driven` if it runs over stored coordinates. `depths` has the tensors that
    restrict the loops, and the number of their levels whose loops are among these.
    """

    loops: Indices = ()
    turns: float = 1.0
    reached: tuple[float, ...] = ()
    driven: tuple[bool, ...] = ()
    depths: tuple[tuple[Access, int], ...] = ()


class CostModel:
    """Costs of the loops of one network, from its statistics and the rates of a machine."""

    def __init__(self, statistics: Statistics, rates: WorkRates) -> None:
        self.statistics = statistics
        self.extents = statistics.extents
        self.rates = rates
        self._patterns: dict[tuple[Access, int], Pattern] = {}
        self._bytes: dict[tuple[Access, frozenset[str]], float] = {}

    def enter(self, around: Enclosing, index: str, accesses: Iterable[Access]) -> tuple[Enclosing, float]:
        """Return the loops with one more inside, and the number of coordinates at which this loop looks.

        accesses: the tensors that restrict the loop.
        """
        loops = (*around.loops, index)
        depths = dict(around.depths)
        drivers = []
        for access in accesses:
            if index in access.order and "compressed" in access.kinds:
                depths[access] = access.order.index(index) + 1
                if access.compressed(index):
                    drivers.append(access)
        turns = self._turns(loops, depths)
        reached, driven = (*around.reached, around.turns), (*around.driven, bool(drivers))
        inside = Enclosing(loops, turns, reached, driven, tuple(depths.items()))
        if not drivers:
            return inside, around.turns * self.extents[index]
        if len(drivers) == 1:
            return inside, turns
        before = dict(around.depths)
        return inside, min(self._turns(loops, before | {access: depths[access]}) for access in drivers)

    def _turns(self, loops: Indices, depths: Mapping[Access, int]) -> float:
        """Return how often the code inside the loops runs.

        An operand is not counted if an intermediate that contains it restricts the same indices.
        """
        implied = [
            (frozenset(access.operands), frozenset(access.order[:depth]))
            for access, depth in depths.items()
            if access.kinds[depth - 1] == "compressed"
        ]
        patterns = frozenset(
            self._pattern(access, depth)
            for access, depth in depths.items()
            if not any(
                factors > set(access.operands) and known >= set(access.order[:depth]) for factors, known in implied
            )
        )
        return self.statistics.join(patterns, frozenset(loops))

    def _pattern(self, access: Access, depth: int) -> Pattern:
        if (access, depth) not in self._patterns:
            labels, count = access.order[:depth], self.statistics.count
            positions, each = 1.0, []
            for level, (index, kind) in enumerate(zip(labels, access.kinds), start=1):
                dense = kind == "dense"
                stored = count(access.operands, frozenset(labels[:level]))
                positions = positions * self.extents[index] if dense else stored
                each.append(float(self.extents[index]) if dense else count(access.operands, frozenset(index)))
            self._patterns[access, depth] = labels, positions, tuple(each)
        return self._patterns[access, depth]

    def outer_loop(self, around: Enclosing, index: str, accesses: Sequence[Access]) -> tuple[Enclosing, float]:
        """Return the loops with one more that contains others, and the seconds of its own turns."""
        inside, visits = self.enter(around, index, accesses)
        drivers = sum(access.compressed(index) for access in accesses)
        each = (self.rates.dense_turn, self.rates.compressed_turn, self.rates.intersected_turn)[min(drivers, 2)]
        return inside, visits * each

    def own_loops(
        self, around: Enclosing, order: Indices, reads: Sequence[Access], target: Access
    ) -> tuple[float, float]:
        """Return seconds and multiply-adds of the unshared loops `order` (outermost first) of an assignment."""
        seconds, rates = 0.0, self.rates
        for index in order[:-1]:
            around, more = self.outer_loop(around, index, reads)
            seconds += more
        if not order:
            entries = target.entry + sum(access.entry for access in reads)
            return around.turns * (rates.strided_element + entries), around.turns
        again = around.loops[-1:] and around.loops[-1] not in target.order and order[-1] in target.order
        seconds += around.turns * (rates.inner_start + (rates.inner_dependence if again else 0.0))
        around, visits = self.enter(around, order[-1], reads)
        seconds += visits * self._element(order[-1], reads, target) + around.turns * target.entry
        for access in reads:
            seconds += around.turns * access.entry
            seconds += self._traffic(around, access, rates.near_read, rates.far_scattered_read)
        return seconds + self._traffic(around, target, rates.near_update, rates.far_scattered_update), around.turns

    def _element(self, index: str, reads: Sequence[Access], target: Access) -> float:
        """Return the seconds of one turn of an innermost loop."""
        drivers = sum(access.compressed(index) for access in reads)
        if drivers > 1:
            return self.rates.intersected_turn
        if drivers:
            return self.rates.scattered_element if index in target.order else self.rates.gathered_element
        if not all(access.along(index) for access in (*reads, target)):
            return self.rates.strided_element
        return self.rates.row_element if index in target.order else self.rates.dot_element

    def _traffic(self, around: Enclosing, access: Access, near: float, scattered: float) -> float:
        """Return the seconds to load a tensor from behind each cache, see the module.

        near: rate of the first cache. scattered: rate of the second cache at stored coordinates.
        """
        touched = self._touched(access, ())
        seconds, beyond = 0.0, touched > self.rates.second_cache
        if touched <= self.rates.first_cache:
            return 0.0
        for outer, reached in enumerate((*around.reached[1:], around.turns), start=1):
            before = touched
            if around.loops[outer - 1] in access.order:
                touched = self._touched(access, around.loops[:outer])
            if beyond and touched <= self.rates.second_cache:
                far = self._far(around, access, outer, scattered * (1 - self.rates.second_cache / before))
                seconds += reached * touched * far
                beyond = False
            if touched <= self.rates.first_cache:
                return seconds + reached * touched * near
        return seconds

    def _far(self, around: Enclosing, access: Access, outer: int, scattered: float) -> float:
        """Return seconds per byte that `outer` loops load: `scattered` if coordinates of another operand drive them."""
        moved = max((n for n, index in enumerate(around.loops[:outer]) if index in access.order), default=None)
        if moved is None or not around.driven[moved] or access.compressed(around.loops[moved]):
            return self.rates.far
        return scattered

    def _touched(self, access: Access, loops: Indices) -> float:
        """Return the bytes of a tensor that one turn of these loops accesses."""
        stored = access.order[access.outer :]
        fixed = frozenset((*(index for index in stored if index in loops), *access.order[: access.outer]))
        if (access, fixed) not in self._bytes:
            if "compressed" in access.kinds:
                count = self.statistics.count
                elements = count(access.operands, frozenset(access.order)) / max(count(access.operands, fixed), 1.0)
                each = STORED_ELEMENT
            else:
                elements, each = product(self.extents, (x for x in stored if x not in fixed)), DENSE_ELEMENT
            self._bytes[access, fixed] = elements * (LINE if stored and stored[-1] in fixed else each)
        return self._bytes[access, fixed]

    def result_access(self, layout: Format, loops: Indices, scattered: frozenset[str]) -> Access:
        """Return the tensor to which the last assignment adds.

        Elements of a sparse result that are not computed in its order are collected first: in a list if some of their
        indices are `scattered` (see `network.loops.scattered`), else in a row of which all elements are computed.
        """
        everything = tuple(range(len(self.statistics.network.inputs)))
        depth = in_order(layout.order, loops)
        rest = layout.order[depth:]
        listed = self._listed(layout, loops, scattered)
        if layout.sparse and rest and not listed:
            row: Kind = "dense"
            return Access(everything, layout.order, layout.kinds[:depth] + (row,) * len(rest), outer=depth)
        return Access(everything, layout.order, layout.kinds, self.rates.listed_update if listed else 0.0)

    def _listed(self, layout: Format, loops: Indices, scattered: frozenset[str]) -> bool:
        depth = in_order(layout.order, loops)
        rest = layout.order[depth:]
        if not layout.sparse or self.statistics.crowded(layout.order, depth):
            return False
        return bool(scattered & set(rest) or product(self.extents, rest) > LARGEST_LISTED)

    def result_seconds(self, layout: Format, loops: Indices, scattered: frozenset[str]) -> float:
        """Return the seconds to allocate a dense result, or to sort and store the elements of a sparse one.

        The arguments are those of `result_access`. The time is infinite if more elements are computed out of order
        than a hash table can number.
        """
        if not layout.sparse:
            return product(self.extents, layout.order) * self.rates.allocated_element
        listed = self._listed(layout, loops, scattered)
        if listed and product(self.extents, layout.order[in_order(layout.order, loops) :]) > LARGEST_NUMBER:
            return math.inf
        everything = tuple(range(len(self.statistics.network.inputs)))
        elements = self.statistics.count(everything, frozenset(layout.order))
        return elements * (self.rates.appended_element + (self._in_order_rate(layout, loops) if listed else 0.0))

    def _in_order_rate(self, layout: Format, loops: Indices) -> float:
        """Return the seconds to put an element of a sparse result in order."""
        elements = product(self.extents, layout.order[in_order(layout.order, loops) :])
        return self.rates.sorted_element if elements > LARGEST_LISTED else self.rates.ordered_element
