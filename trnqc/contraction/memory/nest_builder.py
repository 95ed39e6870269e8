"""Writes the loop nest of a fusion.

Of two producers beside each other, the one comes first whose temporaries exceed its result by more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from trnqc.contraction.memory.fusion_graph import ComputedArray, FusedTree
from trnqc.contraction.memory.nest_items import Allocate, Compute, Free, Item, TiledLoop


def items_of(fusion: FusedTree) -> tuple[Item, ...]:
    """Return the outermost items of the nest, in order."""
    body = _Body()
    _Builder(fusion).write(body)
    return _closed(body.items, fusion.arrays)[0]


@dataclass
class _Body:
    """The items of a nest or loop under construction.

    `loops` are those among them, `elements` those of the arrays that begin among them and not in one of the loops.
    """

    items: list[Item | _Open] = field(default_factory=list)
    loops: list[_Open] = field(default_factory=list)
    elements: int = 0

    @property
    def held(self) -> int:
        """Elements of the arrays that begin here and in the loops inside."""
        return self.elements + sum(loop.body.held for loop in self.loops)

    def insert(self, position: int, other: _Body) -> None:
        """Take over the items of another body."""
        self.items[position:position] = other.items
        self.loops += other.loops
        self.elements += other.elements


@dataclass
class _Open:
    """A loop under construction."""

    loop: TiledLoop
    body: _Body


# An array to compute, the loops that it shares with its consumer, and the bodies around it (see `_Builder.emit`).
_Call = tuple[ComputedArray, tuple[str, ...], list[_Body]]


class _Builder:
    """Writes the items of a nest, consumers after producers."""

    def __init__(self, fusion: FusedTree) -> None:
        self.fusion = fusion

    def write(self, body: _Body) -> None:
        """Write the whole nest. A tree may be as deep as it has operands, so that calls are kept in a list."""
        calls = [self.emit(self.fusion.arrays[self.fusion.tree.root.name], (), [body])]
        while calls:
            inner = next(calls[-1], None)
            if inner is None:
                calls.pop()
            else:
                calls.append(self.emit(*inner))

    def emit(self, array: ComputedArray, around: tuple[str, ...], bodies: list[_Body]) -> Iterator[_Call]:
        """Write the items that compute the array; yield what has to be written before it goes on.

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
                written = _Body()
                yield child, labels, [*bodies[: len(labels)], written]
                # The one comes first that holds most beyond its result (Sethi and Ullman, 1970).
                beside.append((prod(fusion.shape(child.name)) - written.held, len(labels), written))
        for _, level, written in sorted(beside, key=lambda entry: entry[0]):
            bodies[level].insert(len(bodies[level].items) - (level < depth), written)
        within = sorted((entry for entry in inputs if len(entry[0]) > depth), key=lambda entry: len(entry[0]))
        opened = within[-1][0][depth:] if within else ()
        accumulate = any(label in array.summed and fusion.turns(label) > 1 for label in opened)
        bodies[depth].items.append(Allocate(array.name, accumulate))
        bodies[depth].elements += prod(fusion.shape(array.name))
        bodies = list(bodies)
        for labels, child in within:
            for label in labels[len(bodies) - 1 :]:
                tile, extent = fusion.tile(label), fusion.tree.extent(label)
                loop = _Open(TiledLoop(label, tile, extent, ()), _Body())
                bodies[-1].items.append(loop)
                bodies[-1].loops.append(loop)
                bodies.append(loop.body)
            yield child, labels, bodies
        bodies[-1].items.append(Compute(array.name, accumulate))


def _closed(items: Sequence[Item | _Open], arrays: Mapping[str, ComputedArray]) -> tuple[tuple[Item, ...], set[str]]:
    """Return the finished body and the arrays from outside that it reads.

    Every array is freed after the last item of its body that uses it.
    """
    begun = dict.fromkeys(item.name for item in items if isinstance(item, Allocate))
    done: list[Item] = []
    last: dict[str, int] = {}
    outside: set[str] = set()
    for t, item in enumerate(items):
        uses: Iterable[str] = arrays[item.name].inputs if isinstance(item, Compute) else ()
        if isinstance(item, _Open):
            body, uses = _closed(item.body.items, arrays)
            item = replace(item.loop, body=body)
        done.append(item)
        for name in uses:
            if name in begun:
                last[name] = t
            else:
                outside.add(name)
    freed: dict[int, list[Item]] = {}
    for name in begun:
        if name in last:
            # What begins later is freed first.
            freed.setdefault(last[name], []).insert(0, Free(name))
    return tuple(item for t, one in enumerate(done) for item in (one, *freed.get(t, ()))), outside
