"""Space against time: which loops to fuse, which work to repeat and which tiles to keep, so that a limit is met.

    tree ─ fronts of fusions, with and without repeated work ─► forms ─ tile sizes within the limit ─► Schedule

A limit that cannot be met is one error that prints the least memory possible.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Literal

from trnqc.contraction.chains import Array, Fusion
from trnqc.contraction.fusion import fusion_front
from trnqc.contraction.loops import Nest, nest_of, places
from trnqc.contraction.slices import MOVE, MULTIPLY_ADD, START
from trnqc.contraction.tiles import Cost, best_tiles
from trnqc.contraction.tree import Leaf, Tree
from trnqc.errors import MemoryLimit

# Uniform tiles at which fronts of fusions are made: what is best with scalars need not be with large tiles.
SEEDS = (1, 16, 128)
# Elements that the last cache holds, and what moving one costs there, as a part of what it costs in memory.
CACHE, NEAR = 2**22, 0.1
# Partial solutions followed for each array; the front of a small tree needs no more.
FOLLOWED = 100
# Elements: what a run may spend on copies at most, and what is enough to run at all.
LARGE_SCRATCH, SMALL_SCRATCH = 2**20, 64
# Elements: three buffers of 8192 elements that NumPy casts and copies through, and the objects of Python.
BUFFERS = 2**16
# How many fusions have their tiles searched, best guess first.
CANDIDATES = 4


@dataclass(frozen=True)
class Schedule:
    """How a tree is computed within a limit. scratch: elements for copies that products need, besides the arena."""

    nest: Nest
    scratch: int

    @property
    def fusion(self) -> Fusion:
        return self.nest.fusion

    @property
    def memory(self) -> int:
        """Elements that a run holds besides operands and result."""
        return self.nest.arena + self.scratch

    @property
    def work(self) -> int:
        return self.fusion.work

    def __str__(self) -> str:
        fusion = self.fusion
        split = [label for label in sorted(fusion.tiles) if fusion.turns(label) > 1]
        tiles = ", ".join(f"{label}: {fusion.tile(label)}" for label in split) or "none"
        return (
            f"{self.fusion}\ntiles: {tiles}\n"
            f"memory: {self.nest.arena:.4g} elements in one arena, {self.scratch:.4g} of scratch\n"
            f"{self.nest}"
        )


def schedule(
    tree: Tree, limit: int | None = None, scratch: int = 0, goal: Literal["time", "work"] = "time"
) -> Schedule:
    """The schedule of least estimated time that holds at most `limit` elements, scratch included.

    goal: "work" for the fewest multiply-adds instead, which is what the paper's tables count.
    Errors: MemoryLimit if no schedule needs that little.
    """
    plain = nest_of(Fusion(tree))
    if limit is None or plain.arena + scratch <= limit:
        return Schedule(plain, scratch)
    room = limit - scratch
    forms = [Form(fusion) for fusion in _fusions(tree)]
    fitting = [form for form in forms if form.arena(form.uniform(1)) <= room]
    if not fitting:
        least = min(form.arena(form.uniform(1)) for form in forms) + scratch
        raise MemoryLimit(
            f"the temporaries of {tree.root.name} need {least} elements at least, but the limit is {limit}: "
            f"raise it to {least} or more"
        )
    found = []
    for form in sorted(fitting, key=lambda form: form.guess(room, goal))[:CANDIDATES]:
        best = best_tiles(form.extents, form.within(room, goal))
        assert best is not None
        found.append((best[1], form.tiled(best[0])))
    return Schedule(nest_of(min(found, key=lambda pair: pair[0])[1]), scratch)


def schedule_within(tree: Tree, limit: int) -> Schedule:
    """`schedule` with parts of the limit set aside for the copies of products and for what NumPy itself holds."""
    limit -= min(limit // 4, BUFFERS)
    try:
        return schedule(tree, limit, min(limit // 5, LARGE_SCRATCH))
    except MemoryLimit:
        return schedule(tree, limit, SMALL_SCRATCH)


def _fusions(tree: Tree) -> list[Fusion]:
    """Fusions worth trying, each once."""
    found: dict[tuple[tuple[str, frozenset[str]], ...], Fusion] = {}
    for recompute in (False, True):
        for tile in SEEDS:
            tiles = dict.fromkeys(tree.indices, tile)
            for fusion in fusion_front(tree, recompute=recompute, tiles=tiles, keep=FOLLOWED).fusions:
                found.setdefault(tuple(sorted(fusion.fused.items())), fusion)
    return list(found.values())


class Form:
    """One choice of fused loops with its memory, work and time as functions of the tiles of the fused labels."""

    def __init__(self, fusion: Fusion) -> None:
        self.fusion = fusion
        self.tree = fusion.tree
        self.nest = nest_of(fusion)
        fused = {label for labels in fusion.fused.values() for label in labels}
        self.extents = {label: self.tree.extent(label) for label in self.tree.indices if label in fused}

    def uniform(self, size: int) -> dict[str, int]:
        return {label: min(size, extent) for label, extent in self.extents.items()}

    def arena(self, tiles: Mapping[str, int]) -> int:
        """Elements that hold all temporaries."""
        sizes = {name: self._held(name, tiles) for name in self.fusion.temporaries}
        found = places(sizes, self.nest.lives)
        return max((found[name] + sizes[name] for name in found), default=0)

    def _held(self, name: str, tiles: Mapping[str, int]) -> int:
        fused = self.fusion.fused.get(name, frozenset())
        return prod(tiles[i] if i in fused else self.tree.extent(i) for i in self.fusion.arrays[name].indices)

    def work(self, tiles: Mapping[str, int]) -> int:
        """Multiply-adds, repetition and functions included."""
        return sum(
            array.cost
            * self.tree.size(array.loops)
            * prod(-(-self.extents[label] // tiles[label]) for label in self.fusion.repeated(name))
            for name, array in self.fusion.arrays.items()
        )

    def time(self, tiles: Mapping[str, int]) -> float:
        """Estimated time on a CPU in moves of an element: products of matrices, slices read and written."""
        total = 0.0
        for step, around in self.nest.steps:
            turns = prod(-(-self.extents[label] // tiles[label]) for label in around)
            length = {i: tiles[i] if i in around else self.tree.extent(i) for i in self.fusion.arrays[step.name].loops}
            total += turns * self._step_time(self.fusion.arrays[step.name], length, step.accumulate)
        return total

    def _step_time(self, array: Array, length: Mapping[str, int], accumulate: bool) -> float:
        if isinstance(array.source, Leaf):
            return START + array.cost * MULTIPLY_ADD * prod(length.values())
        sides = [set(operand.indices) for operand in array.source.operands]
        touched = sum(prod(length[i] for i in side) for side in (*sides, array.indices))
        # BLAS does not add to slices: what is added is made in scratch first.
        moved = touched + accumulate * prod(length[i] for i in array.indices)
        move = MOVE * (NEAR if touched <= CACHE else 1)
        if len(sides) == 1:
            return START + move * moved
        left, right, result = *sides, set(array.indices)
        m, n, k = (
            prod(length[i] for i in group)
            for group in ((left & result) - right, (right & result) - left, (left & right) - result)
        )
        slow = (1 + 25 / m + 25 / n) * (1 + 8 / k)
        return START + 2 * move * moved + MULTIPLY_ADD * prod(length.values()) * slow

    def within(self, room: int, goal: Literal["time", "work"]) -> Cost:
        """The cost of tiles that fit into so many elements."""
        cost = self.time if goal == "time" else self.work
        known: dict[tuple[int, ...], float | None] = {}

        def value(tiles: Mapping[str, int]) -> float | None:
            # Searches come to the same sizes again and again.
            key = tuple(tiles[label] for label in self.extents)
            if key not in known:
                known[key] = cost(tiles) if self.arena(tiles) <= room else None
            return known[key]

        return value

    def guess(self, room: int, goal: Literal["time", "work"]) -> float:
        """The cost with tiles as long as all may be alike."""
        sizes = [2**k for k in range(max(self.extents.values(), default=1).bit_length() + 1)]
        costs = [self.within(room, goal)(self.uniform(size)) for size in sizes]
        return min(cost for cost in costs if cost is not None)

    def tiled(self, tiles: Mapping[str, int]) -> Fusion:
        return Fusion(self.tree, self.fusion.fused, dict(tiles))
