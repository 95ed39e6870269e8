"""The search for slices of a tree within a memory limit, for trees of many steps, whose fusions are too many to follow.

Labels are sliced one by one. Each time, of the arrays that live where the loops hold most, one label and the place of
its loop among the others are chosen that save most memory for the least additional work. As steps that do not need a
label are not repeated in its loop, most of a tree is computed once where slices of the whole tree would repeat it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from trnqc.contraction.memory.fusion_graph import FusedTree
from trnqc.contraction.memory.loop_nest import FusedNest, nest_of
from trnqc.contraction.memory.slicing import Slices, shared
from trnqc.contraction.order.heuristic import PARTS, improve
from trnqc.contraction.order.narrow import narrowed
from trnqc.contraction.order.network import LabelNetwork, Splits
from trnqc.contraction.order.operations import build, network_of
from trnqc.contraction.order.starts import greedy
from trnqc.contraction.time_limit import left_out, out_of_time
from trnqc.contraction.tree import Tree, TreeNode

# Searches with random changes in turn that may find nothing better, and the number of orders that they are for.
ROUNDS, TURNS = 150, 3
# Largest part of the loops that such a search takes away at first.
TAKEN = 0.6
# Relative change of a score in these searches.
NOISE = 0.5
# Greedy orders that are tried too, and the work, relative to that without a limit, at which the search ends.
GREEDY, ENOUGH = 12, 1.05
# Growth of the work, as a logarithm, below which labels differ by the memory that they save.
LEAST_GROWTH = 1e-3
# What is reported as not searched if the time is over.
SEARCH = "labels to slice"
# Fractions of the time for planning at which an order whose search was cut off is no longer improved, at which the
# search in the first order goes on with fewer choices, at which other orders are no longer tried, and at which the
# searches with random changes end.
AGAIN, FIRST, ORDERS, DESCENTS = 0.5, 0.6, 0.65, 0.95
# Number of loops up to which all labels are tried in all places, and exchanges of loops at the end.
FEW = 12
# Beyond these, labels that are tried too in places where other loops grow, and places for each.
PLACED, PLACES = 6, 4


@dataclass(frozen=True)
class SlicedNest:
    """Loops over slices, outermost first by number of label, with their nest and multiply-adds."""

    order: tuple[int, ...]
    nest: FusedNest
    work: float


@dataclass(frozen=True)
class _Loops:
    """Loops in an order, outermost first by number of label, with their scopes (see `Slices`).

    `peak` are the most elements that are held at one moment, of the results of the steps `live`.
    """

    order: tuple[int, ...]
    scopes: Mapping[int, int]
    work: float
    peak: float
    live: Sequence[int]


def sliced_within(tree: Tree, room: int) -> tuple[Tree, FusedNest] | None:
    """Return loops over slices of least work whose temporaries fit into `room` elements, and the tree they follow.

    The order of the products is that of the tree or one that takes less work with slices; None if no loops fit. As the
    time for planning passes, the first search goes on with fewer choices. Operands of the tree are arrays.
    """
    if left_out(PARTS):
        network = _network(tree)
        tree = _reordered(tree, network, improve(network, _splits(tree), until=AGAIN))
    found: list[tuple[SlicedNest, _Search]] = []
    for other in _orders(tree, room):
        search = _Search(other, room)
        nest = search.descent(None, found[0][0].work if found else None)
        if nest:
            found = sorted([(nest, search), *found], key=lambda entry: entry[0].work)
        if found and (found[0][0].work <= ENOUGH * tree.multiply_adds or out_of_time(SEARCH, ORDERS)):
            break
    rng = np.random.default_rng(0)
    number = in_vain = 0
    while found and in_vain < ROUNDS:
        if found[0][0].work <= ENOUGH * tree.multiply_adds or out_of_time(SEARCH, DESCENTS):
            break
        # The best orders take turns.
        at = number % min(TURNS, len(found))
        before, search = found[at]
        number, in_vain = number + 1, in_vain + 1
        if nest := search.descent(rng, found[0][0].work, _some(before.order, rng)):
            found = [(nest, search), *found[:at], *found[at + 1 :]]
            in_vain = 0
    return (found[0][1].tree, found[0][0].nest) if found else None


def _orders(tree: Tree, room: int) -> Iterator[Tree]:
    """Yield the tree itself, and in orders for slices, from its own order and from greedy ones."""
    network = _network(tree)

    def ordered(splits: Splits) -> Tree:
        return _reordered(tree, network, narrowed(network, splits, room, ORDERS))

    yield tree
    yield ordered(_splits(tree))
    for seed in range(GREEDY):
        yield ordered(improve(network, greedy(network, seed), until=ORDERS))


def _network(tree: Tree) -> LabelNetwork:
    extents = {label: tree.extent(label) for label in tree.indices}
    return network_of([leaf.indices for leaf in tree.leaves], tree.root.indices, extents, ())


def _reordered(tree: Tree, network: LabelNetwork, splits: Splits) -> Tree:
    """Return the tree with its products in another order."""
    return build(network, splits, tree.leaves, tree.root.indices, tree.indices, tree.root.name)


def _some(order: tuple[int, ...], rng: np.random.Generator) -> tuple[int, ...]:
    """Return an order without some of its labels."""
    taken = rng.random() * TAKEN
    return tuple(number for number in order if rng.random() >= taken)


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
        self.tree, self.room = tree, room
        # Labels whose loops would have one turn change nothing.
        self.slices = Slices(tree, [label for label, index in tree.indices.items() if index.extent > 1])
        self.known: dict[tuple[int, ...], _Loops] = {}

    def loops(self, order: tuple[int, ...]) -> _Loops:
        """Return the loops in this order."""
        if order not in self.known:
            scopes = self.slices.scopes(order)
            self.known[order] = _Loops(order, scopes, self.slices.executed(scopes), *self.slices.fullest(scopes))
        return self.known[order]

    def descent(
        self, rng: np.random.Generator | None, most: float | None, start: tuple[int, ...] = ()
    ) -> SlicedNest | None:
        """Return loops that fit, from some by one more at a time; with random numbers not always the best one.

        None if there are none, or, if `most` is given, if they take as many multiply-adds or if the time is over.
        """
        here: _Loops | None = self.loops(start)
        while here and here.peak > self.room:
            if most is not None and (here.work >= most or out_of_time(SEARCH, DESCENTS)):
                return None
            here = self.with_one_more(here, rng, most is not None, most is None and out_of_time(SEARCH, FIRST))
        here = here and self.without_needless(here)
        # Results that do not live at the same time may still not fit into one arena.
        while here and (most is None or here.work < most):
            nest = nest_of(self.slices.fusion(here.order))
            if nest.fits(self.room):
                return self.with_larger_tiles(here, nest)
            here = self.with_one_more(here, rng, most is not None, most is None and out_of_time(SEARCH, FIRST))
        return None

    def with_one_more(
        self, here: _Loops, rng: np.random.Generator | None, thorough: bool, hurried: bool
    ) -> _Loops | None:
        """Return the loops with the one more that saves most of what is held most for its work; None if none saves any.

        A thorough search tries all labels of these arrays in all places of a few loops. In a hurry, only labels of the
        largest array are tried, in places where no other loop grows.
        """
        slices, room = self.slices, min(self.room, here.peak - 1)
        elements = slices.elements(here.scopes)
        live = [max(here.live, key=elements.__getitem__)] if hurried else here.live
        among = sum(1 << place for place in live)

        def scores(after: np.ndarray, work: np.ndarray) -> np.ndarray:
            growth = np.maximum(np.log(work / here.work), 0) + LEAST_GROWTH
            change = 1 if rng is None else 1 + NOISE * rng.random(len(work))
            saved = np.log(here.peak / np.maximum(after, max(room / 2, 1)))
            return np.where(after < here.peak, change * growth / np.where(saved > 0, saved, 1), inf)

        trials = [
            trial
            for number, carried in enumerate(slices.carried)
            if carried & among and number not in here.scopes
            for trial in slices.longer(here.order, here.scopes, number)
        ]
        if not trials:
            return None
        held = np.zeros(len(elements))
        held[here.live] = elements[here.live]
        turns = np.exp(slices.logarithms[[trial.number for trial in trials]])
        sliced = slices.flags([slices.carried[trial.number] & shared(trial.scope) for trial in trials]) @ held
        again = slices.flags([trial.scope & ~slices.having[trial.number] for trial in trials])
        work = here.work + (turns - 1) * (again @ slices.step_work(here.scopes))
        found = scores(here.peak - (1 - 1 / turns) * sliced, work)
        orders = [_with(here.order, trial.number, trial.place) for trial in trials]
        # Other loops grow in some orders, whose work has to be counted anew.
        best = dict.fromkeys(trials[k].number for k in np.argsort(found, kind="stable"))
        grown: list[tuple[int, ...]] = []
        few = thorough and len(here.order) <= FEW
        for number in [] if hurried else list(best)[: None if few else PLACED]:
            innermost = max(trial.place for trial in trials if trial.number == number)
            places = range(innermost + 1, len(here.order) + 1)
            grown += [_with(here.order, number, k) for k in places[:: 1 if few else -(-len(places) // PLACES) or 1]]
        if grown:
            scopes = [slices.scopes(order) for order in grown]
            after = np.array([slices.elements(one)[here.live].sum() for one in scopes])
            found = np.concatenate([found, scores(after, np.array([slices.executed(one) for one in scopes]))])
            orders += grown
        least = int(np.argmin(found))
        return self.loops(orders[least]) if found[least] < inf else None

    def without_needless(self, here: _Loops) -> _Loops:
        """Return the loops without those that are not needed to fit, in an order of less work."""
        for number in here.order:
            if out_of_time(SEARCH):
                return here
            fewer = self.loops(tuple(other for other in here.order if other != number))
            if fewer.work <= here.work and fewer.peak <= self.room:
                here = fewer
        if len(here.order) > FEW:
            return here
        exchanged = self.loops(self.slices.exchanged(here.order))
        return exchanged if exchanged.peak <= self.room else here

    def with_larger_tiles(self, here: _Loops, nest: FusedNest) -> SlicedNest:
        """Return the nest with tiles of several elements where these fit, which repeat less; inner loops first."""
        tree, labels = self.slices.tree, self.slices.labels
        tiles: dict[str, int] = {}
        for label in [labels[number] for number in reversed(here.order)]:
            tile = 2
            while tile < tree.extent(label) and not out_of_time(SEARCH):
                trial = nest_of(FusedTree(nest.fusion.tree, nest.fusion.fused, tiles | {label: tile}))
                if not trial.fits(self.room):
                    break
                tiles, nest, tile = tiles | {label: tile}, trial, 2 * tile
        return SlicedNest(here.order, nest, nest.fusion.work)


def _with(order: tuple[int, ...], number: int, place: int) -> tuple[int, ...]:
    """Return the order with one more label at a place."""
    return (*order[:place], number, *order[place:])
