"""Nests of one tree: a fusion says which loops are shared, the cost model in which order the others run.

fusion, storage of the operands -> assignments -> orders of their own loops, readers first -> nest
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations

from trnqc.sparse.estimate import Access, Model, Place, Rates, Walk
from trnqc.sparse.fusion import Fusion, Fusions
from trnqc.sparse.layout import Choices, Layouts
from trnqc.sparse.nest import Assignment, Nest
from trnqc.sparse.network import Indices
from trnqc.sparse.statistics import Statistics
from trnqc.sparse.tree import Tree, contractions

# Loops of an assignment whose every order is tried.
EVERY_ORDER = 5


class Nests:
    """Nests of one tree over one network's statistics."""

    def __init__(self, statistics: Statistics, tree: Tree, choices: Choices, rates: Rates) -> None:
        self.statistics, self.network, self.tree = statistics, statistics.network, tree
        self.count = len(self.network.inputs)
        self.nodes = contractions(self.network, tree)
        self.model = Model(statistics, rates)
        self.layouts = Layouts(statistics)
        optional = self.layouts.optional()
        sets = dict.fromkeys([(), *((t,) for t in optional), optional])
        self.choices = [replace(choices, dense=frozenset(dense)) for dense in sets]
        self._orders: dict[tuple[object, ...], Indices] = {}

    def fusions(self, limit: int, seconds: float) -> Iterator[Fusion]:
        """Fusions by order; the one that shares nothing where there are no others in time, or none are needed."""
        found = False
        if len(self.nodes) > 1:
            for fusion in Fusions(self.nodes, self.count).smallest_first(limit, seconds):
                found = True
                yield fusion
        if not found:
            order = max((len(node.kept) for node in self.nodes[:-1]), default=0)
            yield Fusion(order, tuple(range(len(self.nodes))), ((),) * (len(self.nodes) - 1))

    def of(self, fusion: Fusion) -> Iterator[Nest]:
        """One for each choice of storage."""
        nest = self._assigned(fusion)
        for choices in self.choices:
            yield self._ordered(self.layouts.lay_out(nest, choices), choices)

    def _assigned(self, fusion: Fusion) -> Nest:
        """Assignments in sequence, each with the loops that it shares outermost, then the others as they come."""
        numbers = {t: t for t in range(self.count)}
        numbers |= {self.count + k: self.count + at for at, k in enumerate(fusion.sequence)}
        made: list[Assignment] = []
        for k in fusion.sequence:
            node = self.nodes[k]
            first = self._carried(fusion, k)
            loops = first + tuple(index for index in node.loops if index not in first)
            made.append(Assignment(self.count + len(made), tuple(numbers[t] for t in node.operands), loops))
        return Nest(self.network, tuple(made), (0,) * (len(made) - 1), (), ())

    def _carried(self, fusion: Fusion, k: int) -> Indices:
        """The longest run of loops that some fusion asks of a contraction."""
        at = {number: place for place, number in enumerate(fusion.sequence)}
        asked: list[Indices] = [()]
        for maker, fused in enumerate(fusion.fused):
            reader = next(r for r, node in enumerate(self.nodes) if self.count + maker in node.operands)
            if at[maker] <= at[k] <= at[reader]:
                asked.append(fused)
        return max(asked, key=len)

    def _ordered(self, nest: Nest, choices: Choices) -> Nest:
        """With the loops inside the shared ones in their best order, readers before makers: they order workspaces."""
        walk = Walk(nest, self.model)
        for k in reversed(range(len(nest.assignments))):
            place = walk.places[k]
            rest = nest.assignments[k].loops[len(place.loops) :]
            if len(rest) > 1:
                best = (*place.loops, *self._best(nest, walk, k, place, rest, choices))
                changed = replace(nest.assignments[k], loops=best)
                nest = replace(nest, assignments=(*nest.assignments[:k], changed, *nest.assignments[k + 1 :]))
        return self.layouts.lay_out(nest, choices)

    def _best(self, nest: Nest, walk: Walk, k: int, place: Place, rest: Indices, choices: Choices) -> Indices:
        """The fastest order of an assignment's own loops, given those of its reader; remembered."""
        operands = nest.assignments[k].operands
        spaces = tuple((walk.leaves[t], walk.fused(t)) for t in operands if t >= self.count)
        own = tuple(t for t in operands if t < self.count)
        workspace = walk.written(nest, k) if k < len(nest.assignments) - 1 else None
        key = (place, rest, own, choices.dense & set(own), spaces, workspace)

        def seconds(order: Indices) -> float:
            loops = (*place.loops, *order)
            reads = [self._stored(t, loops, choices) for t in own]
            for t in operands:
                if t >= self.count:
                    reads.append(walk.space(t, tuple(x for x in loops[walk.fused(t) :] if x in nest.indices[t])))
            target = workspace or self.model.result(self.layouts.result(loops, choices.out), loops)
            return self.model.alone(place, order, reads, target)[0]

        if key not in self._orders:
            self._orders[key] = min(_orders(rest), key=seconds)
        return self._orders[key]

    def _stored(self, operand: int, loops: Indices, choices: Choices) -> Access:
        layout = self.layouts.operand(operand, loops, operand in choices.dense)
        return Access((operand,), layout.order, layout.kinds)


def _orders(rest: Indices) -> Iterator[Indices]:
    """All orders of loops; of many, those that differ in what is innermost."""
    if len(rest) <= EVERY_ORDER:
        yield from permutations(rest)
        return
    for index in rest:
        yield (*(other for other in rest if other != index), index)
