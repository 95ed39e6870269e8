"""Tiles of W[a,e,b,f] = sum(q) x[q,a,e] x[q,b,f] for the loops of a ladder, made in buffers that are given.

Where x[q,a,e] = x[q,e,a] only tiles with a >= e are kept, of a tile with a and e alike only its elements with a >= e,
and views show the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from types import ModuleType

import numpy as np

from trnqc.contraction.ladder.loops import LadderLoops
from trnqc.contraction.ladder.pattern import pairs
from trnqc.contraction.run.arrays import Array, taken, transpose, vector

Pair = tuple[int, int]
# a_t[K, M], b[K, N], [M, N] for the product
Multiply = Callable[[Array, Array, Array], None]


@dataclass
class Arena:
    """One array of which parts are taken one after the other; all from a mark on are given back by setting `used`."""

    array: Array
    used: int = 0

    def take(self, *shape: int) -> Array:
        self.used += prod(shape)
        return self.array[self.used - prod(shape) : self.used].reshape(shape)


class Integrals:
    """x: [q..., a, e]. After `begin` tiles of W may be asked for."""

    def __init__(self, library: ModuleType, loops: LadderLoops, x: Array, arena: Arena, multiply: Multiply) -> None:
        self.library, self.loops, self.x, self.multiply = library, loops, x, multiply
        self.above, self.below = loops.cuts
        self.even, self.inner = loops.ladder.even, loops.ladder.extents[2]
        self.tiles: dict[Pair, Array] = {}
        if loops.held:
            for tile in self._every_tile():
                self.tiles[tile] = self._copied(tile, arena.take(self.inner * self._width(tile)))
        else:
            self.copies = [arena.take(loops.kept[0] // 2) for _ in range(2)]
        lengths = {long(cut) for cut in self.above}
        self.corners = {length: vector(library, _corner(length), x) for length in lengths}

    def begin(self, arena: Arena, raw: Array) -> None:
        """raw: room for two tiles, which nobody else uses while one is made."""
        self.slots = [arena.take(self.loops.tile) for _ in range(self.loops.slots)]
        self.raw = raw

    def _every_tile(self) -> Iterator[Pair]:
        if self.even:
            yield from ordered_pairs(len(self.above))
        else:
            yield from ((a, e) for a in range(len(self.above)) for e in range(len(self.below)))

    def _diagonal(self, tile: Pair) -> bool:
        """Whether only a >= e of the tile of x is kept."""
        return self.even and tile[0] == tile[1]

    def _width(self, tile: Pair) -> int:
        if self._diagonal(tile):
            return pairs(long(self.above[tile[0]]), 1)
        return long(self.above[tile[0]]) * long(self.below[tile[1]])

    def _copied(self, tile: Pair, buffer: Array) -> Array:
        """[q, ae] of a tile of x."""
        a, e = self.above[tile[0]], self.below[tile[1]]
        width = self._width(tile)
        found = buffer[: self.inner * width].reshape((self.inner, width))
        inner = tuple(self.x.shape[:-2])
        if not self._diagonal(tile):
            found.reshape((*inner, long(a), long(e)))[...] = self.x[..., a, e]
            return found
        into, place = found.reshape((*inner, width)), 0
        for k in range(long(a)):
            into[..., place : place + k + 1] = self.x[..., a.start + k, a.start : a.start + k + 1]
            place += k + 1
        return found

    def tile(self, a: int, e: int, b: int, f: int, made: dict[tuple[Pair, Pair], Array]) -> Array:
        """W[a,e,b,f] = sum(q) x[q,a,e] x[q,b,f] of these tiles, as a view."""
        one, two = (a, e), (b, f)
        first, second = (max(pair, pair[::-1]) if self.even else pair for pair in (one, two))
        key = max((first, second), (second, first))
        if key not in made:
            made[key] = self._made(*key, self.slots[len(made)])
        found = made[key]
        if key != (first, second):
            found = transpose(found, (2, 3, 0, 1))
        if first != one:
            found = transpose(found, (1, 0, 2, 3))
        return transpose(found, (0, 1, 3, 2)) if second != two else found

    def _made(self, one: Pair, two: Pair, slot: Array) -> Array:
        shape = (*self._lengths(one), *self._lengths(two))
        rows, columns = self._width(one), self._width(two)
        whole = shape[0] * shape[1], shape[2] * shape[3]
        into = slot if whole == (rows, columns) else self.raw
        found = into[: rows * columns].reshape((rows, columns))
        self.multiply(self._factor(one, 0), self._factor(two, 1), found)
        place = rows * columns
        if rows != whole[0]:
            last = columns == whole[1]
            size = whole[0] * columns
            buffer = slot[:size] if last else self.raw[place : place + size]
            found = taken(self.library, found, self.corners[shape[0]], 0, buffer.reshape((whole[0], columns)))
        if columns != whole[1]:
            found = taken(self.library, found, self.corners[shape[2]], 1, slot[: prod(shape)].reshape(whole))
        return found.reshape(shape)

    def _lengths(self, tile: Pair) -> Pair:
        return long(self.above[tile[0]]), long(self.below[tile[1]])

    def _factor(self, tile: Pair, place: int) -> Array:
        return self.tiles[tile] if self.loops.held else self._copied(tile, self.copies[place])


def long(cut: slice) -> int:
    return cut.stop - cut.start


def ordered_pairs(count: int) -> Iterator[Pair]:
    """(k, l) with k >= l."""
    return ((k, m) for k in range(count) for m in range(k + 1))


def _corner(length: int) -> np.ndarray:
    """For each (x, y) the place of max(x, y), min(x, y) among the pairs x >= y."""
    x, y = np.indices((length, length)).reshape(2, -1)
    high, low = np.maximum(x, y), np.minimum(x, y)
    return high * (high + 1) // 2 + low
