"""The fused loop nest: loops over tiles, arrays that live where they are needed, and one step per array.

Built from a Fusion alone, it prints as pseudocode and knows its memory: every temporary has a place in one arena, and
arrays that never live at the same time may share it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np

from trnqc.contraction.memory.fusion_graph import Array, Fusion
from trnqc.expression.operand import Leaf


@dataclass(frozen=True)
class Make:
    """The array begins to exist; zeroed if its parts are added up."""

    name: str
    zero: bool


@dataclass(frozen=True)
class Step:
    """The part of the array that belongs to the turns of the loops around; added to it with accumulate."""

    name: str
    accumulate: bool


@dataclass(frozen=True)
class Drop:
    """The array is not needed any more."""

    name: str


@dataclass(frozen=True)
class Loop:
    """for label in 0, tile, 2 tile ... < extent"""

    label: str
    tile: int
    extent: int
    body: tuple[Item, ...]


Item = Make | Step | Drop | Loop


@dataclass(frozen=True)
class Nest:
    """The loop nest of a fusion. inside: the temporary that lies in the memory of the result (`inner_operand`)."""

    fusion: Fusion
    body: tuple[Item, ...]
    inside: str | None = None

    @property
    def temporaries(self) -> tuple[str, ...]:
        """Those that take memory beside the result."""
        return tuple(name for name in self.fusion.temporaries if name != self.inside)

    @cached_property
    def lives(self) -> Mapping[str, tuple[int, int]]:
        """First and last moment of each temporary, counting all items of the text in order."""
        moments = list(_flat(self.body))
        found = {}
        for name in self.temporaries:
            first = next(t for t, item in enumerate(moments) if isinstance(item, Make) and item.name == name)
            last = next(t for t, item in enumerate(moments) if isinstance(item, Drop) and item.name == name)
            found[name] = (first, last)
        return found

    @cached_property
    def places(self) -> Mapping[str, int]:
        """First element of each temporary in the arena; arrays that live at the same time do not overlap."""
        return places({name: prod(self.fusion.shape(name)) for name in self.temporaries}, self.lives)

    @property
    def arena(self) -> int:
        """Elements that hold all temporaries at any time."""
        return max((place + prod(self.fusion.shape(name)) for name, place in self.places.items()), default=0)

    @cached_property
    def steps(self) -> tuple[tuple[Step, tuple[str, ...]], ...]:
        """Every step with the labels of the loops around it, outermost first."""
        return tuple(_steps(self.body, ()))

    def __str__(self) -> str:
        return "\n".join(self._lines(self.body, 0))

    def _lines(self, items: Sequence[Item], depth: int) -> Iterator[str]:
        for item in items:
            text = "    " * depth
            if isinstance(item, Loop) and item.tile >= item.extent:
                yield from self._lines(item.body, depth)
            elif isinstance(item, Loop):
                step = f" step {item.tile}" if item.tile > 1 else ""
                yield f"{text}for {item.label} in 0..{item.extent - 1}{step}:"
                yield from self._lines(item.body, depth + 1)
            elif isinstance(item, Make) and item.zero:
                yield f"{text}{self._written(item.name)} = 0"
            elif isinstance(item, Step):
                yield f"{text}{self._step(item)}"

    def _written(self, name: str) -> str:
        """The array with the indices it still has; a tile of an index is marked by its length."""
        shape = self.fusion.shape(name)
        array = self.fusion.arrays[name]
        root = name == self.fusion.tree.root.name
        whole = [self.fusion.tree.extent(i) for i in array.indices]
        labels = [i if n == full else f"{i}:{n}" for i, n, full in zip(array.indices, shape, whole) if n > 1 or root]
        return f"{name}[{','.join(labels)}]" if labels else name

    def _step(self, item: Step) -> str:
        array = self.fusion.arrays[item.name]
        sign = "+=" if item.accumulate else "="
        if isinstance(array.source, Leaf):
            return f"{self._written(item.name)} {sign} {array.source.name}({', '.join(array.source.indices)})"
        made = iter(array.inputs)
        factors = [
            self._written(next(made)) if not isinstance(o, Leaf) or o.cost else str(o) for o in array.source.operands
        ]
        total = f"sum({','.join(array.summed)}) " if array.summed else ""
        text = f"{self._written(item.name)} {sign} {total}{' * '.join(factors)}"
        return f"{text}, in place" if self.inside in array.inputs else text


def inner_operand(fusion: Fusion) -> str | None:
    """The temporary that may lie in the memory of the result, whose step then exchanges one axis in place.

    It shares no loop with that step, and has all labels of the result but one, for which it has another that is summed
    and not longer.
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


def nest_of(fusion: Fusion, inside: str | None = None) -> Nest:
    """The loop nest; of two producers beside each other that comes first which leaves less behind."""
    body: list[Item | _Open] = []
    _Builder(fusion).emit(fusion.arrays[fusion.tree.root.name], (), [body])
    return Nest(fusion, _closed(body, fusion.arrays), inside)


@dataclass
class _Open:
    """A loop under construction."""

    loop: Loop
    body: list[Item | _Open]


class _Builder:
    def __init__(self, fusion: Fusion) -> None:
        self.fusion = fusion

    def emit(self, array: Array, around: tuple[str, ...], bodies: list[list[Item | _Open]]) -> None:
        """Write what makes the array. around: the loops it shares with its consumer; bodies: theirs, and the outside.

        A producer that shares fewer loops is written before the loop that it is not in: chains are nested, so that
        loop is the last item of the body it goes to.
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
            place = len(bodies[level]) - (level < depth)
            bodies[level][place:place] = written
        within = sorted((entry for entry in inputs if len(entry[0]) > depth), key=lambda entry: len(entry[0]))
        opened = within[-1][0][depth:] if within else ()
        accumulate = any(label in array.summed and fusion.turns(label) > 1 for label in opened)
        bodies[depth].append(Make(array.name, accumulate))
        bodies = list(bodies)
        for labels, child in within:
            for label in labels[len(bodies) - 1 :]:
                tile, extent = fusion.tile(label), fusion.tree.extent(label)
                loop = _Open(Loop(label, tile, extent, ()), [])
                bodies[-1].append(loop)
                bodies.append(loop.body)
            self.emit(child, labels, bodies)
        bodies[-1].append(Step(array.name, accumulate))

    def _need(self, written: list[Item | _Open], array: Array) -> int:
        """Sethi and Ullman's order: first what needs most beyond what it leaves. Negative, to sort by."""
        names = {item.name for item in _flat(_plain(written)) if isinstance(item, Make)}
        return prod(self.fusion.shape(array.name)) - sum(prod(self.fusion.shape(name)) for name in names)


def _plain(items: Iterable[Item | _Open]) -> tuple[Item, ...]:
    return tuple(replace(i.loop, body=_plain(i.body)) if isinstance(i, _Open) else i for i in items)


def _closed(items: Iterable[Item | _Open], arrays: Mapping[str, Array]) -> tuple[Item, ...]:
    """The finished body: every array is dropped after the last item of its body that uses it."""
    done: list[Item] = [
        replace(item.loop, body=_closed(item.body, arrays)) if isinstance(item, _Open) else item for item in items
    ]
    for name in [item.name for item in done if isinstance(item, Make)]:
        users = [t for t, item in enumerate(done) if any(name in _uses(i, arrays) for i in _flat([item]))]
        if users:
            done.insert(users[-1] + 1, Drop(name))
    return tuple(done)


def _uses(item: Item, arrays: Mapping[str, Array]) -> tuple[str, ...]:
    return arrays[item.name].inputs if isinstance(item, Step) else ()


def _flat(items: Iterable[Item]) -> Iterator[Item]:
    for item in items:
        yield item
        if isinstance(item, Loop):
            yield from _flat(item.body)


def _steps(items: Iterable[Item], around: tuple[str, ...]) -> Iterator[tuple[Step, tuple[str, ...]]]:
    for item in items:
        if isinstance(item, Loop):
            yield from _steps(item.body, (*around, item.label))
        elif isinstance(item, Step):
            yield item, around


def places(sizes: Mapping[str, int], lives: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """First element of each array in a common arena, as short as two simple orders make it."""
    found, _ = _packed(np.array([[*sizes.values()]], float), together([lives[name] for name in sizes]))
    return dict(zip(sizes, found[0].astype(int).tolist()))


def arenas(sizes: np.ndarray, meet: np.ndarray) -> np.ndarray:
    """Elements that hold all arrays, for each row of sizes [trials, arrays]; meet: as of `together`."""
    return _packed(sizes, meet)[1]


def together(lives: Sequence[tuple[int, int]]) -> np.ndarray:
    """[arrays, arrays] Which arrays live at the same time."""
    first, last = np.array(lives, int).reshape(-1, 2).T
    return (first[:, None] <= last) & (first <= last[:, None])


def _packed(sizes: np.ndarray, meet: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """([trials, arrays] first elements, [trials] elements in all) of the better of two orders: large first, as made."""
    as_made = np.broadcast_to(np.arange(sizes.shape[1]), sizes.shape)
    tries = [_in_order(order, sizes, meet) for order in (np.argsort(-sizes, axis=1, kind="stable"), as_made)]
    ends = [np.max(found + sizes, axis=1, initial=0) for found in tries]
    return np.where((ends[0] <= ends[1])[:, None], *tries), np.minimum(*ends)


def _in_order(order: np.ndarray, sizes: np.ndarray, meet: np.ndarray) -> np.ndarray:
    """Each array in turn at the lowest place that is free as long as it lives."""
    rows = np.arange(len(sizes))
    found = np.zeros(sizes.shape)
    for k in range(sizes.shape[1]):
        mine, before = order[:, k], order[:, :k]
        taken = meet[mine[:, None], before]
        starts = found[rows[:, None], before]
        stops = starts + sizes[rows[:, None], before]
        # What is free begins at zero or where another array ends.
        trials = np.concatenate([np.zeros((len(sizes), 1)), np.where(taken, stops, np.inf)], axis=1)[:, :, None]
        size = sizes[rows, mine][:, None, None]
        clash = taken[:, None] & (trials < stops[:, None]) & (starts[:, None] < trials + size)
        found[rows, mine] = np.where(clash.any(axis=2), np.inf, trials[:, :, 0]).min(axis=1)
    return found
