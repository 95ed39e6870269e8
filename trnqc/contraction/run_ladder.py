"""Running the loops of a ladder: all temporaries lie in one arena, halves of the result in the result itself.

R+ lies where a >= b, R- where a > b, transposed; both in the first places of the axis z. At the end each pair of tiles
is put together in place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations_with_replacement
from math import prod
from types import ModuleType

import numpy as np

from trnqc.contraction.arrays import Array, cast, taken, transpose, vector
from trnqc.contraction.execute import Gemm
from trnqc.contraction.ladder import HALVES, pairs
from trnqc.contraction.ladder_loops import LadderLoops
from trnqc.errors import UnsupportedError

Pair = tuple[int, int]


def run_ladder(
    library: ModuleType, loops: LadderLoops, operands: Mapping[str, Array], gemm: Gemm | None = None
) -> Array:
    """R, its axes as the root of the ladder's tree says; operands by name of leaf. gemm: as of `execute.run_steps`."""
    ladder = loops.ladder
    if wanting := [name for name, x in operands.items() if getattr(x, "requires_grad", False)]:
        raise UnsupportedError(
            f"loops over symmetric pairs carry no gradient, which {wanting[0]} requires: detach it, or plan without "
            "its symmetry"
        )
    run = _Run(library, loops, operands[ladder.x.name], operands[ladder.t.name], gemm)
    run.take_apart()
    for splits in run.groups():
        run.products(splits)
    run.put_together()
    labels = (*ladder.upper, *ladder.free)
    found = run.result.reshape(tuple(ladder.tree.extent(label) for label in labels))
    return _ordered(found, labels, ladder.tree.root.indices)


def _ordered(x: Array, have: Sequence[str], labels: Sequence[str]) -> Array:
    return transpose(x, [have.index(label) for label in labels])


class _Half:
    """What one half (sign 1 or -1) of z is: the places of its elements, those of their partners, and for each place of
    z the element that it comes from and the sign with which it does."""

    def __init__(self, library: ModuleType, loops: LadderLoops, sign: int, like: Array) -> None:
        ladder = loops.ladder
        extents = [ladder.tree.extent(label) for label in ladder.free]
        places = np.arange(prod(extents)).reshape(extents)
        # z' holds in place k what z has in place turned[k].
        partner = places.transpose(ladder.turned).ravel() if extents else places.ravel()
        own, odd = places.ravel(), sign * ladder.sign < 0
        chosen = np.flatnonzero(own < partner if odd else own <= partner)
        source, signs = np.zeros(len(own), np.int64), np.zeros(len(own), np.int64)
        source[partner[chosen]] = source[chosen] = np.arange(len(chosen))
        signs[partner[chosen]] = sign * ladder.sign
        signs[chosen] = 1
        self.sign, self.count = sign, len(chosen)
        self.partner_sign = sign * ladder.sign
        self.chosen, self.partner, self.source, signs = (
            vector(library, values, like) for values in (chosen, partner[chosen], source, signs)
        )
        self.signs = cast(signs, like.dtype)


class _Run:
    def __init__(self, library: ModuleType, loops: LadderLoops, x: Array, t: Array, gemm: Gemm | None) -> None:
        self.library, self.loops, self.gemm = library, loops, gemm
        ladder = loops.ladder
        self.above, self.below = loops.cuts
        self.x = _ordered(x, ladder.x.indices, (*ladder.inner, ladder.upper[0], ladder.lower[0]))
        self.t = _ordered(t, ladder.t.indices, (*ladder.lower, *ladder.free))
        kind = {"dtype": x.dtype} | ({} if library is np else {"device": x.device})
        high, _, self.inner, self.free = ladder.extents
        self.result = library.zeros((high, high, self.free), **kind)
        self.arena = library.empty((loops.arena,), **kind)
        self.used = 0
        self.halves = [half for half in (_Half(library, loops, sign, x) for sign in HALVES) if half.count]
        self.triangles = {
            (length, sign): vector(library, np.flatnonzero(np.tri(length, k=0 if sign > 0 else -1)), x)
            for length in {cut.stop - cut.start for cut in (*self.above, *self.below)}
            for sign in HALVES
        }
        self.corners = {
            length: vector(library, _corner(length), x) for length in {cut.stop - cut.start for cut in self.above}
        }
        self.tiles: dict[Pair, Array] = {}
        self.parts: dict[tuple[int, int, int], Array] = {}

    def buffer(self, count: int) -> Array:
        """The next elements of the arena."""
        self.used += count
        return self.arena[self.used - count : self.used]

    # Before the loops.

    def take_apart(self) -> None:
        """x in tiles and the halves of t."""
        loops = self.loops
        if loops.held:
            buffer, place = self.buffer(loops.kept[0]), 0
            for tile in self._every_tile():
                size = self.inner * self._width(tile)
                self.tiles[tile] = self._copied(tile, buffer[place : place + size])
                place += size
        else:
            self.pair_of_tiles = [self.buffer(loops.kept[0] // 2) for _ in range(2)]
        kept, place = self.buffer(loops.kept[1]), 0
        mark = self.used
        for half in self.halves:
            for e, f in _ordered_pairs(len(self.below)):
                rows = pairs(_long(self.below[e]), half.sign) if e == f else _long(self.below[e]) * _long(self.below[f])
                part = kept[place : place + rows * half.count].reshape((rows, half.count))
                self.parts[e, f, half.sign] = part
                place += rows * half.count
                self._halved(e, f, half, part)
                self.used = mark
        self.slots = [self.buffer(loops.tile) for _ in range(loops.slots)]
        self.raw, self.combined = self.buffer(2 * loops.tile), self.buffer(loops.tile)
        self.product = self.buffer(max(loops.upper, loops.lower) ** 2 * loops.columns)
        self.mark = mark

    def _every_tile(self) -> Iterator[Pair]:
        if self.loops.ladder.even:
            yield from _ordered_pairs(len(self.above))
        else:
            yield from ((a, e) for a in range(len(self.above)) for e in range(len(self.below)))

    def _diagonal(self, tile: Pair) -> bool:
        """Whether only a >= e of the tile of x is kept."""
        return self.loops.ladder.even and tile[0] == tile[1]

    def _width(self, tile: Pair) -> int:
        if self._diagonal(tile):
            return pairs(_long(self.above[tile[0]]), 1)
        return _long(self.above[tile[0]]) * _long(self.below[tile[1]])

    def _copied(self, tile: Pair, buffer: Array) -> Array:
        """[q, ae] of a tile of x."""
        a, e = self.above[tile[0]], self.below[tile[1]]
        width = self._width(tile)
        found = buffer[: self.inner * width].reshape((self.inner, width))
        inner = tuple(self.x.shape[:-2])
        if not self._diagonal(tile):
            found.reshape((*inner, _long(a), _long(e)))[...] = self.x[..., a, e]
            return found
        into, place = found.reshape((*inner, width)), 0
        for k in range(_long(a)):
            into[..., place : place + k + 1] = self.x[..., a.start + k, a.start : a.start + k + 1]
            place += k + 1
        return found

    def _halved(self, e: int, f: int, half: _Half, part: Array) -> None:
        """t[e,f,z] ± t[f,e,z] for z of its pair once, in the even half of e = f only t[e,e,z]."""
        library = self.library
        cuts = self.below[e], self.below[f]
        shape = (_long(cuts[0]), _long(cuts[1]))
        source = self.t[cuts]
        if e == f:
            rows = self._lower_rows(source, half)
        else:
            rows = self.buffer(prod(shape) * self.free).reshape((*shape, *source.shape[2:]))
            rows[...] = source
        rows = rows.reshape((-1, self.free))
        partner = self.buffer(len(part) * half.count).reshape((len(part), half.count))
        taken(library, rows, half.chosen, 1, part)
        taken(library, rows, half.partner, 1, partner)
        combine = library.add if half.partner_sign > 0 else library.subtract
        combine(part, partner, out=part)
        if e == f and half.sign > 0:
            places = [pairs(k + 1, 1) - 1 for k in range(shape[0])]
            taken(library, rows, half.chosen, 1, partner)
            for k in places:
                part[k] = partner[k]

    def _lower_rows(self, source: Array, half: _Half) -> Array:
        """Rows e >= f (or e > f) of a tile of t with e and f alike."""
        length = source.shape[0]
        less = half.sign < 0
        rows = self.buffer(pairs(length, half.sign) * self.free).reshape((-1, *source.shape[2:]))
        place = 0
        for k in range(less, length):
            rows[place : place + k + 1 - less] = source[k, : k + 1 - less]
            place += k + 1 - less
        return rows

    # The loops.

    def groups(self) -> Iterator[list[tuple[Pair, Pair]]]:
        """Pairs (a, b), (e, f) of tiles whose W± take the same tiles of W, each pair of pairs once."""
        if not self.loops.ladder.even:
            for upper in _ordered_pairs(len(self.above)):
                yield from ([(upper, lower)] for lower in _ordered_pairs(len(self.below)))
            return
        for four in combinations_with_replacement(range(len(self.above)), 4):
            d, c, b, a = four
            splits = [((a, b), (c, d)), ((a, c), (b, d)), (max((a, d), (b, c)), min((a, d), (b, c)))]
            yield list(dict.fromkeys(splits))

    def products(self, splits: Sequence[tuple[Pair, Pair]]) -> None:
        """All that the W± of one group take part in."""
        made: dict[tuple[Pair, Pair], Array] = {}
        for upper, lower in splits:
            (a, b), (e, f) = upper, lower
            one = transpose(self._w(a, e, b, f, made), (0, 2, 1, 3))
            two = transpose(self._w(a, f, b, e, made), (0, 2, 3, 1))
            shape = tuple(one.shape)
            both = self.combined[: prod(shape)].reshape(shape)
            for half in self.halves:
                (self.library.add if half.sign > 0 else self.library.subtract)(one, two, out=both)
                w = self._unlike(both.reshape((shape[0] * shape[1], -1)), upper, lower, half.sign)
                if not prod(w.shape):
                    continue
                self._apply(w.T, upper, lower, half)
                if self.loops.ladder.even and upper != lower:
                    self._apply(w, lower, upper, half)

    def _w(self, a: int, e: int, b: int, f: int, made: dict[tuple[Pair, Pair], Array]) -> Array:
        """W[a,e,b,f] = sum(q) x[q,a,e] x[q,b,f] of these tiles, as a view."""
        one, two = (a, e), (b, f)
        even = self.loops.ladder.even
        first, second = (max(pair, pair[::-1]) if even else pair for pair in (one, two))
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
        self._multiplied(self._tile(one, 0), self._tile(two, 1), found)
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
        return _long(self.above[tile[0]]), _long(self.below[tile[1]])

    def _tile(self, tile: Pair, place: int) -> Array:
        return self.tiles[tile] if self.loops.held else self._copied(tile, self.pair_of_tiles[place])

    def _unlike(self, w: Array, upper: Pair, lower: Pair, sign: int) -> Array:
        """Rows a >= b (or a > b) and columns e >= f of W±."""
        place = 0
        if upper[0] == upper[1]:
            rows = self.triangles[_long(self.above[upper[0]]), sign]
            size = len(rows) * w.shape[1]
            w = taken(self.library, w, rows, 0, self.raw[:size].reshape((len(rows), w.shape[1])))
            place = size
        if lower[0] == lower[1]:
            columns = self.triangles[_long(self.below[lower[0]]), sign]
            size = w.shape[0] * len(columns)
            w = taken(self.library, w, columns, 1, self.raw[place : place + size].reshape((w.shape[0], len(columns))))
        return w

    def _apply(self, w_t: Array, upper: Pair, lower: Pair, half: _Half) -> None:
        """R± += W± t±."""
        t = self.parts[(*lower, half.sign)]
        found = self.product[: w_t.shape[1] * half.count].reshape((w_t.shape[1], half.count))
        self._multiplied(w_t, t, found)
        a, b = (self.above[k] for k in upper)
        if upper[0] != upper[1]:
            found = found.reshape((_long(a), _long(b), half.count))
            if half.sign > 0:
                self.result[a, b, : half.count] += found
            else:
                self.result[b, a, : half.count] += transpose(found, (1, 0, 2))
            return
        place, less = 0, half.sign < 0
        for k in range(less, _long(a)):
            row = found[place : place + k + 1 - less]
            if less:
                self.result[a.start : a.start + k, a.start + k, : half.count] += row
            else:
                self.result[a.start + k, a.start : a.start + k + 1, : half.count] += row
            place += len(row)

    def _multiplied(self, a_t: Array, b: Array, out: Array) -> None:
        if self.gemm is None:
            self.library.matmul(a_t.T, b, out=out)
        else:
            out[...] = self.gemm(a_t[None], b[None])[0]

    # After the loops.

    def put_together(self) -> None:
        """R[a,b] and R[b,a] from R+ and R-."""
        for upper in _ordered_pairs(len(self.above)):
            self.used = self.mark
            a, b = (self.above[k] for k in upper)
            shape = (_long(a), _long(b), self.free)
            even, odd = self.buffer(prod(shape)).reshape(shape), self.buffer(prod(shape)).reshape(shape)
            even[...], odd[...] = 0, 0
            for half in self.halves:
                self._spread(a, b, half, even if half.sign > 0 else odd)
            total = self.buffer(prod(shape)).reshape(shape)
            same = upper[0] == upper[1]
            if same:
                for k in range(_long(a)):
                    odd[k, k] = 0
            for combine, rows, columns in ((self.library.add, a, b), (self.library.subtract, b, a)):
                combine(even, odd, out=total)
                _halve(total)
                part = total if rows is a and columns is b else transpose(total, (1, 0, 2))
                if not same:
                    self.result[rows, columns] = part
                    continue
                for k in range(_long(a)):
                    if combine is self.library.add:
                        self.result[a.start + k, a.start : a.start + k + 1] = total[k, : k + 1]
                    else:
                        self.result[a.start : a.start + k, a.start + k] = total[k, :k]

    def _spread(self, a: slice, b: slice, half: _Half, into: Array) -> None:
        """One half of R[a,b,z], for all z."""
        mark = self.used
        rows = self.buffer(_long(a) * _long(b) * half.count).reshape((_long(a), _long(b), half.count))
        if half.sign > 0:
            rows[...] = self.result[a, b, : half.count]
        else:
            rows[...] = transpose(self.result[b, a, : half.count], (1, 0, 2))
        taken(self.library, rows, half.source, 2, into)
        into *= half.signs
        self.used = mark


def _halve(x: Array) -> None:
    """In place; sums of whole numbers are even here."""
    kind = str(x.dtype)
    if "float" in kind or "complex" in kind:
        x *= 0.5
    else:
        x //= 2


def _long(cut: slice) -> int:
    return cut.stop - cut.start


def _ordered_pairs(count: int) -> Iterator[Pair]:
    """(k, l) with k >= l."""
    return ((k, m) for k in range(count) for m in range(k + 1))


def _corner(length: int) -> np.ndarray:
    """For each (x, y) the place of max(x, y), min(x, y) among the pairs x >= y."""
    x, y = np.indices((length, length)).reshape(2, -1)
    high, low = np.maximum(x, y), np.minimum(x, y)
    return high * (high + 1) // 2 + low
