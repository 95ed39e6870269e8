"""Loop fusion for least memory: a bottom-up search that keeps every partial solution that may be part of an optimum.

From the viewpoint of an array's consumer, a choice below is described by the fused indices, the required nesting of
their loops, and the memory and work spent. The chains through one array are nested, so their order is a sequence of
blocks, outermost first, with the loops of a block in any order. One partial solution dominates another if it requires
no nesting that the other does not require and spends no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial, reduce
from itertools import product

import numpy as np

from trnqc.contraction.memory.fusion_graph import ComputedArray, FusedTree, arrays_of, fusible
from trnqc.contraction.memory.loop_blocks import Blocks, merge, upward
from trnqc.contraction.order.network import bits
from trnqc.contraction.time_limit import FUSION, out_of_time
from trnqc.contraction.tree import Tree

# Partial solutions that are compared with all others at a time, and the bits of a word.
ROWS, WORD = 128, (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Partial:
    """Choices for one array and everything below it: fused indices as bits, and in blocks, outermost first.

    Bit i * n + j of `order` is set if loop j must lie inside loop i. `memory` counts elements, `work` multiply-adds.
    """

    name: str
    mask: int
    blocks: Blocks
    order: int
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
        self.outer: dict[int, int] = {}
        self.arrays: dict[str, ComputedArray] = {array.name: array for array in arrays_of(tree)}
        tile = [min(tiles.get(label, 1), tree.extent(label)) for label in self.labels]
        self.extent = [tree.extent(label) for label in self.labels]
        self.tile = tile
        self.turns = [-(-n // t) for n, t in zip(self.extent, tile)]
        # A loop with a single turn changes nothing.
        several = self.mask(label for label, turns in zip(self.labels, self.turns) if turns > 1)
        # The axes of each array, the loops of its step as bits, and the multiply-adds of the step.
        self.own = {
            name: (
                [self.labels.index(label) for label in array.indices],
                self.mask(array.loops),
                array.cost * tree.size(array.loops),
            )
            for name, array in self.arrays.items()
        }
        self.allowed = {name: self.mask(fusible(self.arrays, name, recompute)) & several for name in self.arrays}

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
                finals = _best([*finals, *self._round(width, finals)])
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

        def hopeless(memory: int, work: int) -> bool:
            return any(f.memory <= memory + rest_space and f.work <= work + rest_work for f in finals)

        merged = []
        for below in product(*inputs):
            _in_time()
            memory, work = sum(p.memory for p in below), sum(p.work for p in below)
            blocks = None if hopeless(memory, work) else merge([p.blocks for p in below])
            if blocks is not None:
                merged.append(Partial(array.name, 0, blocks, self._order(blocks), memory, work, below))
        allowed = self.allowed[array.name]
        _, own, _ = self.own[array.name]
        spent = cache(partial(self._spent, array))
        carried = []
        for one in _best(merged):
            _in_time()
            foreign = sum(one.blocks) & ~own
            for blocks in upward(one.blocks, allowed):
                mask = sum(blocks)
                if foreign & ~mask:
                    continue  # A loop over an index that this step does not have would sum the step again.
                space, again = spent(mask)
                memory, work = one.memory + space, one.work + again
                if not hopeless(memory, work):
                    carried.append(Partial(array.name, mask, blocks, self._order(blocks), memory, work, one.inputs))
        return _best(carried)

    def _least_elsewhere(self, array: ComputedArray) -> tuple[int, int]:
        """Return the least (elements, multiply-adds) of the arrays that are neither below nor at this one."""
        below, stack = set(), [array.name]
        while stack:
            below.add(name := stack.pop())
            stack += self.arrays[name].inputs
        others = [other for name, other in self.arrays.items() if name not in below]
        least = [(self._spent(other, self.allowed[other.name])[0], self._spent(other, 0)[1]) for other in others]
        return sum(space for space, _ in least), sum(work for _, work in least)

    def _spent(self, array: ComputedArray, mask: int) -> tuple[int, int]:
        """Return (elements held, multiply-adds) of the array itself; the result of the tree needs no memory."""
        axes, own, work = self.own[array.name]
        space = 0 if array.name == self.tree.root.name else 1
        for i in axes:
            space *= self.tile[i] if mask >> i & 1 else self.extent[i]
        for i in bits(mask & ~own):
            work *= self.turns[i]
        return space, work

    def _order(self, blocks: Blocks) -> int:
        """Return the pairs (outer, inner) that the blocks require; unfused loops lie inside all fused ones."""
        inside = (1 << len(self.labels)) - 1
        order = 0
        for block in blocks:
            inside &= ~block
            # A product puts the inner loops behind each of the outer ones.
            order |= inside * self._outer(block)
        return order

    def _outer(self, block: int) -> int:
        """Return the positions in an order of the first pairs of the loops of a block."""
        if block not in self.outer:
            self.outer[block] = sum(1 << i * len(self.labels) for i in bits(block))
        return self.outer[block]

    def choices(self, final: Partial) -> dict[str, frozenset[str]]:
        """Return the fused indices of every array."""
        labels = {final.name: frozenset(label for i, label in enumerate(self.labels) if final.mask >> i & 1)}
        for one in final.inputs:
            labels |= self.choices(one)
        return {name: fused for name, fused in labels.items() if fused}


def _best(partials: Iterable[Partial]) -> list[Partial]:
    """Return the partial solutions that none dominates, least memory first; of equals that with fewest fused loops."""
    ranked = sorted(partials, key=lambda p: (p.memory, p.work, p.mask.bit_count(), p.order.bit_count(), p.mask))
    # Among those that need no more memory, one with no more work and no other nesting dominates.
    ranks = {work: rank for rank, work in enumerate(sorted({p.work for p in ranked}))}
    work = np.array([ranks[p.work] for p in ranked])
    words = _words([p.order for p in ranked])
    kept: list[Partial] = []
    for start in range(0, len(ranked), ROWS):
        _in_time()
        stop = min(start + ROWS, len(ranked))
        # Few pairs pass the first word, so that the other tests are of these pairs only.
        i, j = np.nonzero((words[0][start:stop, None] & words[0][:stop]) == words[0][:stop])
        i += start
        pairs = j < i
        i, j = i[pairs], j[pairs]
        for word in words[1:]:
            pairs = (word[i] & word[j]) == word[j]
            i, j = i[pairs], j[pairs]
        dominated = set(i[work[j] <= work[i]].tolist())
        kept += [ranked[k] for k in range(start, stop) if k not in dominated]
    return kept


def _words(masks: list[int]) -> list[np.ndarray]:
    """Return bit masks as arrays of 64 bits each, those in which most bits differ first."""
    either, both = reduce(int.__or__, masks, 0), reduce(int.__and__, masks, masks[0] if masks else 0)
    starts = sorted(range(0, max(either.bit_length(), 1), 64), key=lambda s: -((either ^ both) >> s & WORD).bit_count())
    return [np.array([mask >> start & WORD for mask in masks], np.uint64) for start in starts]


def _few(partials: list[Partial], width: int) -> list[Partial]:
    """Return at most `width` solutions, evenly chosen, and the last, which fuses least and can always be completed."""
    step = -(-len(partials) // width)
    return partials if step <= 1 else [*partials[:-1:step], partials[-1]]
