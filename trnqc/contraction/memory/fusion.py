"""Loop fusion for least memory: a bottom-up search that keeps every partial solution that may be part of an optimum.

From the viewpoint of an array's consumer, a choice below is described by the fused indices, the required nesting of
their loops, and the memory and work spent. The chains through one array are nested, so their order is a sequence of
blocks, outermost first, with the loops of a block in any order. One partial solution dominates another if it requires
no nesting that the other does not require and spends no more.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import NamedTuple

from trnqc.contraction.memory.fusion_graph import ComputedArray, FusedTree, arrays_of, every_fusible
from trnqc.contraction.memory.loop_blocks import Blocks, Nestings, merge, upward
from trnqc.contraction.order.network import bits
from trnqc.contraction.time_limit import FUSION, out_of_time
from trnqc.contraction.tree import Tree

# Whether so many elements and multiply-adds cannot be part of a better solution.
Hopeless = Callable[[int, int], bool]
# Partial solutions that are formed or compared between two looks at the clock.
ROWS = 1024


class Partial(NamedTuple):
    """Choices for one array and everything below it: fused indices as bits, and in blocks, outermost first.

    `memory` counts elements, `work` multiply-adds.
    """

    name: str
    mask: int
    blocks: Blocks
    memory: int
    work: int
    inputs: tuple[Partial, ...]


@dataclass(frozen=True)
class Front:
    """Fusions of which none is dominated in both memory and work, least memory first.

    There is none if the time limit was reached before the first was complete; if not `exact`, the search was cut short
    and a better fusion may exist.
    """

    fusions: tuple[FusedTree, ...]
    exact: bool

    def __str__(self) -> str:
        least = self.fusions[-1].work if self.fusions else 1
        rows = [f"{f.memory:12.4g} elements  {f.work:12.4g} multiply-adds  {f.work / least:8.4g}" for f in self.fusions]
        return "\n".join([*rows, "exact" if self.exact else "cut short: better fusions may exist"])


def fusion_front(
    tree: Tree, *, recompute: bool = False, tiles: Mapping[str, int] | None = None, keep: int = 1000
) -> Front:
    """Return the best fusions in (memory, work).

    Parameters
    ----------
    tree : Tree
        The operations.
    recompute : bool
        Whether arrays may be computed repeatedly. If not, a single fusion is the best.
    tiles : mapping, optional
        Elements of an index that one turn of its fused loop covers; 1 where there is no entry.
    keep : int
        Largest number of partial solutions that are followed for each array. If it is reached, the front is not exact.
    """
    search = _Search(tree, recompute, tiles or {}, keep)
    finals = search.solve()
    return Front(tuple(FusedTree(tree, search.choices(final), dict(tiles or {})) for final in finals), search.exact)


def least_memory(tree: Tree) -> FusedTree:
    """Return the fusion, without repeated work, whose temporaries need the fewest elements."""
    return fusion_front(tree).fusions[0]


class _OutOfTime(Exception):
    """Raised if the time for planning is over."""


def _in_time() -> None:
    """Raise _OutOfTime if the time for this search is over."""
    if out_of_time("loops that steps share", FUSION):
        raise _OutOfTime


class _Search:
    """The search over one tree; sets of indices are bit masks."""

    def __init__(self, tree: Tree, recompute: bool, tiles: Mapping[str, int], keep: int) -> None:
        self.tree = tree
        self.keep = keep
        # The fusion without repeated work bounds the search with it.
        self.start = _Search(tree, False, tiles, keep).solve() if recompute else []
        self.exact = True
        self.labels = list(tree.indices)
        self.everything = (1 << len(self.labels)) - 1
        # The inputs' solutions and the array's own solutions in the last round, by array.
        self.solved: dict[str, tuple[list[list[Partial]], list[Partial]]] = {}
        self.arrays: dict[str, ComputedArray] = {array.name: array for array in arrays_of(tree)}
        tile = [min(tiles.get(label, 1), tree.extent(label)) for label in self.labels]
        self.extent = [tree.extent(label) for label in self.labels]
        self.tile = tile
        self.turns = [-(-n // t) for n, t in zip(self.extent, tile)]
        # A loop with a single turn changes nothing.
        several = self.mask(label for label, turns in zip(self.labels, self.turns) if turns > 1)
        self.axes = {name: self.mask(array.indices) for name, array in self.arrays.items()}
        self.loops = {name: self.mask(array.loops) for name, array in self.arrays.items()}
        # Elements held by the loops over axes of an array, and multiply-adds by the other loops around its step.
        self.held: dict[str, dict[int, int]] = {name: {} for name in self.arrays}
        self.worked: dict[str, dict[int, int]] = {name: {} for name in self.arrays}
        allowed = every_fusible(self.arrays, recompute)
        self.allowed = {name: self.mask(allowed[name]) & several for name in self.arrays}

    def mask(self, labels: Iterable[str]) -> int:
        """Return labels as bits."""
        return sum(1 << self.labels.index(label) for label in set(labels))

    def solve(self) -> list[Partial]:
        """Return the best solutions of the root, least memory first.

        Early rounds follow a few partial solutions of each array. What they complete bounds the last round, which
        follows all.
        """
        finals: list[Partial] = list(self.start)
        for width in (4, 32, self.keep):
            self.exact = True
            try:
                finals = _best([*finals, *self._round(width, finals)], self.everything)
            except _OutOfTime:
                self.exact = False
                break
            if self.exact:
                break
        return finals

    def _round(self, width: int, finals: list[Partial]) -> list[Partial]:
        """Return the solutions of the root with at most `width` partial solutions of each array."""
        solutions: dict[str, list[Partial]] = {}
        for array in self.arrays.values():
            partials = self._solve(array, [solutions.pop(name) for name in array.inputs], finals)
            self.exact &= len(partials) <= width
            solutions[array.name] = _few(partials, width)
        return solutions[self.tree.root.name]

    def _solve(self, array: ComputedArray, inputs: list[list[Partial]], finals: list[Partial]) -> list[Partial]:
        """Return the partial solutions of one array from its inputs' solutions; `finals` are complete, as bounds."""
        rest_space, rest_work = self._least_elsewhere(array)
        # A complete solution of more memory takes less work, so that one of them decides.
        complete = [f.memory for f in finals], [f.work for f in finals]

        def hopeless(memory: int, work: int) -> bool:
            smaller = bisect_right(complete[0], memory + rest_space)
            return smaller > 0 and complete[1][smaller - 1] <= work + rest_work

        # If nothing is new below, the solutions of the last round are the best, but some have become hopeless.
        before, partials = self.solved.get(array.name, (None, []))
        if before == inputs:
            partials = [one for one in partials if not hopeless(one.memory, one.work)]
        else:
            partials = self._carried(array, self._merged(array, inputs, hopeless), hopeless)
        self.solved[array.name] = inputs, partials
        return partials

    def _merged(self, array: ComputedArray, inputs: list[list[Partial]], hopeless: Hopeless) -> list[Partial]:
        """Return the choices of loops around the step of an array."""
        merged = []
        for below in product(*inputs):
            _in_time()
            memory, work = sum(p.memory for p in below), sum(p.work for p in below)
            blocks = None if hopeless(memory, work) else merge([p.blocks for p in below])
            if blocks is not None:
                merged.append(Partial(array.name, 0, blocks, memory, work, below))
        return _best(merged, self.everything)

    def _carried(self, array: ComputedArray, merged: list[Partial], hopeless: Hopeless) -> list[Partial]:
        """Return the choices of loops that the array shares with its consumer."""
        allowed, own = self.allowed[array.name], self.loops[array.name]
        carried = []
        for one in merged:
            # A loop over an index that this step does not have would sum the step again if it ended here.
            for number, blocks in enumerate(upward(one.blocks, allowed, sum(one.blocks) & ~own)):
                if not number % ROWS:
                    _in_time()
                mask = sum(blocks)
                memory, work = one.memory + self._space(array, mask), one.work + self._work(array, mask)
                if not hopeless(memory, work):
                    carried.append(Partial(array.name, mask, blocks, memory, work, one.inputs))
        return _best(carried, self.everything)

    def _least_elsewhere(self, array: ComputedArray) -> tuple[int, int]:
        """Return the least (elements, multiply-adds) of the arrays that are neither below nor at this one."""
        below, stack = set(), [array.name]
        while stack:
            below.add(name := stack.pop())
            stack += self.arrays[name].inputs
        others = [other for name, other in self.arrays.items() if name not in below]
        least = [(self._space(other, self.allowed[other.name]), self._work(other, 0)) for other in others]
        return sum(space for space, _ in least), sum(work for _, work in least)

    def _space(self, array: ComputedArray, mask: int) -> int:
        """Return the elements that are held of the array; the result of the tree needs no memory."""
        held, key = self.held[array.name], mask & self.axes[array.name]
        if key not in held:
            lengths = (self.tile[i] if key >> i & 1 else self.extent[i] for i in bits(self.axes[array.name]))
            held[key] = 0 if array.name == self.tree.root.name else prod(lengths)
        return held[key]

    def _work(self, array: ComputedArray, mask: int) -> int:
        """Return the multiply-adds of the step of the array itself."""
        worked, key = self.worked[array.name], mask & ~self.loops[array.name]
        if key not in worked:
            worked[key] = array.cost * self.tree.size(array.loops) * prod(self.turns[i] for i in bits(key))
        return worked[key]

    def choices(self, final: Partial) -> dict[str, frozenset[str]]:
        """Return the fused indices of every array."""
        labels = {final.name: frozenset(label for i, label in enumerate(self.labels) if final.mask >> i & 1)}
        for one in final.inputs:
            labels |= self.choices(one)
        return {name: fused for name, fused in labels.items() if fused}


def _best(partials: Iterable[Partial], loops: int) -> list[Partial]:
    """Return the partial solutions that none dominates, least memory first; of equals that with fewest fused loops.

    `loops` are all loops as bits: those that are not fused lie inside all fused ones.
    """

    def nesting(one: Partial) -> Blocks:
        rest = loops & ~sum(one.blocks)
        return (*one.blocks, rest) if rest else one.blocks

    def rank(entry: tuple[Partial, Blocks]) -> tuple[int, ...]:
        one, blocks = entry
        return one.memory, one.work, one.mask.bit_count(), len(blocks), one.mask

    kept: list[Partial] = []
    earlier = Nestings()
    for number, (one, blocks) in enumerate(sorted(((one, nesting(one)) for one in partials), key=rank)):
        if not number % ROWS:
            _in_time()
        # Those before need no more memory.
        if not earlier.dominates(blocks, one.work):
            earlier.add(blocks, one.work)
            kept.append(one)
    return kept


def _few(partials: list[Partial], width: int) -> list[Partial]:
    """Return at most `width` solutions, evenly chosen, and the last, which fuses least and can always be completed."""
    step = -(-len(partials) // width)
    return partials if step <= 1 else [*partials[:-1:step], partials[-1]]
