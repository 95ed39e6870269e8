"""What a nest will cost: turns of its loops, multiply-adds, bytes of workspaces, seconds.

loops shared and private -> turns of each (statistics) -> seconds by rates

A loop over an index that operands store compressed runs over the coordinates that all of them have; one that none does
runs over the extent. Operands prune the loops of their own assignment, and shared loops of all that share them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from trnqc.sparse.nest import Format, Kind, Nest
from trnqc.sparse.network import Indices
from trnqc.sparse.statistics import Pattern, Statistics, product


@dataclass(frozen=True)
class Rates:
    """Seconds of one thread. turn, step: of a counted loop and of one over stored coordinates, around others; meet: of
    a coordinate looked at where several operands are stored; start: of an innermost loop; lane, dot, stride: of an
    element of a counted innermost loop that adds to a row, to a scalar, or does not run along its arrays; gather,
    scatter: of an element of an innermost loop over stored coordinates that adds to one place, or to many; clear: of a
    workspace's element; list, hash: of an update that also enters its coordinate; append: of a stored result."""

    turn: float = 1.0e-9
    step: float = 1.5e-9
    meet: float = 3.0e-9
    start: float = 4.0e-9
    lane: float = 0.15e-9
    dot: float = 0.3e-9
    stride: float = 1.0e-9
    gather: float = 0.8e-9
    scatter: float = 0.9e-9
    clear: float = 0.1e-9
    list: float = 1.5e-9
    hash: float = 8.0e-9
    append: float = 3.0e-9
    gemm: float = 0.04e-9


RATES = Rates()


@dataclass(frozen=True)
class Estimate:
    """work: multiply-adds; bytes: of all workspaces at once; order: of the largest workspace."""

    seconds: float
    work: float
    bytes: int
    order: int

    def __str__(self) -> str:
        return f"{self.seconds * 1e3:.3g} ms, {self.work:.3g} multiply-adds, workspaces {self.bytes} B"


@dataclass(frozen=True)
class Access:
    """A tensor as one assignment sees it: the operands it is made of, its levels outermost first, and the seconds in
    which an update enters its coordinate in a list or table besides."""

    operands: tuple[int, ...]
    order: Indices
    kinds: tuple[Kind, ...]
    entry: float = 0.0

    def compressed(self, index: str) -> bool:
        return index in self.order and self.kinds[self.order.index(index)] == "compressed"

    def along(self, index: str) -> bool:
        """Whether neighbours in `index` are neighbours in memory, or it is one place for all of them."""
        return index not in self.order or (self.order[-1] == index and self.kinds[-1] == "dense")


@dataclass(frozen=True)
class Place:
    """Inside some loops: how often it is reached, and how many levels of which accesses the loops have passed."""

    loops: Indices = ()
    turns: float = 1.0
    depths: tuple[tuple[Access, int], ...] = ()


class Model:
    """Costs of loops and bodies over one network's statistics."""

    def __init__(self, statistics: Statistics, rates: Rates = RATES) -> None:
        self.statistics = statistics
        self.extents = statistics.extents
        self.rates = rates
        self._patterns: dict[tuple[Access, int], Pattern] = {}

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
        inside = Place(loops, 0.0, tuple(depths.items()))
        turns = self._reached(inside)
        if not drivers:
            return replace(inside, turns=turns), place.turns * self.extents[index]
        alone = [self._alone(place, index, access) for access in drivers]
        return replace(inside, turns=turns), min(alone) if len(alone) > 1 else turns

    def _alone(self, place: Place, index: str, access: Access) -> float:
        depths = dict(place.depths) | {access: access.order.index(index) + 1}
        return self._reached(Place((*place.loops, index), 0.0, tuple(depths.items())))

    def _reached(self, place: Place) -> float:
        patterns = frozenset(self._pattern(access, depth) for access, depth in place.depths)
        return self.statistics.join(patterns, frozenset(place.loops))

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
            return place.turns * (self.rates.stride + target.entry), place.turns
        start = place.turns * self.rates.start
        place, visits = self.turn(place, order[-1], reads)
        each = self._element(order[-1], reads, target)
        return seconds + start + visits * each + place.turns * target.entry, place.turns

    def result(self, layout: Format, loops: Indices) -> Access:
        """What the last assignment adds to: a sparse result's elements are appended where they come in order and once,
        and otherwise listed and sorted first."""
        everything = tuple(range(len(self.statistics.network.inputs)))
        ordered = loops == layout.order
        entry = 0.0 if not layout.sparse else self.rates.append + (0.0 if ordered else self.rates.list)
        return Access(everything, layout.order, layout.kinds, entry)

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


def dense_seconds(statistics: Statistics, loops: Iterable[Indices], rates: Rates = RATES) -> float:
    """Of a network as dense matrix products. loops: all indices of each contraction."""
    return sum(product(statistics.extents, each) * rates.gemm for each in loops)


def estimate(nest: Nest, model: Model) -> Estimate:
    """What a nest will cost by its loops, formats and workspaces."""
    walk = Walk(nest, model)
    seconds, work = walk.shared_seconds, 0.0
    for k, place in enumerate(walk.places):
        order = nest.assignments[k].loops[len(place.loops) :]
        more, madds = model.alone(place, order, [walk.read(t, k) for t in nest.assignments[k].operands], walk.target(k))
        seconds, work = seconds + more, work + madds
    return Estimate(seconds, work, walk.bytes(), nest.order)


class Walk:
    """A nest's loops from the outside: what the shared ones cost, and where each assignment's own ones begin.

    leaves: the operands that each tensor is made of.
    """

    def __init__(self, nest: Nest, model: Model) -> None:
        self.nest, self.model = nest, model
        self.count = len(nest.network.inputs)
        self.leaves: list[tuple[int, ...]] = [(t,) for t in range(self.count)]
        for assignment in nest.assignments:
            self.leaves.append(tuple(sorted(leaf for t in assignment.operands for leaf in self.leaves[t])))
        self._readers = {t: k for k, assignment in enumerate(nest.assignments) for t in assignment.operands}
        self.places: list[Place] = [Place()] * len(nest.assignments)
        self.shared_seconds = 0.0
        self._run(0, len(nest.assignments) - 1, Place())

    def fused(self, t: int) -> int:
        """Loops that the maker of an intermediate shares with its reader."""
        return min(self.nest.shared[t - self.count : self._readers[t]])

    def _run(self, first: int, last: int, place: Place) -> None:
        """Assignments first .. last inside the loops that they share."""
        nest, depth = self.nest, len(place.loops)
        for t in range(self.count + first, self.count + last):
            if self._readers[t] <= last and self.fused(t) == depth:
                self.shared_seconds += place.turns * self._clearing(t)
        while first <= last:
            end = first
            while end < last and nest.shared[end] > depth:
                end += 1
            self.places[first] = place
            if end > first:
                around = [
                    self.read(t, k)
                    for k in range(first, end + 1)
                    for t in nest.assignments[k].operands
                    if t < self.count + first
                ]
                inside, more = self.model.around(place, nest.assignments[first].loops[depth], around)
                self.shared_seconds += more
                self._run(first, end, inside)
            first = end + 1

    def _clearing(self, t: int) -> float:
        """Seconds for the workspace of a tensor in one turn of the loops around it."""
        workspace, rates = self.nest.workspaces[t - self.count], self.model.rates
        if workspace.space == "dense":
            return product(self.model.extents, workspace.order) * rates.clear
        return self.touched(t) * rates.list

    def touched(self, t: int) -> float:
        """Elements of the workspace of a tensor in one turn of the loops around it."""
        outer, order = self._outer(t), self.nest.workspaces[t - self.count].order
        count = self.model.statistics.count
        return count(self.leaves[t], frozenset((*outer, *order))) / max(count(self.leaves[t], frozenset(outer)), 1.0)

    def _outer(self, t: int) -> Indices:
        return self.nest.assignments[t - self.count].loops[: self.fused(t)]

    def bytes(self) -> int:
        return sum(8 * product(self.model.extents, w.order) for w in self.nest.workspaces)

    def read(self, t: int, k: int) -> Access:
        """A tensor as assignment k reads it."""
        if t >= self.count:
            return self.space(t, self.nest.workspaces[t - self.count].order)
        return Access((t,), self.nest.formats[t].order, self.nest.formats[t].kinds)

    def space(self, t: int, order: Indices, entry: float = 0.0) -> Access:
        """An intermediate in a workspace over `order`."""
        outer = self._outer(t)
        inner: Kind = "dense" if self.nest.workspaces[t - self.count].space == "dense" else "compressed"
        labels = (*outer, *order)
        kinds = tuple(inner if level >= len(outer) else "dense" for level in range(len(labels)))
        return Access(self.leaves[t], labels, kinds, entry)

    def written(self, nest: Nest, k: int) -> Access:
        """The workspace that assignment k adds to, in the order in which its reader in `nest` runs over it."""
        t, rates = self.count + k, self.model.rates
        own = nest.assignments[self._readers[t]].loops[self.fused(t) :]
        entry = {"dense": 0.0, "listed": rates.list, "hashed": rates.hash}[nest.workspaces[k].space]
        return self.space(t, tuple(index for index in own if index in nest.indices[t]), entry)

    def target(self, k: int) -> Access:
        if k < len(self.nest.assignments) - 1:
            return self.written(self.nest, k)
        return self.model.result(self.nest.formats[-1], self.nest.assignments[-1].loops)
