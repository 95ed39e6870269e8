"""Loop fusion for least memory: a bottom-up search over the tree that keeps only what may still be part of an optimum.

Seen from an array's consumer, all that matters of the choices below is which indices are fused, which of their loops
must lie inside which, and what has been spent. The chains through one array are nested, so their order is a sequence of
blocks, outermost first, the loops within a block in any order. One partial solution beats another if it demands no
order that the other does not and spends no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from math import prod

from trnqc.contraction.memory.fusion_graph import Array, Fusion, arrays_of, fusible
from trnqc.contraction.time_limit import FUSION, out_of_time
from trnqc.contraction.tree import Tree

# Sets of indices are bit masks here: the search compares many thousands of them.
Blocks = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Partial:
    """Choices for one array and all below it. order: bit i * n + j is set if loop j must lie inside loop i."""

    name: str
    mask: int
    blocks: Blocks
    order: int
    memory: int
    work: int
    inputs: tuple[Partial, ...]


@dataclass(frozen=True)
class Front:
    """Fusions of which none is as good as another in both memory and work, least memory first.

    exact: nothing better exists. Else the search was cut short and nothing better was found. Empty where the time for
    planning was over before anything was.
    """

    fusions: tuple[Fusion, ...]
    exact: bool

    def __str__(self) -> str:
        least = self.fusions[-1].work if self.fusions else 1
        rows = [f"{f.memory:12.4g} elements  {f.work:12.4g} multiply-adds  {f.work / least:8.4g}" for f in self.fusions]
        return "\n".join([*rows, "exact" if self.exact else "cut short: better fusions may exist"])


def fusion_front(
    tree: Tree, *, recompute: bool = False, tiles: Mapping[str, int] | None = None, keep: int = 1000
) -> Front:
    """The best fusions in (memory, work); without recompute nothing is made twice and one fusion is best.

    tiles: what a fused loop leaves of each index, 1 where nothing is said. keep: how many partial solutions of one
    array are followed at most; where that is reached the front says that it is not exact.
    """
    search = _Search(tree, recompute, tiles or {}, keep)
    finals = search.solve()
    return Front(tuple(Fusion(tree, search.choices(final), dict(tiles or {})) for final in finals), search.exact)


def least_memory(tree: Tree) -> Fusion:
    """The fusion, without repeated work, whose temporaries need the fewest elements."""
    return fusion_front(tree).fusions[0]


class _OutOfTime(Exception):
    """The time for planning is over."""


def _in_time() -> None:
    if out_of_time("loops that steps share", FUSION):
        raise _OutOfTime


class _Search:
    def __init__(self, tree: Tree, recompute: bool, tiles: Mapping[str, int], keep: int) -> None:
        self.tree = tree
        self.keep = keep
        self.exact = True
        self.labels = list(tree.indices)
        self.arrays: dict[str, Array] = {array.name: array for array in arrays_of(tree)}
        tile = [min(tiles.get(label, 1), tree.extent(label)) for label in self.labels]
        self.extent = [tree.extent(label) for label in self.labels]
        self.tile = tile
        self.turns = [-(-n // t) for n, t in zip(self.extent, tile)]
        # A loop with a single turn changes nothing.
        several = self.mask(label for label, turns in zip(self.labels, self.turns) if turns > 1)
        self.allowed = {name: self.mask(fusible(self.arrays, name, recompute)) & several for name in self.arrays}

    def mask(self, labels: Iterable[str]) -> int:
        return sum(1 << self.labels.index(label) for label in set(labels))

    def solve(self) -> list[Partial]:
        """Best solutions of the root, least memory first.

        The early rounds follow only a few partial solutions of each array. What they complete bounds the last round,
        which follows all, and keeps it small.
        """
        finals: list[Partial] = []
        for width in (4, 32, self.keep):
            self.exact = True
            try:
                finals = _best([*finals, *self._round(width, finals)])
            except _OutOfTime:
                self.exact = False
                break
            if self.exact:
                break
        return finals

    def _round(self, width: int, finals: list[Partial]) -> list[Partial]:
        """Solutions of the root, where so many of each array are followed."""
        found: dict[str, list[Partial]] = {}
        for array in self.arrays.values():
            partials = self._solve(array, [found.pop(name) for name in array.inputs], finals)
            self.exact &= len(partials) <= width
            found[array.name] = _few(partials, width)
        return found[self.tree.root.name]

    def _solve(self, array: Array, inputs: list[list[Partial]], finals: list[Partial]) -> list[Partial]:
        rest_space, rest_work = self._least_elsewhere(array)

        def hopeless(memory: int, work: int) -> bool:
            return any(f.memory <= memory + rest_space and f.work <= work + rest_work for f in finals)

        merged = []
        for below in product(*inputs):
            _in_time()
            memory, work = sum(p.memory for p in below), sum(p.work for p in below)
            blocks = None if hopeless(memory, work) else _merge([p.blocks for p in below])
            if blocks is not None:
                merged.append(Partial(array.name, 0, blocks, self._order(blocks), memory, work, below))
        allowed = self.allowed[array.name]
        spent = cache(partial(self._spent, array))
        carried = []
        for one in _best(merged):
            for blocks in _upward(one.blocks, allowed):
                _in_time()
                mask = sum(blocks)
                space, again = spent(mask)
                memory, work = one.memory + space, one.work + again
                if not hopeless(memory, work):
                    carried.append(Partial(array.name, mask, blocks, self._order(blocks), memory, work, one.inputs))
        return _best(carried)

    def _least_elsewhere(self, array: Array) -> tuple[int, int]:
        """(elements, multiply-adds) that the arrays neither below nor at this one take at least."""
        below, stack = set(), [array.name]
        while stack:
            below.add(name := stack.pop())
            stack += self.arrays[name].inputs
        others = [other for name, other in self.arrays.items() if name not in below]
        least = [(self._spent(other, self.allowed[other.name])[0], self._spent(other, 0)[1]) for other in others]
        return sum(space for space, _ in least), sum(work for _, work in least)

    def _spent(self, array: Array, mask: int) -> tuple[int, int]:
        """(elements held, multiply-adds) of the array itself; the root is the caller's and counts no memory."""
        own = self.mask(array.loops)
        space = prod(self.tile[i] if mask >> i & 1 else self.extent[i] for i in map(self.labels.index, array.indices))
        again = prod(self.turns[i] for i in range(len(self.labels)) if mask & ~own & 1 << i)
        root = array.name == self.tree.root.name
        return (0 if root else space), array.cost * self.tree.size(array.loops) * again

    def _order(self, blocks: Blocks) -> int:
        """The pairs (outer, inner) that the blocks demand; what is not fused lies inside all that is."""
        count = len(self.labels)
        inside = (1 << count) - 1
        order = 0
        for block in blocks:
            inside &= ~block
            for i in range(count):
                if block >> i & 1:
                    order |= inside << i * count
        return order

    def choices(self, final: Partial) -> dict[str, frozenset[str]]:
        labels = {final.name: frozenset(label for i, label in enumerate(self.labels) if final.mask >> i & 1)}
        for one in final.inputs:
            labels |= self.choices(one)
        return {name: fused for name, fused in labels.items() if fused}


def _merge(orders: list[Blocks]) -> Blocks | None:
    """The blocks of loops around a step from those of its inputs; None where chains would overlap."""
    if len(orders) < 2:
        return orders[0] if orders else ()
    one, two = (list(blocks) for blocks in orders)
    merged = []
    while one and two:
        # The outermost loops of the one must be among the outermost of the other.
        both = one[0] & two[0]
        if not both:
            return None
        merged.append(both)
        one[0] &= ~both
        two[0] &= ~both
        if one[0] and two[0]:
            return None
        one, two = ([block for block in blocks if block] for blocks in (one, two))
    return (*merged, *one, *two)


def _upward(merged: Blocks, allowed: int) -> Iterator[Blocks]:
    """The ways to carry loops on to the consumer: an outer part of what is there, or all of it and further loops."""
    for depth, block in enumerate(merged):
        for part in _subsets(block & allowed):
            if part != block:
                yield (*merged[:depth], part) if part else merged[:depth]
        if block & ~allowed:
            return
    for extra in _subsets(allowed & ~sum(merged)):
        yield (*merged, extra) if extra else merged


def _subsets(mask: int) -> Iterator[int]:
    """All subsets of a bit mask, the empty one first."""
    part = 0
    while True:
        yield part
        if part == mask:
            return
        part = (part - mask) & mask


def _best(partials: Iterable[Partial]) -> list[Partial]:
    """Those that no other beats, least memory first; of equals the one with the fewest fused loops."""
    kept: list[Partial] = []
    least: dict[int, int] = {}  # order -> least work among those kept, none of which needs more memory than the next
    for one in sorted(partials, key=lambda p: (p.memory, p.work, p.mask.bit_count(), p.order.bit_count(), p.mask)):
        _in_time()
        free = ~one.order
        if not any(work <= one.work and not order & free for order, work in least.items()):
            kept.append(one)
            least[one.order] = one.work
    return kept


def _few(partials: list[Partial], width: int) -> list[Partial]:
    """At most `width` of them and the last, evenly taken; the last fuses least, so that something can be completed."""
    step = -(-len(partials) // width)
    return partials if step <= 1 else [*partials[:-1:step], partials[-1]]
