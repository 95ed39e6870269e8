"""The search for slices of a tree within a memory limit, for trees of many steps, whose fusions are too many to follow.

Labels are sliced one by one. Each time, of the arrays that live where the loops hold most, one label and the place of
its loop among the others are chosen that save most memory for the least additional work. As steps that do not need a
label are not repeated in its loop, most of a tree is computed once where slices of the whole tree would repeat it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, log, prod

import numpy as np

from trnqc.contraction.memory.fusion_graph import FusedTree
from trnqc.contraction.memory.loop_nest import FusedNest, nest_of
from trnqc.contraction.memory.slicing import Slices
from trnqc.contraction.order.heuristic import greedy, improve
from trnqc.contraction.order.narrow import narrowed
from trnqc.contraction.order.network import Splits
from trnqc.contraction.order.operations import build, network_of
from trnqc.contraction.time_limit import out_of_time
from trnqc.contraction.tree import Tree, TreeNode

# Searches with random changes of the scores after the first, while there is time.
ROUNDS = 8
# Relative change of a score in these searches.
NOISE = 0.5
# Greedy orders that are tried too, and the work, relative to that without a limit, at which the search ends.
GREEDY, ENOUGH = 4, 1.05
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


def sliced_within(tree: Tree, room: int) -> tuple[Tree, FusedNest] | None:
    """Return loops over slices of least work whose temporaries fit into `room` elements, and the tree they follow.

    The order of the products is that of the tree or one that takes less work with slices; None if no loops fit. If the
    time for planning is over, the first search goes on with fewer choices. Operands of the tree are arrays.
    """
    best: tuple[Tree, SlicedNest] | None = None
    for other in _orders(tree, room):
        found = _Search(other, room).descent(None, best[1].work if best else None)
        best = (other, found) if found else best
        if best and (best[1].work <= ENOUGH * tree.multiply_adds or out_of_time(SEARCH)):
            break
    rng = np.random.default_rng(0)
    search = _Search(best[0], room) if best else None
    for _ in range(ROUNDS):
        if best is None or search is None or not best[1].order or out_of_time(SEARCH):
            break
        found = search.descent(rng, best[1].work)
        best = (best[0], found) if found else best
    return (best[0], best[1].nest) if best else None


def _orders(tree: Tree, room: int) -> Iterator[Tree]:
    """Yield the tree in orders for slices, from its own order, itself, and orders for slices from greedy orders."""
    leaves, root = tree.leaves, tree.root
    extents = {label: tree.extent(label) for label in tree.indices}
    network = network_of([leaf.indices for leaf in leaves], root.indices, extents, ())

    def ordered(splits: Splits) -> Tree:
        return build(network, narrowed(network, splits, room), leaves, root.indices, tree.indices, root.name)

    yield ordered(_splits(tree))
    yield tree
    for seed in range(GREEDY):
        yield ordered(improve(network, greedy(network, seed), until=1.0))


def _splits(tree: Tree) -> Splits:
    """Return the order of a tree, whose operands are numbered as its leaves."""
    splits: Splits = {}
    parts: dict[str, int] = {}
    numbers = iter(range(len(tree.leaves)))
    for node in tree.nodes:
        halves = [parts[o.name] if isinstance(o, TreeNode) else 1 << next(numbers) for o in node.operands]
        parts[node.name] = sum(halves)
        if len(halves) == 2:
            splits[sum(halves)] = halves[0], halves[1]
    return splits


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

    def descent(self, rng: np.random.Generator | None, most: float | None) -> SlicedNest | None:
        """Return loops that fit, from none by one more at a time; with random numbers not always the best one.

        None if there are none, or, if `most` is given, if they take as many multiply-adds or if the time is over.
        """
        here = self.nest(())
        while here.arena > self.room:
            if most is not None and (here.work >= most or out_of_time(SEARCH)):
                return None
            order = self.with_more(here, rng)
            if order is None:
                return None
            here = self.nest(order)
        found = self.with_larger_tiles(self.without_needless(here))
        return found if most is None or found.work < most else None

    def with_more(self, here: SlicedNest, rng: np.random.Generator | None) -> tuple[int, ...] | None:
        """Return the order with one more loop; None if none saves memory.

        If the time is over, loops are added until what was held most of fits, since nests take long to build.
        """
        live = [self.place[name] for name in _largest_moment(here.nest)]
        order = self.with_one_more(here.order, live, rng)
        while order and out_of_time(SEARCH) and self.slices.held(self.slices.scopes(order), live) > self.room:
            longer = self.with_one_more(order, live, rng)
            if longer is None:
                break
            order = longer
        return order

    def with_one_more(
        self, here: tuple[int, ...], live: Sequence[int], rng: np.random.Generator | None
    ) -> tuple[int, ...] | None:
        """Return the order with the loop that saves most of these arrays for its work; None if none saves any."""
        scopes = self.slices.scopes(here)
        before, work = self.slices.held(scopes, live), self.slices.executed(scopes)
        best, least = None, inf
        for order in self.longer(here, live, scopes):
            scopes = self.slices.scopes(order)
            after = self.slices.held(scopes, live)
            if after >= before:
                continue
            growth = log(self.slices.executed(scopes) / work)
            score = (max(growth, 0.0) + LEAST_GROWTH) / log(before / max(after, min(self.room, before - 1) / 2, 1))
            if rng is not None:
                score *= 1 + NOISE * rng.random()
            if score < least:
                best, least = order, score
        return best

    def longer(
        self, order: tuple[int, ...], live: Sequence[int], scopes: Mapping[int, int]
    ) -> Iterator[tuple[int, ...]]:
        """Yield orders with a label of these arrays at any place.

        If the time is over, only labels of the largest array are tried, outermost and innermost.
        """
        hurried = out_of_time(SEARCH)
        if hurried:
            live = [max(live, key=lambda place: self.slices.held(scopes, [place]))]
        among = sum(1 << place for place in live)
        places = (0, len(order)) if hurried else range(len(order) + 1)
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
