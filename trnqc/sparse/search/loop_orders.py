"""Nests of one tree: a fusion decides which loops are shared, and the cost model decides the order of the others.

fusion, formats of the operands -> assignments -> orders of their own loops, readers first -> nest
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations

from trnqc.sparse.network.loops import scattered
from trnqc.sparse.network.nest import Assignment, Nest
from trnqc.sparse.network.network import Indices
from trnqc.sparse.network.tree import Tree, contractions
from trnqc.sparse.search.cost import Access, CostModel, Enclosing
from trnqc.sparse.search.estimate import Walk, over_list
from trnqc.sparse.search.formats import FULL_ROWS, Choices, Formats, sharing
from trnqc.sparse.search.fusion import Fusions, LoopFusion

# Number of loops of an assignment up to which all orders are tried.
EVERY_ORDER = 5
# Number of orders of the workspaces that an assignment reads for which its fastest order of loops is kept.
CLASSES = 2
# Seconds added to an order that belongs to another fusion, so that it is ranked last.
BARRED = 1e9


class Nests:
    """The nests of one tree.

    Parameters
    ----------
    model, formats
        The cost model and the formats of the network, which all trees share.
    tree
        The order of contractions.
    choices
        Storage of result and workspaces.
    """

    def __init__(self, model: CostModel, formats: Formats, tree: Tree, choices: Choices) -> None:
        self.model, self.formats, self.network = model, formats, formats.network
        self.count = len(self.network.inputs)
        self.nodes = contractions(self.network, tree)
        optional = self.formats.optional()
        sets = dict.fromkeys([(), *((t,) for t in optional), optional])
        self.choices = [replace(choices, dense=frozenset(dense)) for dense in sets]
        self._compressed: dict[Choices, frozenset[str]] = {}
        self._orders: dict[tuple[object, ...], tuple[Indices, ...]] = {}

    def fusions(self, limit: int, seconds: float) -> Iterator[LoopFusion]:
        """Yield fusions by increasing order; the one without shared loops if there is one contraction or no time."""
        any_fusion = False
        if len(self.nodes) > 1:
            for fusion in Fusions(self.nodes, self.count).smallest_first(limit, seconds):
                any_fusion = True
                yield fusion
        if not any_fusion:
            order = max((len(node.kept) for node in self.nodes[:-1]), default=0)
            yield LoopFusion(order, tuple(range(len(self.nodes))), ((),) * (len(self.nodes) - 1))

    def of(self, fusion: LoopFusion) -> Iterator[Nest]:
        """Yield the best nests of a fusion for each choice of storage."""
        nest = self._assigned(fusion)
        for choices in self.choices:
            yield from self._ordered(self.formats.lay_out(nest, choices), choices)

    def skipping(self, nest: Nest) -> Iterator[Nest]:
        """Yield the best nests with the shared loops of a nest of which levels store no empty coordinates.

        There are none if it has no levels that are dense although only a part of their coordinates is stored.
        """
        dense = frozenset(t for t, layout in enumerate(nest.formats[:-1]) if not layout.sparse)
        choices = replace(self.choices[0], dense=dense, rows=FULL_ROWS)
        other = self.formats.lay_out(nest, choices)
        if other.formats != nest.formats:
            yield from self._ordered(other, choices)

    def _assigned(self, fusion: LoopFusion) -> Nest:
        """Return the assignments in sequence, each with its shared loops outermost and the others in any order."""
        numbers = {t: t for t in range(self.count)}
        numbers |= {self.count + k: self.count + at for at, k in enumerate(fusion.sequence)}
        assignments: list[Assignment] = []
        for k in fusion.sequence:
            node = self.nodes[k]
            first = self._carried(fusion, k)
            loops = first + tuple(index for index in node.loops if index not in first)
            assignments.append(
                Assignment(self.count + len(assignments), tuple(numbers[t] for t in node.operands), loops)
            )
        shared = tuple(
            max((len(fused) for fused, first, last in self._spans(fusion) if first <= at < last), default=0)
            for at in range(len(assignments) - 1)
        )
        return Nest(self.network, tuple(assignments), shared, (), ())

    def _carried(self, fusion: LoopFusion, k: int) -> Indices:
        """Return the longest sequence of outermost loops that an intermediate requires of contraction k."""
        at = fusion.sequence.index(k)
        return max((fused for fused, first, last in self._spans(fusion) if first <= at <= last), key=len, default=())

    def _spans(self, fusion: LoopFusion) -> Iterator[tuple[Indices, int, int]]:
        """Yield the fused loops of every intermediate and the positions of its maker and its reader in the sequence."""
        for maker, fused in enumerate(fusion.fused):
            reader = next(r for r, node in enumerate(self.nodes) if self.count + maker in node.operands)
            yield fused, fusion.sequence.index(maker), fusion.sequence.index(reader)

    def _ordered(self, nest: Nest, choices: Choices) -> Iterator[Nest]:
        """Yield the nest with unshared loops in their best orders, readers first, as they order the workspaces."""
        return self._inside(nest, Walk(nest, self.model), len(nest.assignments) - 1, choices)

    def _inside(self, nest: Nest, walk: Walk, k: int, choices: Choices) -> Iterator[Nest]:
        """Order the loops of assignments k, k - 1, ..., 0; the loops of later assignments are in order."""
        if k < 0:
            yield self.formats.lay_out(sharing(nest), choices)
            return
        shared = walk.enclosing[k].loops
        for order in self._best(nest, walk, k, choices):
            changed = replace(nest.assignments[k], loops=(*shared, *order))
            others = (*nest.assignments[:k], changed, *nest.assignments[k + 1 :])
            yield from self._inside(replace(nest, assignments=others), walk, k - 1, choices)

    def _best(self, nest: Nest, walk: Walk, k: int, choices: Choices) -> tuple[Indices, ...]:
        """Return the fastest order of unshared loops for each of the best orders of the workspaces that k reads.

        Orders in which k could share one more loop with its reader belong to another fusion and are avoided.
        """
        around, operands = walk.enclosing[k], nest.assignments[k].operands
        rest = nest.assignments[k].loops[len(around.loops) :]
        own = tuple(t for t in operands if t < self.count)
        spaces = tuple(t for t in operands if t >= self.count)
        workspace = walk.written(nest, k) if k < len(nest.assignments) - 1 else None
        barred = self._next(nest, walk, k)
        key = (
            around,
            rest,
            own,
            choices.dense & set(own) if workspace else choices.dense,
            choices.rows,
            tuple(map(walk.outer, spaces)),
            workspace,
            barred,
        )
        if key not in self._orders:
            classes: dict[tuple[Indices, ...], tuple[float, Indices]] = {}
            for order in _orders(rest):
                loops = (*around.loops, *order)
                read = tuple(tuple(x for x in loops[walk.fused(t) :] if x in nest.indices[t]) for t in spaces)
                reads = [self._stored(t, loops, choices) for t in own] + list(map(walk.space, spaces, read))
                seconds = self._seconds(around, order, reads, workspace, choices)
                seconds += sum(self.formats.packing(t, self.formats.operand(t, loops, choices)) for t in own)
                seconds += BARRED if order[:1] == barred else 0.0
                classes[read] = min(classes.get(read, (seconds, order)), (seconds, order), key=lambda pair: pair[0])
            fastest = sorted(classes.values(), key=lambda pair: pair[0])[:CLASSES]
            self._orders[key] = tuple(order for _, order in fastest)
        return self._orders[key]

    def _next(self, nest: Nest, walk: Walk, k: int) -> Indices:
        """Return the index that assignment k could share with its reader, the next assignment, if it were outermost."""
        depth = len(walk.enclosing[k].loops)
        if k == len(nest.assignments) - 1 or nest.reader(self.count + k) != k + 1:
            return ()
        index = nest.assignments[k + 1].loops[depth : depth + 1]
        return index if walk.fused(self.count + k) == depth and set(index) <= set(nest.indices[self.count + k]) else ()

    def _seconds(
        self, around: Enclosing, order: Indices, reads: list[Access], workspace: Access | None, choices: Choices
    ) -> float:
        if workspace:
            return self.model.own_loops(around, order, reads, workspace)[0]
        loops = (*around.loops, *order)
        layout = self.formats.result(loops, choices.out)
        result = layout, loops, self._scattered(choices)
        seconds = self.model.own_loops(around, order, reads, self.model.result_access(*result))[0]
        return seconds + self.formats.reordering(layout) + self.model.result_seconds(*result)

    def _scattered(self, choices: Choices) -> frozenset[str]:
        """Return the indices that operands store compressed, with levels in the order of their subscripts."""
        if choices not in self._compressed:
            inputs = enumerate(self.formats.network.inputs)
            self._compressed[choices] = scattered([self.formats.operand(t, labels, choices) for t, labels in inputs])
        return self._compressed[choices]

    def _stored(self, operand: int, loops: Indices, choices: Choices) -> Access:
        layout = self.formats.operand(operand, loops, choices)
        return Access((operand,), layout.order, layout.kinds)


def listed(nest: Nest) -> Iterator[Nest]:
    """Yield the nest with lists of written elements: for each array whose reader can use one, and for all of them."""
    every = replace(nest, workspaces=tuple(replace(w, space="listed") for w in nest.workspaces))
    could = [k for k, w in enumerate(nest.workspaces) if w.space == "dense" and over_list(every, k)]
    for chosen in dict.fromkeys([*((k,) for k in could), tuple(could)]):
        if chosen:
            spaces = (replace(w, space="listed") if k in chosen else w for k, w in enumerate(nest.workspaces))
            yield replace(nest, workspaces=tuple(spaces))


def _orders(rest: Indices) -> Iterator[Indices]:
    """Yield all orders of the loops; if there are more than EVERY_ORDER loops, one for each innermost loop."""
    if len(rest) <= EVERY_ORDER:
        yield from permutations(rest)
        return
    for index in rest:
        yield (*(other for other in rest if other != index), index)
