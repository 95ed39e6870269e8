"""Seconds of loops and of what stands in them, from how often they turn and what they touch.

A loop over an index that operands store compressed runs over the coordinates that all of them have; one that none does
runs over the extent. Operands prune the loops of their own assignment, and shared loops of all that share them. A
tensor comes from behind a cache again for every turn of the loops inside which what is touched of it fits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from trnqc.sparse.network.loops import LARGEST_LISTED, LARGEST_NUMBER, in_order
from trnqc.sparse.network.nest import Format, Kind
from trnqc.sparse.network.network import Indices
from trnqc.sparse.search.statistics import Pattern, Statistics, product


@dataclass(frozen=True)
class Rates:
    """Seconds of one thread, measured on nests of its own making (CPU time, one core of an AMD EPYC with AVX-512).

    turn, step: of a counted loop and of one over stored coordinates, around others; meet: of a coordinate looked at
    where several operands are stored; start: of an innermost loop; chain: of one that adds to the row to which the one
    before has just added; lane, dot, stride: of an element of a counted innermost loop that adds to a row, to a scalar,
    or does not run along its arrays; gather, scatter: of an element of an innermost loop over stored coordinates that
    adds to one place, or to many; clear: of a workspace's element; list, hash: of an update that also enters its
    coordinate; sort, append: of an element of a sparse result that was listed, and of every one; fresh: of a
    dense result's element; near, update: of a
    byte that comes again from behind the first cache to be read, or added to; far: of one from behind the second; skip,
    strew: of the latter where stored coordinates say which is read, or added to; gemm: of a multiply-add of matrices.
    """

    turn: float = 0.4e-9
    step: float = 0.8e-9
    meet: float = 3.0e-9
    start: float = 0.4e-9
    chain: float = 0.2e-9
    lane: float = 0.07e-9
    dot: float = 0.1e-9
    stride: float = 0.5e-9
    gather: float = 0.45e-9
    scatter: float = 0.6e-9
    clear: float = 0.2e-9
    list: float = 2.0e-9
    hash: float = 20.0e-9
    sort: float = 30.0e-9
    append: float = 5.0e-9
    fresh: float = 1.0e-9
    near: float = 0.002e-9
    update: float = 0.004e-9
    far: float = 0.008e-9
    skip: float = 0.02e-9
    strew: float = 0.07e-9
    gemm: float = 0.06e-9


RATES = Rates()

# Bytes of a core's first and second cache.
CACHES = (2**15, 3 * 2**18)
LINE = 64


@dataclass(frozen=True)
class Access:
    """A tensor as one assignment sees it: the operands it is made of and its levels, outermost first.

    entry: seconds in which an update enters its coordinate in a list or table besides, or a reader looks it up. outer:
    leading levels that a workspace has not, since each of their turns has it anew.
    """

    operands: tuple[int, ...]
    order: Indices
    kinds: tuple[Kind, ...]
    entry: float = 0.0
    outer: int = 0

    def compressed(self, index: str) -> bool:
        return index in self.order and self.kinds[self.order.index(index)] == "compressed"

    def along(self, index: str) -> bool:
        """Whether neighbours in `index` are neighbours in memory, or it is one place for all of them."""
        return index not in self.order or (self.order[-1] == index and self.kinds[-1] == "dense")


@dataclass(frozen=True)
class Place:
    """Inside some loops: how often it is reached, and how many levels of which accesses the loops have passed.

    reached: how often each of the loops is. driven: whether stored coordinates drive it.
    """

    loops: Indices = ()
    turns: float = 1.0
    reached: tuple[float, ...] = ()
    driven: tuple[bool, ...] = ()
    depths: tuple[tuple[Access, int], ...] = ()


class Model:
    """Costs of loops and bodies over one network's statistics."""

    def __init__(self, statistics: Statistics, rates: Rates = RATES) -> None:
        self.statistics = statistics
        self.extents = statistics.extents
        self.rates = rates
        self._patterns: dict[tuple[Access, int], Pattern] = {}
        self._bytes: dict[tuple[Access, frozenset[str]], float] = {}

    def turn(self, place: Place, index: str, accesses: Iterable[Access]) -> tuple[Place, float]:
        """Inside one more loop, which prunes by `accesses`, and the visits that this loop makes."""
        loops = (*place.loops, index)
        depths = dict(place.depths)
        drivers = []
        for access in accesses:
            if index in access.order and "compressed" in access.kinds:
                depths[access] = access.order.index(index) + 1
                if access.compressed(index):
                    drivers.append(access)
        turns = self._turns(loops, depths)
        reached, driven = (*place.reached, place.turns), (*place.driven, bool(drivers))
        inside = Place(loops, turns, reached, driven, tuple(depths.items()))
        if not drivers:
            return inside, place.turns * self.extents[index]
        if len(drivers) == 1:
            return inside, turns
        before = dict(place.depths)
        return inside, min(self._turns(loops, before | {access: depths[access]}) for access in drivers)

    def _turns(self, loops: Indices, depths: Mapping[Access, int]) -> float:
        """How often a body inside the loops is reached. What an intermediate stores tells of its operands as well."""
        told = [(frozenset(access.operands), frozenset(access.order[:depth])) for access, depth in depths.items()
                if access.kinds[depth - 1] == "compressed"]  # fmt: skip
        patterns = frozenset(
            self._pattern(access, depth)
            for access, depth in depths.items()
            if not any(made > set(access.operands) and known >= set(access.order[:depth]) for made, known in told)
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

    def around(self, place: Place, index: str, accesses: Sequence[Access]) -> tuple[Place, float]:
        """Inside a loop that has others inside, and the seconds of turning it."""
        inside, visits = self.turn(place, index, accesses)
        drivers = sum(access.compressed(index) for access in accesses)
        return inside, visits * (self.rates.turn, self.rates.step)[drivers] if drivers < 2 else visits * self.rates.meet

    def alone(self, place: Place, order: Indices, reads: Sequence[Access], target: Access) -> tuple[float, float]:
        """(seconds, multiply-adds) of an assignment's own loops, innermost last, from `place`."""
        seconds = 0.0
        for index in order[:-1]:
            place, more = self.around(place, index, reads)
            seconds += more
        if not order:
            entries = target.entry + sum(access.entry for access in reads)
            return place.turns * (self.rates.stride + entries), place.turns
        again = place.loops[-1:] and place.loops[-1] not in target.order and order[-1] in target.order
        seconds += place.turns * (self.rates.start + (self.rates.chain if again else 0.0))
        place, visits = self.turn(place, order[-1], reads)
        seconds += visits * self._element(order[-1], reads, target) + place.turns * target.entry
        near, skip = self.rates.near, self.rates.skip
        seconds += sum(place.turns * access.entry + self._traffic(place, access, near, skip) for access in reads)
        return seconds + self._traffic(place, target, self.rates.update, self.rates.strew), place.turns

    def _traffic(self, place: Place, access: Access, near: float, skip: float) -> float:
        """Seconds in which a tensor comes from behind each cache, once for every turn of the loops inside which what
        is touched of it fits."""
        bytes_ = self._touched(access, ())
        seconds, beyond = 0.0, bytes_ > CACHES[1]
        if bytes_ <= CACHES[0]:
            return 0.0
        for outer, reached in enumerate((*place.reached[1:], place.turns), start=1):
            if place.loops[outer - 1] in access.order:
                bytes_ = self._touched(access, place.loops[:outer])
            if beyond and bytes_ <= CACHES[1]:
                seconds += reached * bytes_ * self._far(place, access, outer, skip)
                beyond = False
            if bytes_ <= CACHES[0]:
                return seconds + reached * bytes_ * near
        return seconds

    def _far(self, place: Place, access: Access, outer: int, skip: float) -> float:
        """Of a byte that the first `outer` loops touch anew: out of turn if another operand's coordinates say where."""
        moved = max((n for n, index in enumerate(place.loops[:outer]) if index in access.order), default=None)
        if moved is None or not place.driven[moved] or access.compressed(place.loops[moved]):
            return self.rates.far
        return skip

    def _touched(self, access: Access, loops: Indices) -> float:
        """Bytes of a tensor inside some loops."""
        stored = access.order[access.outer :]
        fixed = frozenset((*(index for index in stored if index in loops), *access.order[: access.outer]))
        if (access, fixed) not in self._bytes:
            if "compressed" in access.kinds:
                count = self.statistics.count
                elements = count(access.operands, frozenset(access.order)) / max(count(access.operands, fixed), 1.0)
                each = 12
            else:
                elements, each = product(self.extents, (x for x in stored if x not in fixed)), 8
            self._bytes[access, fixed] = elements * (LINE if stored and stored[-1] in fixed else each)
        return self._bytes[access, fixed]

    def result(self, layout: Format, loops: Indices, scattered: frozenset[str]) -> Access:
        """What the last assignment adds to: elements of a sparse result are listed first where they do not come in
        order, each when its sum is complete; but not where all are made, that is of indices that are not scattered."""
        everything = tuple(range(len(self.statistics.network.inputs)))
        depth = in_order(layout.order, loops)
        rest = layout.order[depth:]
        listed = layout.sparse and bool(scattered & set(rest) or product(self.extents, rest) > LARGEST_LISTED)
        if layout.sparse and rest and not listed:
            row: Kind = "dense"
            return Access(everything, layout.order, layout.kinds[:depth] + (row,) * len(rest), outer=depth)
        return Access(everything, layout.order, layout.kinds, self.rates.list if listed else 0.0)

    def appending(self, layout: Format, loops: Indices, scattered: frozenset[str]) -> float:
        """Seconds in which a sparse result's elements are brought into order and stored; without end where those out of
        order are more than a table can number."""
        if not layout.sparse:
            return product(self.extents, layout.order) * self.rates.fresh
        access = self.result(layout, loops, scattered)
        if product(self.extents, layout.order[in_order(layout.order, loops) :]) > LARGEST_NUMBER and access.entry:
            return math.inf
        elements = self.statistics.count(access.operands, frozenset(layout.order))
        return elements * (self.rates.append + (self.rates.sort if access.entry else 0.0))

    def _element(self, index: str, reads: Sequence[Access], target: Access) -> float:
        """Seconds of one turn of an innermost loop."""
        drivers = sum(access.compressed(index) for access in reads)
        if drivers > 1:
            return self.rates.meet
        if drivers:
            return self.rates.scatter if index in target.order else self.rates.gather
        if not all(access.along(index) for access in (*reads, target)):
            return self.rates.stride
        return self.rates.lane if index in target.order else self.rates.dot
