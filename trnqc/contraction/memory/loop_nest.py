"""The fused loop nest: loops over tiles, temporaries that are allocated and freed, and one step per array.

A nest follows from a `FusedTree`. It prints as pseudocode and knows its memory: every temporary has an offset in one
arena.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import prod

from trnqc.contraction.memory.arena import arena_offsets
from trnqc.contraction.memory.fusion_graph import FusedTree
from trnqc.contraction.memory.nest_builder import items_of
from trnqc.contraction.memory.nest_items import Allocate, Compute, Free, Item, TiledLoop, flat
from trnqc.expression.operand import Leaf


@dataclass(frozen=True)
class FusedNest:
    """The loop nest of a fusion with its outermost items in order.

    `inside` is the temporary that lies in the memory of the result (see `inner_operand`).
    """

    fusion: FusedTree
    body: tuple[Item, ...]
    inside: str | None = None

    @property
    def temporaries(self) -> tuple[str, ...]:
        """Names of the temporaries that take memory beside the result."""
        return tuple(name for name in self.fusion.temporaries if name != self.inside)

    @cached_property
    def lives(self) -> Mapping[str, tuple[int, int]]:
        """First and last moment of each temporary, counting all items of the nest in order."""
        first: dict[str, int] = {}
        last: dict[str, int] = {}
        for moment, item in enumerate(flat(self.body)):
            if isinstance(item, Allocate):
                first.setdefault(item.name, moment)
            elif isinstance(item, Free):
                last.setdefault(item.name, moment)
        return {name: (first[name], last[name]) for name in self.temporaries}

    @cached_property
    def offsets(self) -> Mapping[str, int]:
        """First element of each temporary in the arena. Temporaries that live at the same time do not overlap."""
        return arena_offsets({name: prod(self.fusion.shape(name)) for name in self.temporaries}, self.lives)

    @cached_property
    def fullest(self) -> tuple[str, ...]:
        """The temporaries that live at the moment at which these have most elements; no arena is smaller."""
        sizes = {name: prod(self.fusion.shape(name)) for name in self.temporaries}
        changes: dict[int, int] = {}
        for name, (first, last) in self.lives.items():
            changes[first] = changes.get(first, 0) + sizes[name]
            changes[last + 1] = changes.get(last + 1, 0) - sizes[name]
        moments = sorted(changes)
        held = list(accumulate(changes[moment] for moment in moments))
        fullest = moments[held.index(max(held))] if moments else 0
        return tuple(name for name, (first, last) in self.lives.items() if first <= fullest <= last)

    def fits(self, room: int) -> bool:
        """Return whether the temporaries fit into so many elements."""
        # Places in the arena take longer to find.
        return sum(prod(self.fusion.shape(name)) for name in self.fullest) <= room and self.arena <= room

    @property
    def arena(self) -> int:
        """Elements of the arena."""
        return max((offset + prod(self.fusion.shape(name)) for name, offset in self.offsets.items()), default=0)

    @cached_property
    def steps(self) -> tuple[tuple[Compute, tuple[str, ...]], ...]:
        """Every computation with the labels of the loops around it, outermost first."""
        return tuple(_steps(self.body, ()))

    def __str__(self) -> str:
        return "\n".join(self._lines(self.body, 0))

    def _lines(self, items: Sequence[Item], depth: int) -> Iterator[str]:
        for item in items:
            text = "    " * depth
            if isinstance(item, TiledLoop) and item.tile >= item.extent:
                yield from self._lines(item.body, depth)
            elif isinstance(item, TiledLoop):
                step = f" step {item.tile}" if item.tile > 1 else ""
                yield f"{text}for {item.label} in 0..{item.extent - 1}{step}:"
                yield from self._lines(item.body, depth + 1)
            elif isinstance(item, Allocate) and item.zero:
                yield f"{text}{self._written(item.name)} = 0"
            elif isinstance(item, Compute):
                yield f"{text}{self._step(item)}"

    def _written(self, name: str) -> str:
        """Return an array with the indices that it keeps; `i:8` marks a tile of 8."""
        shape = self.fusion.shape(name)
        array = self.fusion.arrays[name]
        root = name == self.fusion.tree.root.name
        whole = [self.fusion.tree.extent(i) for i in array.indices]
        labels = [i if n == full else f"{i}:{n}" for i, n, full in zip(array.indices, shape, whole) if n > 1 or root]
        return f"{name}[{','.join(labels)}]" if labels else name

    def _step(self, item: Compute) -> str:
        """Return a computation as text."""
        array = self.fusion.arrays[item.name]
        sign = "+=" if item.accumulate else "="
        if isinstance(array.source, Leaf):
            return f"{self._written(item.name)} {sign} {array.source.name}({', '.join(array.source.indices)})"
        computed = iter(array.inputs)
        factors = [
            self._written(next(computed)) if not isinstance(o, Leaf) or o.cost else str(o)
            for o in array.source.operands
        ]
        total = f"sum({','.join(array.summed)}) " if array.summed else ""
        text = f"{self._written(item.name)} {sign} {total}{' * '.join(factors)}"
        return f"{text}, in place" if self.inside in array.inputs else text


def inner_operand(fusion: FusedTree) -> str | None:
    """Return the temporary that may lie in the memory of the result, None if there is none.

    It shares no loop with the last step, and has all labels of the result except one, in whose place it has a label
    that is summed and not longer. The last step then exchanges one axis in place.
    """
    root, tree = fusion.arrays[fusion.tree.root.name], fusion.tree
    if isinstance(root.source, Leaf) or len(root.source.operands) != 2 or len(root.inputs) != 1:
        return None
    (name,) = root.inputs
    mine, own = set(fusion.arrays[name].indices), set(root.indices)
    gone, new = mine - own, own - mine
    if fusion.fused.get(name) or len(gone) != 1 or len(new) != 1 or set(root.summed) != gone:
        return None
    return name if tree.size(gone) <= tree.size(new) else None


def nest_of(fusion: FusedTree, inside: str | None = None) -> FusedNest:
    """Return the loop nest of a fusion.

    Of two producers beside each other, the one comes first whose temporaries exceed its result by more.
    """
    return FusedNest(fusion, items_of(fusion), inside)


def _steps(items: Iterable[Item], around: tuple[str, ...]) -> Iterator[tuple[Compute, tuple[str, ...]]]:
    """Yield every computation with the labels of the loops around it."""
    for item in items:
        if isinstance(item, TiledLoop):
            yield from _steps(item.body, (*around, item.label))
        elif isinstance(item, Compute):
            yield item, around
