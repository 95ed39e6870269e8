"""The estimated cost of a nest: seconds, multiply-adds, and bytes of workspaces.

shared loops, each assignment's own loops -> turns and seconds of each (cost.py) -> sum
"""

from __future__ import annotations

from dataclasses import dataclass

from trnqc.sparse.network.loops import scattered
from trnqc.sparse.network.nest import Format, Kind, Nest
from trnqc.sparse.network.network import Indices
from trnqc.sparse.search.cost import Access, CostModel, Enclosing
from trnqc.sparse.search.statistics import product


@dataclass(frozen=True)
class Estimate:
    """The cost of a nest: seconds on one core, multiply-adds, bytes of workspaces, most indices of a workspace."""

    seconds: float
    work: float
    bytes: int
    order: int

    def __str__(self) -> str:
        return f"{self.seconds * 1e3:.3g} ms, {self.work:.3g} multiply-adds, workspaces {self.bytes} B"


def estimate(nest: Nest, model: CostModel) -> Estimate:
    """Return the cost of a nest with formats and workspaces."""
    walk = Walk(nest, model)
    seconds, work = walk.shared_seconds + model.result_seconds(*walk.result), 0.0
    for k, around in enumerate(walk.enclosing):
        order = nest.assignments[k].loops[len(around.loops) :]
        more, madds = model.own_loops(
            around, order, [walk.read(t, k) for t in nest.assignments[k].operands], walk.target(k)
        )
        seconds, work = seconds + more, work + madds
    return Estimate(seconds, work, walk.bytes(), nest.order)


class Walk:
    """The shared loops of a nest, from the outside in, and the tensors as its assignments access them.

    By tensor `leaves` has its operands, by assignment `enclosing` the loops shared with others; `shared_seconds`
    includes clearing workspaces in shared loops.
    """

    def __init__(self, nest: Nest, model: CostModel) -> None:
        self.nest, self.model = nest, model
        self.count = len(nest.network.inputs)
        self.leaves: list[tuple[int, ...]] = [(t,) for t in range(self.count)]
        for assignment in nest.assignments:
            self.leaves.append(tuple(sorted(leaf for t in assignment.operands for leaf in self.leaves[t])))
        self._readers = {t: k for k, assignment in enumerate(nest.assignments) for t in assignment.operands}
        self.enclosing = [Enclosing()] * len(nest.assignments)
        self.shared_seconds = 0.0
        self._run(0, len(nest.assignments) - 1, Enclosing())

    def fused(self, t: int) -> int:
        """Return the number of outermost loops that the maker of an intermediate shares with its reader."""
        return min(self.nest.shared[t - self.count : self._readers[t]])

    def _run(self, first: int, last: int, around: Enclosing) -> None:
        """Visit assignments first .. last inside the loops that they share."""
        nest, depth = self.nest, len(around.loops)
        for t in range(self.count + first, self.count + last):
            if self._readers[t] <= last and self.fused(t) == depth:
                self.shared_seconds += around.turns * self._clearing(t)
        while first <= last:
            end = first
            while end < last and nest.shared[end] > depth:
                end += 1
            self.enclosing[first] = around
            if end > first:
                reads = [
                    self.read(t, k)
                    for k in range(first, end + 1)
                    for t in nest.assignments[k].operands
                    if t < self.count + first
                ]
                inside, more = self.model.outer_loop(around, nest.assignments[first].loops[depth], reads)
                self.shared_seconds += more
                self._run(first, end, inside)
            first = end + 1

    def _clearing(self, t: int) -> float:
        """Return the seconds to clear the workspace of a tensor in one turn of the loops around it."""
        workspace, rates = self.nest.workspaces[t - self.count], self.model.rates
        if workspace.space == "dense":
            return product(self.model.extents, workspace.order) * rates.cleared_element
        return self.touched(t) * rates.listed_update

    def touched(self, t: int) -> float:
        """Return the elements that one turn of the loops around a workspace writes to it."""
        outer, order = self.outer(t), self.nest.workspaces[t - self.count].order
        count = self.model.statistics.count
        return count(self.leaves[t], frozenset((*outer, *order))) / max(count(self.leaves[t], frozenset(outer)), 1.0)

    def outer(self, t: int) -> Indices:
        """Return the loops that the maker of an intermediate shares with its reader."""
        return self.nest.assignments[t - self.count].loops[: self.fused(t)]

    def bytes(self) -> int:
        """Return the memory of all workspaces. A hash table has four slots per element, each of 24 bytes."""
        return sum(
            24 * int(4 * self.touched(self.count + k))
            if w.space == "hashed"
            else 8 * product(self.model.extents, w.order)
            for k, w in enumerate(self.nest.workspaces)
        )

    def read(self, t: int, k: int) -> Access:
        """Return a tensor as assignment k reads it."""
        if t >= self.count:
            order, probe = self.nest.workspaces[t - self.count].order, 0.0
            run = over_list(self.nest, t - self.count)
            if not run and self.nest.workspaces[t - self.count].space == "hashed":
                probe = self.model.rates.hashed_update
            return self.space(t, order, probe, run)
        return Access((t,), self.nest.formats[t].order, self.nest.formats[t].kinds)

    def space(self, t: int, order: Indices, entry: float = 0.0, listed: bool = False) -> Access:
        """Return intermediate `t` as it is accessed in its workspace of indices `order`; for `entry` see `Access`.

        With `listed`, the loops over these indices run over the list of elements that were written.
        """
        labels = (*self.outer(t), *order)
        outer = len(labels) - len(order)
        kinds: tuple[Kind, ...] = tuple("compressed" if listed and n >= outer else "dense" for n in range(len(labels)))
        return Access(self.leaves[t], labels, kinds, entry, outer)

    def written(self, nest: Nest, k: int) -> Access:
        """Return the workspace that assignment k adds to, in the order in which its reader in `nest` runs over it."""
        t, rates = self.count + k, self.model.rates
        own = nest.assignments[self._readers[t]].loops[self.fused(t) :]
        entry = {"dense": 0.0, "listed": rates.listed_update, "hashed": rates.hashed_update}[nest.workspaces[k].space]
        return self.space(t, tuple(index for index in own if index in nest.indices[t]), entry)

    def target(self, k: int) -> Access:
        """Return the tensor that assignment k adds to."""
        if k < len(self.nest.assignments) - 1:
            return self.written(self.nest, k)
        return self.model.result_access(*self.result)

    @property
    def result(self) -> tuple[Format, Indices, frozenset[str]]:
        """The format of the result, the loops that compute it, and the indices of which only some values may occur."""
        formats = self.nest.formats
        return formats[-1], self.nest.assignments[-1].loops, scattered(formats[:-1], self.nest.workspaces)


def over_list(nest: Nest, k: int) -> bool:
    """Return whether the reader of workspace k can run over a list of the elements that were written.

    It can if it has loops over exactly the indices of the workspace, directly inside one another and with other loops
    inside, and if no operand stores these indices compressed.
    """
    order, space = nest.workspaces[k].order, nest.workspaces[k].space
    reader = nest.assignments[nest.reader(len(nest.network.inputs) + k)]
    stored = (dict(zip(f.order, f.kinds)) for t, f in enumerate(nest.formats[:-1]) if t in reader.operands)
    driven = any(kinds.get(index) == "compressed" for kinds in stored for index in order)
    first = reader.loops.index(order[0]) if order else 0
    end = first + len(order)
    return space != "dense" and not driven and reader.loops[first:end] == order and first < end < len(reader.loops)
