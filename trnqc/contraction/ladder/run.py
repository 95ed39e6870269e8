"""Running the loops of a ladder: all temporaries lie in one arena, the halves of the result in the result itself.

R+ lies where a >= b, and R- transposed where a > b, both in the first columns of the axis z. At the end each pair of
tiles is combined in place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations_with_replacement
from math import prod
from types import ModuleType
from typing import Any

import numpy as np

from trnqc.contraction.kernels import Gemm
from trnqc.contraction.ladder.integrals import Arena, GivenIntegrals, LadderTiles, Pair, long, ordered_pairs
from trnqc.contraction.ladder.loops import LadderLoops
from trnqc.contraction.ladder.pattern import HALVES, pairs
from trnqc.contraction.products.arrays import Array, cast, require_no_transform, taken, transpose, vector
from trnqc.ranks import balanced


def run_ladder(library: ModuleType, loops: LadderLoops, operands: Mapping[str, Any], gemm: Gemm | None = None) -> Array:
    """Return R[a,b,z] with its axes in the order of the tree's root.

    Operands are arrays by name of leaf; W may be a function of one slice for each axis. `gemm` is as of `Kernels`.
    """
    ladder = loops.ladder
    x, t = operands[ladder.x.name], operands[ladder.t.name]
    for leaf, array in ((ladder.x, x), (ladder.t, t)):
        if not callable(array):
            require_no_transform(array, leaf.name)
    if not ladder.given:
        x = _ordered(x, ladder.x.indices, (*ladder.inner, ladder.upper[0], ladder.lower[0]))
    run = _Run(
        library,
        loops,
        x,
        _ordered(t, ladder.t.indices, (*ladder.lower, *ladder.free)),
        gemm,
    )
    for splits in run.shared_groups():
        run.products(splits)
    run.combine_halves()
    labels = (*ladder.upper, *ladder.free)
    result = run.result.reshape(tuple(ladder.tree.extent(label) for label in labels))
    return _ordered(result, labels, ladder.tree.root.indices)


def _ordered(x: Array, have: Sequence[str], labels: Sequence[str]) -> Array:
    """Return a view with its axes in the order of `labels`."""
    return transpose(x, [have.index(label) for label in labels])


class _Half:
    """The even (sign 1) or odd half (-1) of the axis z, where one of two exchanged elements represents both.

    `chosen` and `partner` are the positions of representatives and of their exchanges; `source` and `signs` give every
    position on z its representative and relative sign.
    """

    def __init__(self, library: ModuleType, loops: LadderLoops, sign: int, like: Array) -> None:
        ladder = loops.ladder
        extents = [ladder.tree.extent(label) for label in ladder.free]
        own = np.arange(prod(extents))
        partner = own.reshape(extents).transpose(ladder.turned).ravel()
        self.sign, self.partner_sign = sign, sign * ladder.sign
        chosen = np.flatnonzero(own < partner if self.partner_sign < 0 else own <= partner)
        source, signs = np.zeros(len(own), np.int64), np.zeros(len(own), np.int64)
        source[partner[chosen]] = source[chosen] = np.arange(len(chosen))
        signs[partner[chosen]] = self.partner_sign
        signs[chosen] = 1
        self.count = len(chosen)
        self.chosen, self.partner, self.source, places = (
            vector(library, values, like) for values in (chosen, partner[chosen], source, signs)
        )
        self.signs = cast(library, places, like.dtype)


class _Run:
    """The arrays of one run; x: [q..., a, e], or W as it was given; t: [e, f, z...]."""

    def __init__(self, library: ModuleType, loops: LadderLoops, x: Any, t: Array, gemm: Gemm | None) -> None:
        self.library, self.loops, self.gemm = library, loops, gemm
        self.above, self.below = loops.cuts
        high, _, _, self.free = loops.ladder.extents
        like = t if callable(x) else x
        kind = {"dtype": like.dtype} | ({} if library is np else {"device": like.device})
        self.result = library.zeros((high, high, self.free), **kind)
        self.arena = Arena(library.empty((loops.arena,), **kind))
        self.halves = [half for half in (_Half(library, loops, sign, like) for sign in HALVES) if half.count]
        lengths = {long(cut) for cut in (*self.above, *self.below)}
        self.triangles = {
            (length, sign): vector(library, np.flatnonzero(np.tri(length, k=0 if sign > 0 else -1)), like)
            for length in lengths
            for sign in HALVES
        }
        self.integrals: LadderTiles | GivenIntegrals
        if loops.ladder.given:
            self.integrals = GivenIntegrals(loops, x)
        else:
            self.integrals = LadderTiles(library, loops, x, self.arena, self._multiply)
        self.halved = self._halves_of_t(t)
        self.mark = self.arena.used
        self.raw, self.combined = self.arena.take(2 * loops.tile), self.arena.take(loops.tile)
        self.integrals.begin(self.arena, self.raw)
        self.product = self.arena.take(max(loops.upper, loops.lower) ** 2 * loops.columns)

    # Before the loops: t±.

    def _halves_of_t(self, t: Array) -> dict[tuple[int, int, int], Array]:
        """Return t±[ef,z] by the numbers of two tiles and the sign, over e >= f (or e > f) and representatives of z."""
        kept, place = self.arena.take(self.loops.kept[1]), 0
        mark, halved = self.arena.used, {}
        for half in self.halves:
            for e, f in ordered_pairs(len(self.below)):
                tile = t[self.below[e], self.below[f]]
                rows = self._rows(tile, e == f, half)
                part = kept[place : place + len(rows) * half.count].reshape((len(rows), half.count))
                self._halve_rows(rows, len(tile) if e == f else 0, half, part)
                halved[e, f, half.sign] = part
                place += len(rows) * half.count
                self.arena.used = mark
        return halved

    def _rows(self, tile: Array, same: bool, half: _Half) -> Array:
        """Return a tile of t as [ef, z]; of a tile on the diagonal only e >= f (or e > f)."""
        if not same:
            rows = self.arena.take(*tile.shape)
            rows[...] = tile
        else:
            rows = self.arena.take(pairs(len(tile), half.sign), *tile.shape[2:])
            for k, row in _triangle(len(tile), half.sign):
                rows[row] = tile[k, : row.stop - row.start]
        return rows.reshape((-1, self.free))

    def _halve_rows(self, rows: Array, alike: int, half: _Half, part: Array) -> None:
        """Write t[e,f,z] ± t[f,e,z], or t[e,e,z] in the even half, into `part`.

        alike: extent of e if the tile lies on the diagonal, else 0.
        """
        partner = self.arena.take(len(rows), half.count)
        taken(self.library, rows, half.chosen, 1, part)
        taken(self.library, rows, half.partner, 1, partner)
        combine = self.library.add if half.partner_sign > 0 else self.library.subtract
        combine(part, partner, out=part)
        if half.sign > 0 and alike:
            taken(self.library, rows, half.chosen, 1, partner)
            for _, row in _triangle(alike, 1):
                part[row.stop - 1] = partner[row.stop - 1]

    # The loops: R± += W± t±.

    def groups(self) -> Iterator[list[tuple[Pair, Pair]]]:
        """Yield groups of pairs (a, b), (e, f) of tiles whose W± need the same tiles of W, each pair of pairs once."""
        if not self.loops.ladder.even:
            for upper in ordered_pairs(len(self.above)):
                yield from ([(upper, lower)] for lower in ordered_pairs(len(self.below)))
            return
        for d, c, b, a in combinations_with_replacement(range(len(self.above)), 4):
            splits = [((a, b), (c, d)), ((a, c), (b, d)), (max((a, d), (b, c)), min((a, d), (b, c)))]
            yield list(dict.fromkeys(splits))

    def shared_groups(self) -> Iterator[list[tuple[Pair, Pair]]]:
        """Yield the groups of the share of this run; shares have about equal numbers of multiply-adds."""
        part, parts = self.loops.share
        groups = list(self.groups())
        owners = balanced([sum(self._work(*split) for split in splits) for splits in groups], parts)
        yield from (splits for splits, owner in zip(groups, owners) if owner == part)

    def _work(self, upper: Pair, lower: Pair) -> float:
        """Return the relative number of multiply-adds with W± of two pairs of tiles."""
        work = 1.0
        for (one, two), cuts in ((upper, self.above), (lower, self.below)):
            work *= long(cuts[one]) * long(cuts[two]) / (1 + (one == two))
        return work * (1 + (self.loops.ladder.even and upper != lower))

    def products(self, splits: Sequence[tuple[Pair, Pair]]) -> None:
        """Compute all products of the W± of one group."""
        known: dict[tuple[Pair, Pair], Array] = {}
        for upper, lower in splits:
            (a, b), (e, f) = upper, lower
            one = transpose(self.integrals.tile(a, e, b, f, known), (0, 2, 1, 3))
            two = transpose(self.integrals.tile(a, f, b, e, known), (0, 2, 3, 1))
            shape = tuple(one.shape)
            both = self.combined[: prod(shape)].reshape(shape)
            for half in self.halves:
                (self.library.add if half.sign > 0 else self.library.subtract)(one, two, out=both)
                w = self._unlike(both.reshape((shape[0] * shape[1], -1)), upper, lower, half.sign)
                if prod(w.shape):
                    self._apply(w.T, upper, lower, half)
                    if self.loops.ladder.even and upper != lower:
                        self._apply(w, lower, upper, half)

    def _unlike(self, w: Array, upper: Pair, lower: Pair, sign: int) -> Array:
        """Return the rows a >= b (or a > b) and the columns e >= f (or e > f) of W±."""
        place = 0
        for axis, (one, two), cuts in ((0, upper, self.above), (1, lower, self.below)):
            if one == two:
                chosen = self.triangles[long(cuts[one]), sign]
                shape = (len(chosen), w.shape[1]) if axis == 0 else (w.shape[0], len(chosen))
                into = self.raw[place : place + prod(shape)].reshape(shape)
                w, place = taken(self.library, w, chosen, axis, into), place + prod(shape)
        return w

    def _apply(self, w_t: Array, upper: Pair, lower: Pair, half: _Half) -> None:
        """Add W± t± to R±."""
        rows, count = w_t.shape[1], half.count
        product = self.product[: rows * count].reshape((rows, count))
        self._multiply(w_t, self.halved[(*lower, half.sign)], product)
        a, b = (self.above[k] for k in upper)
        if upper[0] == upper[1]:
            for k, row in _triangle(long(a), half.sign):
                others = slice(a.start, a.start + row.stop - row.start)
                place = (a.start + k, others) if half.sign > 0 else (others, a.start + k)
                self.result[(*place, slice(0, count))] += product[row]
        elif half.sign > 0:
            self.result[a, b, :count] += product.reshape((long(a), long(b), count))
        else:
            self.result[b, a, :count] += transpose(product.reshape((long(a), long(b), count)), (1, 0, 2))

    def _multiply(self, a_t: Array, b: Array, out: Array) -> None:
        """Write a_t.T @ b into `out`."""
        if self.gemm is None:
            self.library.matmul(a_t.T, b, out=out)
        else:
            out[...] = self.gemm(a_t[None], b[None])[0]

    # After the loops: R from R±.

    def combine_halves(self) -> None:
        """Replace R± by R[a,b] = R+ + R- and R[b,a] = R+ - R-."""
        for one, two in ordered_pairs(len(self.above)):
            self.arena.used = self.mark
            a, b = self.above[one], self.above[two]
            shape = (long(a), long(b), self.free)
            even, odd = self.arena.take(*shape), self.arena.take(*shape)
            even[...], odd[...] = 0, 0
            for half in self.halves:
                self._spread(a, b, half, even if half.sign > 0 else odd)
            total = self.arena.take(*shape)
            if one == two:
                # R- has no elements a = b; those read there belong to R+.
                for k in range(long(a)):
                    odd[k, k] = 0
            _halve(self.library.add(even, odd, out=total))
            if one != two:
                self.result[a, b] = total
                self.result[b, a] = transpose(_halve(self.library.subtract(even, odd, out=total)), (1, 0, 2))
                continue
            for k in range(long(a)):
                self.result[a.start + k, a.start : a.start + k + 1] = total[k, : k + 1]
            _halve(self.library.subtract(even, odd, out=total))
            for k in range(long(a)):
                self.result[a.start : a.start + k, a.start + k] = total[k, :k]

    def _spread(self, a: slice, b: slice, half: _Half, into: Array) -> None:
        """Write one half of R[a,b,z], for all z, into `into`."""
        mark = self.arena.used
        rows = self.arena.take(long(a), long(b), half.count)
        half_of_r = self.result[a, b] if half.sign > 0 else transpose(self.result[b, a], (1, 0, 2))
        rows[...] = half_of_r[..., : half.count]
        taken(self.library, rows, half.source, 2, into)
        into *= half.signs
        self.arena.used = mark


def _triangle(length: int, sign: int) -> Iterator[tuple[int, slice]]:
    """Yield for each a, unless it has no b, the positions of its b <= a (or b < a) among the pairs."""
    place = 0
    for k in range(length):
        count = k + (sign > 0)
        if count:
            yield k, slice(place, place + count)
        place += count


def _halve(x: Array) -> Array:
    """Divide by two in place; sums of whole numbers are even here."""
    kind = str(x.dtype)
    if "float" in kind or "complex" in kind:
        x *= 0.5
    else:
        x //= 2
    return x
