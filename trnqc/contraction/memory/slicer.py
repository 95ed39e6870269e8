"""The search for slices of a tree within a memory limit, for trees of many steps, whose fusions are too many to follow.

Labels are sliced one by one. Each time, of the arrays that live where the loops hold most, one label and the place of
its loop among the others are chosen that save most memory for the least additional work. As steps that do not need a
label are not repeated in its loop, most of a tree is computed once where slices of the whole tree would repeat it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, log, prod

import numpy as np

from trnqc.contraction.memory.fusion_graph import FusedTree
from trnqc.contraction.memory.loop_nest import FusedNest, nest_of
from trnqc.contraction.memory.slicing import Slices
from trnqc.contraction.time_limit import out_of_time
from trnqc.contraction.tree import Tree

# Searches with random changes of the scores after the first, while there is time.
ROUNDS = 8
# Relative change of a score in these searches.
NOISE = 0.5
# Growth of the work, as a logarithm, below which labels differ by the memory that they save.
LEAST_GROWTH = 1e-3
# What is reported as not searched if the time is over.
SEARCH = "labels to slice"


@dataclass(frozen=True)
class SlicedNest:
    """Loops over slices, outermost first by number of label, and the multiply-adds and memory of their nest."""

    order: tuple[int, ...]
    nest: FusedNest
    work: float

    @property
    def arena(self) -> int:
        """Elements of temporaries."""
        return self.nest.arena


def sliced_within(tree: Tree, room: int) -> FusedNest | None:
    """Return the loops over slices of least work whose temporaries fit into `room` elements; None if it finds none.

    If the time for planning is over, the first search goes on with fewer choices. Operands of the tree are arrays.
    """
    search = _Search(tree, room)
    rng = np.random.default_rng(0)
    best = search.descent(None)
    for _ in range(ROUNDS):
        if best is None or not best.order or out_of_time(SEARCH):
            break
        other = search.descent(rng)
        if other is not None and other.work < best.work:
            best = other
    return best.nest if best else None


class _Search:
    """The search over one tree."""

    def __init__(self, tree: Tree, room: int) -> None:
        self.room = room
        # Labels whose loops would have one turn change nothing.
        self.slices = Slices(tree, [label for label, index in tree.indices.items() if index.extent > 1])
        names = [node.name for node in tree.nodes]
        self.place = {name: k for k, name in enumerate(names)}
        self.known: dict[tuple[int, ...], SlicedNest] = {}

    def nest(self, order: tuple[int, ...]) -> SlicedNest:
        """Return the nest of loops in this order."""
        if order not in self.known:
            fusion = self.slices.fusion(order)
            self.known[order] = SlicedNest(order, nest_of(fusion), self.slices.executed_in(order))
        return self.known[order]

    def descent(self, rng: np.random.Generator | None) -> SlicedNest | None:
        """Return loops that fit, from none by one more at a time; with random numbers not always the best one."""
        here = self.nest(())
        while here.arena > self.room:
            if rng is not None and out_of_time(SEARCH):
                return None
            order = self.with_one_more(here, rng)
            if order is None:
                return None
            here = self.nest(order)
        return self.with_larger_tiles(self.without_needless(here))

    def with_one_more(self, here: SlicedNest, rng: np.random.Generator | None) -> tuple[int, ...] | None:
        """Return the order with one more loop that saves most memory for its work; None if none saves any."""
        live = [self.place[name] for name in _largest_moment(here.nest)]
        before = self.slices.held(self.slices.scopes(here.order), live)
        best, least = None, inf
        for order in self.longer(here.order, live):
            scopes = self.slices.scopes(order)
            after = self.slices.held(scopes, live)
            if after >= before:
                continue
            growth = log(self.slices.executed(scopes) / here.work)
            score = (max(growth, 0.0) + LEAST_GROWTH) / log(before / max(after, min(self.room, before - 1) / 2, 1))
            if rng is not None:
                score *= 1 + NOISE * rng.random()
            if score < least:
                best, least = order, score
        return best

    def longer(self, order: tuple[int, ...], live: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """Yield orders with a label of these arrays at any place; outermost or innermost if the time is over."""
        among = sum(1 << place for place in live)
        places = (0, len(order)) if out_of_time(SEARCH) else range(len(order) + 1)
        for number, carried in enumerate(self.slices.carried):
            if carried & among and number not in order:
                yield from ((*order[:place], number, *order[place:]) for place in dict.fromkeys(places))

    def without_needless(self, here: SlicedNest) -> SlicedNest:
        """Return the loops without those that are not needed to fit, in an order of less work."""
        for number in here.order:
            if out_of_time(SEARCH):
                return here
            fewer = self.nest(tuple(other for other in here.order if other != number))
            if fewer.arena <= self.room and fewer.work <= here.work:
                here = fewer
        exchanged = self.nest(self.slices.exchanged(here.order))
        return exchanged if exchanged.arena <= self.room else here

    def with_larger_tiles(self, here: SlicedNest) -> SlicedNest:
        """Return the loops with tiles of several elements where these fit, which repeat less; inner loops first."""
        tree, labels = self.slices.tree, self.slices.labels
        tiles: dict[str, int] = {}
        best = here.nest
        for label in [labels[number] for number in reversed(here.order)]:
            tile = 2
            while tile < tree.extent(label) and not out_of_time(SEARCH):
                trial = nest_of(FusedTree(best.fusion.tree, best.fusion.fused, tiles | {label: tile}))
                if trial.arena > self.room:
                    break
                tiles, best, tile = tiles | {label: tile}, trial, 2 * tile
        return SlicedNest(here.order, best, best.fusion.work)


def _largest_moment(nest: FusedNest) -> list[str]:
    """Return the arrays that live at the moment at which they have most elements."""
    sizes = {name: prod(nest.fusion.shape(name)) for name in nest.temporaries}
    moments = sorted({first for first, _ in nest.lives.values()})
    alive = [[name for name, (first, last) in nest.lives.items() if first <= t <= last] for t in moments]
    return max(alive, key=lambda names: sum(sizes[name] for name in names))
