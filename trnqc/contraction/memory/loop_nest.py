"""The fused loop nest: loops over tiles, temporaries that are allocated and freed, and one step per array.

A nest follows from a `FusedTree`. It prints as pseudocode and knows its memory: every temporary has an offset in one
arena.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from trnqc.contraction.memory.arena import arena_offsets
from trnqc.contraction.memory.fusion_graph import ComputedArray, FusedTree
from trnqc.expression.operand import Leaf


@dataclass(frozen=True)
class Allocate:
    """The array begins to exist. With `zero` its elements are set to zero, because parts are added to them."""

    name: str
    zero: bool


@dataclass(frozen=True)
class Compute:
    """Compute the part of the array that belongs to the current tiles, or with `accumulate` add to it."""

    name: str
    accumulate: bool


@dataclass(frozen=True)
class Free:
    """The array is no longer needed."""

    name: str


@dataclass(frozen=True)
class TiledLoop:
    """``for label in range(0, extent, tile)``."""

    label: str
    tile: int
    extent: int
    body: tuple[Item, ...]


Item = Allocate | Compute | Free | TiledLoop


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
        for moment, item in enumerate(_flat(self.body)):
            if isinstance(item, Allocate):
                first.setdefault(item.name, moment)
            elif isinstance(item, Free):
                last.setdefault(item.name, moment)
        return {name: (first[name], last[name]) for name in self.temporaries}

    @cached_property
    def offsets(self) -> Mapping[str, int]:
        """First element of each temporary in the arena. Temporaries that live at the same time do not overlap."""
        return arena_offsets({name: prod(self.fusion.shape(name)) for name in self.temporaries}, self.lives)

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
    body: list[Item | _Open] = []
    _Builder(fusion).emit(fusion.arrays[fusion.tree.root.name], (), [body])
    return FusedNest(fusion, _closed(body, fusion.arrays), inside)


@dataclass
class _Open:
    """A loop under construction."""

    loop: TiledLoop
    body: list[Item | _Open]


class _Builder:
    """Writes the items of a nest, consumers after producers."""

    def __init__(self, fusion: FusedTree) -> None:
        self.fusion = fusion

    def emit(self, array: ComputedArray, around: tuple[str, ...], bodies: list[list[Item | _Open]]) -> None:
        """Write the items that compute the array.

        `around` are the loops that the array shares with its consumer, `bodies` the outermost body of the nest and the
        bodies of these loops. A producer that shares fewer loops is written before the first loop that it does not
        share. As chains are nested, that loop is the last item of its body.
        """
        depth = len(around)
        fusion = self.fusion
        inputs = [(fusion.labels(name), fusion.arrays[name]) for name in array.inputs]
        beside = []
        for labels, child in inputs:
            if len(labels) <= depth:
                written: list[Item | _Open] = []
                self.emit(child, labels, [*bodies[: len(labels)], written])
                beside.append((self._need(written, child), len(labels), written))
        for _, level, written in sorted(beside, key=lambda entry: entry[0]):
            position = len(bodies[level]) - (level < depth)
            bodies[level][position:position] = written
        within = sorted((entry for entry in inputs if len(entry[0]) > depth), key=lambda entry: len(entry[0]))
        opened = within[-1][0][depth:] if within else ()
        accumulate = any(label in array.summed and fusion.turns(label) > 1 for label in opened)
        bodies[depth].append(Allocate(array.name, accumulate))
        bodies = list(bodies)
        for labels, child in within:
            for label in labels[len(bodies) - 1 :]:
                tile, extent = fusion.tile(label), fusion.tree.extent(label)
                loop = _Open(TiledLoop(label, tile, extent, ()), [])
                bodies[-1].append(loop)
                bodies.append(loop.body)
            self.emit(child, labels, bodies)
        bodies[-1].append(Compute(array.name, accumulate))

    def _need(self, written: list[Item | _Open], array: ComputedArray) -> int:
        """Return the most that the items hold beyond their result, negated, for sorting (Sethi and Ullman, 1970)."""
        names = {item.name for item in _flat(_plain(written)) if isinstance(item, Allocate)}
        return prod(self.fusion.shape(array.name)) - sum(prod(self.fusion.shape(name)) for name in names)


def _plain(items: Iterable[Item | _Open]) -> tuple[Item, ...]:
    """Return the items with loops under construction closed."""
    return tuple(replace(i.loop, body=_plain(i.body)) if isinstance(i, _Open) else i for i in items)


def _closed(items: Iterable[Item | _Open], arrays: Mapping[str, ComputedArray]) -> tuple[Item, ...]:
    """Return the finished body: every array is freed after the last item of its body that uses it."""
    done: list[Item] = [
        replace(item.loop, body=_closed(item.body, arrays)) if isinstance(item, _Open) else item for item in items
    ]
    begun = {item.name for item in done if isinstance(item, Allocate)}
    last = {name: t for t, item in enumerate(done) for i in _flat([item]) for name in _uses(i, arrays) if name in begun}
    freed: dict[int, list[Item]] = {}
    for name in (item.name for item in done if isinstance(item, Allocate) and item.name in last):
        # What begins later is freed first.
        freed.setdefault(last[name], []).insert(0, Free(name))
    return tuple(item for t, one in enumerate(done) for item in (one, *freed.get(t, ())))


def _uses(item: Item, arrays: Mapping[str, ComputedArray]) -> tuple[str, ...]:
    """Return the arrays that an item reads."""
    return arrays[item.name].inputs if isinstance(item, Compute) else ()


def _flat(items: Iterable[Item]) -> Iterator[Item]:
    """Yield all items of a nest in order."""
    for item in items:
        yield item
        if isinstance(item, TiledLoop):
            yield from _flat(item.body)


def _steps(items: Iterable[Item], around: tuple[str, ...]) -> Iterator[tuple[Compute, tuple[str, ...]]]:
    """Yield every computation with the labels of the loops around it."""
    for item in items:
        if isinstance(item, TiledLoop):
            yield from _steps(item.body, (*around, item.label))
        elif isinstance(item, Compute):
            yield item, around
