"""One choice of fused loops: memory, multiply-adds and time as functions of the tile sizes.

Tile sizes come as tables [trials, labels], so that a search evaluates many at once. The time model is simple and has
fixed relative rates: matrix products that are slower if they are thin, and moved elements, which are cheap while the
whole array stays in the cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, Literal

import numpy as np

from trnqc.contraction.memory.arena import ArenaPacking
from trnqc.contraction.memory.fusion_graph import ComputedArray, FusedTree
from trnqc.contraction.memory.loop_nest import FusedNest, nest_of
from trnqc.contraction.memory.tiles import Cost
from trnqc.contraction.products.product_plan import MOVE, MULTIPLY_ADD, START
from trnqc.contraction.tree import union
from trnqc.expression.operand import Leaf

Goal = Literal["time", "work"]
# Elements of the largest array that is assumed to stay in the last cache.
CACHE = 2**22
# Cost of moving an element within the cache, relative to memory.
NEAR = 0.1
# Additional moves of an element that is added to a result: it is written to scratch, read and added.
ADD = 2.0


class TiledLoops:
    """One choice of fused loops with its memory, work and time as functions of tables of tile sizes.

    `inside` is as of `loop_nest.FusedNest`; `scratch` has the elements for the blocks in which that array is exchanged.
    """

    def __init__(self, fusion: FusedTree, inside: str | None = None, scratch: int = 0) -> None:
        self.fusion = fusion
        self.tree = fusion.tree
        self.nest = nest_of(fusion, inside)
        self.blocks = 2 * self.tree.size(fusion.arrays[inside].indices) / scratch if inside else 0.0
        fused = {label for labels in fusion.fused.values() for label in labels}
        self.extents = {label: self.tree.extent(label) for label in self.tree.indices if label in fused}
        self.packing = ArenaPacking([self.nest.lives[name] for name in self.nest.temporaries])

    def uniform(self, *sizes: int) -> np.ndarray:
        """Return rows with all tiles of one size, as far as the indices are that long."""
        return np.minimum(np.array(sizes)[:, None], np.array([*self.extents.values()], int))

    def arena(self, trials: np.ndarray) -> np.ndarray:
        """Return the elements that hold all temporaries."""
        return self.packing.elements(self._sizes(trials))

    def _sizes(self, trials: np.ndarray) -> np.ndarray:
        """Return the elements that are held of each temporary, [trials, temporaries]."""
        tile = self._tiles(trials)
        sizes = np.empty((len(trials), len(self.nest.temporaries)))
        for k, name in enumerate(self.nest.temporaries):
            sizes[:, k] = self._held(name, tile)
        return sizes

    def _tiles(self, trials: np.ndarray) -> dict[str, np.ndarray]:
        """Return the tile sizes of each label."""
        return dict(zip(self.extents, trials.T.astype(float)))

    def _held(self, name: str, tile: Mapping[str, np.ndarray]) -> Any:
        """Return the elements that are held of an array."""
        fused = self.fusion.fused.get(name, frozenset())
        return prod(tile[i] if i in fused else self.tree.extent(i) for i in self.fusion.arrays[name].indices)

    def _turns(self, tile: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the number of turns of each fused loop."""
        return {label: np.ceil(extent / tile[label]) for label, extent in self.extents.items()}

    def work(self, trials: np.ndarray) -> np.ndarray:
        """Return the multiply-adds, including repetition and functions."""
        turns = self._turns(self._tiles(trials))
        total = np.zeros(len(trials))
        for name, array in self.fusion.arrays.items():
            again = prod(turns[label] for label in self.fusion.repeated(name))
            total += float(array.cost * self.tree.size(array.loops)) * again
        return total

    def time(self, trials: np.ndarray) -> np.ndarray:
        """Return the estimated time on a CPU in units of moving one element."""
        tile = self._tiles(trials)
        turns = self._turns(tile)
        total = np.full(len(trials), START * self.blocks)
        for step, around in self.nest.steps:
            array = self.fusion.arrays[step.name]
            length = {i: tile[i] if i in around else float(self.tree.extent(i)) for i in array.loops}
            accumulate = prod(turns[i] for i in around if i in array.summed) > 1
            total += prod(turns[i] for i in around) * self._step_time(array, length, tile, accumulate)
        return total

    def _step_time(
        self,
        array: ComputedArray,
        length: Mapping[str, Any],
        tile: Mapping[str, np.ndarray],
        accumulate: np.ndarray | bool,
    ) -> Any:
        """Return the time of one step; accumulate: whether it adds to its result."""
        if isinstance(array.source, Leaf):
            return START + array.cost * MULTIPLY_ADD * prod(length.values())
        computed = iter(array.inputs)
        moved = 0.0
        for o in array.source.operands:
            stored = isinstance(o, Leaf) and not o.cost
            whole = self.tree.size(union(o.indices)) if stored else self._held(next(computed), tile)
            moved = moved + _move(whole) * prod(length[i] for i in union(o.indices))
        part = prod(length[i] for i in array.indices)
        result = _move(self._held(array.name, tile)) * part
        # BLAS does not add to slices, so the product is formed in scratch first.
        moved = moved + result + accumulate * ADD * (result + NEAR * part)
        if len(array.source.operands) == 1:
            return START + MOVE * moved
        left, right = (set(operand.indices) for operand in array.source.operands)
        own = set(array.indices)
        m, n, k = (
            prod(length[i] for i in group)
            for group in ((left & own) - right, (right & own) - left, (left & right) - own)
        )
        slow = (1 + 25 / m + 25 / n) * (1 + 8 / k)
        return START + 2 * MOVE * moved + MULTIPLY_ADD * prod(length.values()) * slow

    def within(self, room: int, goal: Goal) -> Cost:
        """Return the cost of tile sizes, infinite where they do not fit into so many elements."""
        cost = self.time if goal == "time" else self.work

        def within(trials: np.ndarray) -> np.ndarray:
            costs = np.full(len(trials), np.inf)
            fits = self.packing.fits(self._sizes(trials), room)
            if fits.any():
                costs[fits] = cost(trials[fits])
            return costs

        return within

    def guess(self, room: int, goal: Goal) -> float:
        """Return the least cost of tiles of one size."""
        longest = max(self.extents.values(), default=1)
        sizes = [2**k for k in range(longest.bit_length() + 1)]
        return float(self.within(room, goal)(self.uniform(*sizes)).min())

    def tiled(self, tiles: Mapping[str, int]) -> FusedNest:
        """Return the loop nest with these tiles."""
        return nest_of(FusedTree(self.tree, self.fusion.fused, dict(tiles)), self.nest.inside)


def _move(whole: Any) -> Any:
    """Return the cost of moving an element of an array of this size, relative to memory."""
    return np.where(whole <= CACHE, NEAR, 1.0)
