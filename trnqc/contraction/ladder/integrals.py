"""Tiles of the integrals W[a,e,b,f] = sum(q) x[q,a,e] x[q,b,f], formed in buffers of the caller.

If x[q,a,e] = x[q,e,a], only tiles with a >= e are kept, and of a tile on the diagonal only its elements with a >= e.
The other tiles are views of these. If W itself is an operand, its tiles are views of it, or made by its function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from types import ModuleType
from typing import Any

import numpy as np

from trnqc.contraction.ladder.loops import LadderLoops
from trnqc.contraction.ladder.pattern import pairs
from trnqc.contraction.products.arrays import Array, taken, transpose, vector

# Numbers of two tiles, such as (a, e).
Pair = tuple[int, int]
# (a_t[K, M], b[K, N], out[M, N]): writes the product into out.
Multiply = Callable[[Array, Array, Array], None]


@dataclass
class Arena:
    """One array whose parts are handed out in order.

    Setting `used` back to an earlier value releases the parts that were taken since.
    """

    array: Array
    used: int = 0

    def take(self, *shape: int) -> Array:
        """Return the next part of the array in this shape."""
        self.used += prod(shape)
        return self.array[self.used - prod(shape) : self.used].reshape(shape)


class LadderTiles:
    """Tiles of W, computed from x[q..., a, e]. Call `begin` before the first tile is requested."""

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
        """Take the buffers for tiles of W from the arena.

        `raw` has the elements of two tiles, which nothing else uses while a tile is formed.
        """
        self.slots = [arena.take(self.loops.tile) for _ in range(self.loops.slots)]
        self.raw = raw

    def _every_tile(self) -> Iterator[Pair]:
        """Yield the tiles of x that are kept."""
        if self.even:
            yield from ordered_pairs(len(self.above))
        else:
            yield from ((a, e) for a in range(len(self.above)) for e in range(len(self.below)))

    def _diagonal(self, tile: Pair) -> bool:
        """Return whether only the elements a >= e of this tile of x are kept."""
        return self.even and tile[0] == tile[1]

    def _width(self, tile: Pair) -> int:
        """Return the number of elements (a, e) kept of a tile of x."""
        if self._diagonal(tile):
            return pairs(long(self.above[tile[0]]), 1)
        return long(self.above[tile[0]]) * long(self.below[tile[1]])

    def _copied(self, tile: Pair, buffer: Array) -> Array:
        """Return a tile of x as [q, ae], copied into the buffer."""
        a, e = self.above[tile[0]], self.below[tile[1]]
        width = self._width(tile)
        copy = buffer[: self.inner * width].reshape((self.inner, width))
        inner = tuple(self.x.shape[:-2])
        if not self._diagonal(tile):
            copy.reshape((*inner, long(a), long(e)))[...] = self.x[..., a, e]
            return copy
        into, column = copy.reshape((*inner, width)), 0
        for k in range(long(a)):
            into[..., column : column + k + 1] = self.x[..., a.start + k, a.start : a.start + k + 1]
            column += k + 1
        return copy

    def tile(self, a: int, e: int, b: int, f: int, known: dict[tuple[Pair, Pair], Array]) -> Array:
        """Return W[a,e,b,f] of these tiles as a view; known: tiles formed so far for the same group."""
        one, two = (a, e), (b, f)
        first, second = (max(pair, pair[::-1]) if self.even else pair for pair in (one, two))
        key = max((first, second), (second, first))
        if key not in known:
            known[key] = self._formed(*key, self.slots[len(known)])
        w = known[key]
        if key != (first, second):
            w = transpose(w, (2, 3, 0, 1))
        if first != one:
            w = transpose(w, (1, 0, 2, 3))
        return transpose(w, (0, 1, 3, 2)) if second != two else w

    def _formed(self, one: Pair, two: Pair, slot: Array) -> Array:
        """Return a tile of W formed in this slot."""
        shape = (*self._lengths(one), *self._lengths(two))
        rows, columns = self._width(one), self._width(two)
        whole = shape[0] * shape[1], shape[2] * shape[3]
        into = slot if whole == (rows, columns) else self.raw
        w = into[: rows * columns].reshape((rows, columns))
        self.multiply(self._factor(one, 0), self._factor(two, 1), w)
        free = rows * columns
        if rows != whole[0]:
            last = columns == whole[1]
            size = whole[0] * columns
            buffer = slot[:size] if last else self.raw[free : free + size]
            w = taken(self.library, w, self.corners[shape[0]], 0, buffer.reshape((whole[0], columns)))
        if columns != whole[1]:
            w = taken(self.library, w, self.corners[shape[2]], 1, slot[: prod(shape)].reshape(whole))
        return w.reshape(shape)

    def _lengths(self, tile: Pair) -> Pair:
        return long(self.above[tile[0]]), long(self.below[tile[1]])

    def _factor(self, tile: Pair, side: int) -> Array:
        """Return a tile of x as [q, ae]; side: which of the two copies to use if x is not held."""
        return self.tiles[tile] if self.loops.held else self._copied(tile, self.copies[side])


class GivenIntegrals:
    """Tiles of W[a, e, b, f] where it is an operand: an array, or a function of one slice for each axis."""

    def __init__(self, loops: LadderLoops, w: Any) -> None:
        ladder = loops.ladder
        self.above, self.below = loops.cuts
        self.w, labels = w, (ladder.upper[0], ladder.lower[0], ladder.upper[1], ladder.lower[1])
        self.order = tuple(ladder.x.indices.index(label) for label in labels)
        self.back = tuple(labels.index(label) for label in ladder.x.indices)

    def begin(self, arena: Arena, raw: Array) -> None:
        """Do nothing: no buffers are needed."""

    def tile(self, a: int, e: int, b: int, f: int, known: dict[tuple[Pair, Pair], Array]) -> Array:
        """Return W[a,e,b,f] of these tiles."""
        cuts = (self.above[a], self.below[e], self.above[b], self.below[f])
        place = tuple(cuts[k] for k in self.back)
        return transpose(self.w(*place) if callable(self.w) else self.w[place], self.order)


def long(cut: slice) -> int:
    """Return the length of a tile."""
    return cut.stop - cut.start


def ordered_pairs(count: int) -> Iterator[Pair]:
    """Return all (k, l) with k >= l."""
    return ((k, m) for k in range(count) for m in range(k + 1))


def _corner(length: int) -> np.ndarray:
    """Return for each (x, y) the position of (max(x, y), min(x, y)) among the pairs x >= y."""
    x, y = np.indices((length, length)).reshape(2, -1)
    high, low = np.maximum(x, y), np.minimum(x, y)
    return high * (high + 1) // 2 + low
