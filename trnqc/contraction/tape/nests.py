"""Loops over slices as tapes: the parts of a loop nest whose steps are too small for calls of NumPy.

    items of a nest ─► those that run faster as instructions, together ─► a tape for each stretch of them

Large steps, functions and what else has no instruction stay items, which `run.loop_nest` runs. A tape depends on the
strides of the operands and on the lengths of the tiles around it. It is written when it is needed first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf, prod

import numpy as np

from trnqc.contraction.memory.fusion_graph import ComputedArray
from trnqc.contraction.memory.nest_items import Allocate, Compute, Item, TiledLoop
from trnqc.contraction.memory.schedule import TreeSchedule
from trnqc.contraction.tape.loops import CLEARS, DEEPEST, NOWHERE, REPEATS, ArrayPlace
from trnqc.contraction.tape.steps import StepWriter, contiguous
from trnqc.contraction.tree import union
from trnqc.expression.operand import Leaf

# Seconds of a step and of a multiply-add as an instruction, of a step and of a multiply-add as calls of NumPy, and of a
# call of the compiled function.
INSTRUCTION, BY_TAPE, CALLS, BY_CALLS, TAPE = 4e-8, 6e-10, 5e-5, 5e-11, 5e-6
# Numbers of an instruction beyond which a tape is not written: tiles of two lengths have their instructions twice.
LONGEST = 10**6
# Numbers of the first two buffers.
WORKSPACE, RESULT = range(2)
# Label -> elements of the current tile.
Lengths = Mapping[str, int]


@dataclass(frozen=True, eq=False)
class NestTape:
    """The instructions of some items; buffer 0 is the workspace, 1 the result, the others are operands by name."""

    code: np.ndarray


class NestTapes:
    """The items of one nest with tapes where these are faster, for each layout of the operands.

    `orders` are the axes of each temporary as they lie in memory, slowest first.
    """

    def __init__(self, schedule: TreeSchedule, orders: Mapping[str, tuple[str, ...]]) -> None:
        self.schedule, self.orders = schedule, orders
        self.names = tuple(dict.fromkeys(leaf.name for leaf in schedule.fusion.tree.leaves))
        self.of = lru_cache(maxsize=8)(self._of)

    def _of(self, strides: tuple[tuple[int, ...], ...]) -> LayoutTapes:
        """Return the tapes for operands with these strides, in elements, in the order of `names`."""
        return LayoutTapes(self.schedule, self.orders, dict(zip(self.names, strides)))


class LayoutTapes:
    """The items of a nest with tapes, for operands with certain strides."""

    def __init__(
        self,
        schedule: TreeSchedule,
        orders: Mapping[str, tuple[str, ...]],
        strides: Mapping[str, tuple[int, ...]],
    ) -> None:
        self.schedule, self.fusion = schedule, schedule.fusion
        self.known: dict[tuple[int, tuple[int, ...]], tuple[Item | NestTape, ...]] = {}
        root, extent = self.fusion.tree.root, self.fusion.tree.extent
        self.held = {root.name: (ArrayPlace(RESULT, 0, contiguous([extent(x) for x in root.indices])), root.indices)}
        for name, offset in schedule.nest.offsets.items():
            lengths = dict(zip(self.fusion.arrays[name].indices, self.fusion.shape(name)))
            place = ArrayPlace(WORKSPACE, offset, contiguous([lengths[label] for label in orders[name]]))
            self.held[name] = place, orders[name]
        self.leaves = {name: ArrayPlace(number, 0, of) for number, (name, of) in enumerate(strides.items(), RESULT + 1)}

    def entries(self, items: Sequence[Item], lengths: Lengths) -> tuple[Item | NestTape, ...]:
        """Return the items, with stretches of them that are faster as tapes replaced by these."""
        key = id(items), tuple(lengths.values())
        if key not in self.known:
            self.known[key] = tuple(self._entries(items, lengths))
        return self.known[key]

    def _entries(self, items: Sequence[Item], lengths: Lengths) -> Iterator[Item | NestTape]:
        stretch: list[Item] = []
        for item in items:
            if self._on_tape(item, lengths) <= self._apart(item, lengths):
                stretch.append(item)
                continue
            yield from self._tape(stretch, items, lengths)
            stretch = []
            yield item
        yield from self._tape(stretch, items, lengths)

    def _tape(self, stretch: Sequence[Item], items: Sequence[Item], lengths: Lengths) -> Iterator[Item | NestTape]:
        writer = _NestWriter(self)
        writer.items(stretch, items, lengths)
        if len(writer.code) > LONGEST:
            yield from stretch
        elif writer.code:
            yield NestTape(np.array(writer.code, np.int64))

    def _on_tape(self, item: Item, lengths: Lengths) -> float:
        """Return the seconds of an item as instructions; inf if it has none."""
        if isinstance(item, TiledLoop):
            turn = self._turn(item, lengths)
            return item.extent / item.tile * sum(self._on_tape(inner, turn) for inner in item.body)
        if item.name not in self.held:
            return inf
        if not isinstance(item, Compute):
            return 0.0
        array = self.fusion.arrays[item.name]
        return INSTRUCTION + BY_TAPE * self._work(array, lengths) if self._is_plain(array) else inf

    def _apart(self, item: Item, lengths: Lengths) -> float:
        """Return the seconds of an item that is run by itself, with tapes for what is within."""
        if isinstance(item, TiledLoop):
            turn = self._turn(item, lengths)
            within = sum(min(self._on_tape(inner, turn), self._apart(inner, turn)) for inner in item.body)
            return item.extent / item.tile * (TAPE + within)
        if not isinstance(item, Compute):
            return 0.0
        return CALLS + BY_CALLS * self._work(self.fusion.arrays[item.name], lengths)

    def _is_plain(self, array: ComputedArray) -> bool:
        """Return whether a step is a product or sum of arrays that lie where the tape can read and write them."""
        if isinstance(array.source, Leaf):
            return False
        leaves = [operand for operand in array.source.operands if isinstance(operand, Leaf)]
        if self.schedule.nest.inside in array.inputs or len(array.loops) >= DEEPEST - 3:
            return False
        return not any(leaf.cost or leaf.reciprocal for leaf in leaves)

    @staticmethod
    def _turn(loop: TiledLoop, lengths: Lengths) -> dict[str, int]:
        return {**lengths, loop.label: min(loop.tile, loop.extent)}

    @staticmethod
    def _work(array: ComputedArray, lengths: Lengths) -> int:
        return prod(lengths[label] for label in array.loops)


class _NestWriter(StepWriter):
    """Writes the instructions of items of a nest."""

    def __init__(self, tapes: LayoutTapes) -> None:
        super().__init__()
        self.tapes, self.fusion = tapes, tapes.fusion
        tree = self.fusion.tree
        self.extents = {label: tree.extent(label) for label in tree.indices}
        self.numbers = {label: number for number, label in enumerate(tree.indices)}

    def reserved(self, labels: Sequence[str], extents: Mapping[str, int]) -> ArrayPlace | None:
        """Return a place in the scratch, which holds one copy at a time."""
        shape = tuple(extents[label] for label in labels)
        if prod(shape) > self.tapes.schedule.scratch:
            return None
        return ArrayPlace(WORKSPACE, self.tapes.schedule.nest.arena, contiguous(shape))

    def release(self, place: ArrayPlace, size: int) -> None:
        """Nothing to note, since the next copy may lie in the same place."""

    def items(self, items: Sequence[Item], siblings: Sequence[Item], lengths: Lengths) -> None:
        """Write items. Steps only add: arrays are set to zero by the step beside their beginning, else there."""
        at_once = {item.name for item in siblings if isinstance(item, Compute)}
        begun = {item.name for item in siblings if isinstance(item, Allocate)}
        for item in items:
            if len(self.code) > LONGEST:
                return
            if isinstance(item, TiledLoop):
                self._loop(item, lengths)
            elif isinstance(item, Compute):
                cleared = self._elements(item.name) if item.name in begun else 0
                self._compute(self.fusion.arrays[item.name], cleared, lengths)
            elif isinstance(item, Allocate) and item.name not in at_once:
                place, _ = self.tapes.held[item.name]
                self.write((0, CLEARS, self._elements(item.name)), (place, place, NOWHERE), ())

    def _elements(self, name: str) -> int:
        root = self.fusion.tree.root
        return self.fusion.tree.size(root.indices) if name == root.name else prod(self.fusion.shape(name))

    def _loop(self, loop: TiledLoop, lengths: Lengths) -> None:
        """Write a loop; tiles that are shorter at its end come after it."""
        tile = min(loop.tile, loop.extent)
        turns, left = divmod(loop.extent, tile)
        for count, length, first in ((turns, tile, 0), (1, left, turns * tile)):
            if length:
                before = len(self.code)
                self.items(loop.body, loop.body, {**lengths, loop.label: length})
                body = self.code[before:]
                header = (self.numbers[loop.label], count, length, len(body), REPEATS, 0, 0, first, 0, 0, 0)
                self.code[before:] = [*header, *body]

    def _compute(self, array: ComputedArray, cleared: int, lengths: Lengths) -> None:
        assert not isinstance(array.source, Leaf)
        to = self._part(*self.tapes.held[array.name], array.indices, self.fusion.fused.get(array.name, ()), lengths)
        operands = []
        for operand in array.source.operands:
            if isinstance(operand, Leaf):
                labels = operand.indices
                place = self.tapes.leaves[operand.name]
                operands.append(self._part(place, labels, union(labels), (), lengths))
            else:
                fused = self.fusion.fused.get(operand.name, ())
                operands.append(self._part(*self.tapes.held[operand.name], operand.indices, fused, lengths))
        self.step(lengths, array.source, to, operands, 1.0, cleared)

    def _part(
        self,
        place: ArrayPlace,
        stored: Sequence[str],
        labels: Sequence[str],
        fused: frozenset[str] | tuple[str, ...],
        lengths: Lengths,
    ) -> ArrayPlace:
        """Return where the current part of an array lies, with strides for `labels`; tiles of fused ones are held."""
        strides = {label: sum(s for x, s in zip(stored, place.strides) if x == label) for label in labels}
        moved = [x for x in labels if x not in fused and lengths[x] < self.extents[x]]
        return replace(
            place,
            strides=tuple(strides[label] for label in labels),
            shifts=tuple((self.numbers[label], strides[label]) for label in moved),
        )
