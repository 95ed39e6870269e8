"""Loops over the tiles of a ladder: memory, multiply-adds, estimated time, and the best tiles.

Without symmetry of x the loops run over pairs of tiles a >= b and pairs e >= f. With x[q,a,e] = x[q,e,a] they run over
every unordered set of four tiles once. The four tiles are split into an upper and a lower pair in three ways, and each
way needs two of the same three tiles of W:

    upper pair  lower pair  tiles of W
    (a, b)      (c, d)      (a c|b d), (a d|b c)
    (a, c)      (b, d)      (a b|c d), (a d|b c)
    (a, d)      (b, c)      (a b|c d), (a c|b d)

Every W± multiplies t± from both sides then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

from trnqc.contraction.cost.rates import OperationRates
from trnqc.contraction.ladder.pattern import HALVES, Ladder, pairs

# Python overhead of one tile view, in elements.
VIEW = 64


@dataclass(frozen=True)
class LadderLoops:
    """A ladder with tiles of length `upper` of a and b, `lower` of e and f.

    All tiles of x are copied once and `held`, or else two are copied for each product. A run with `share` (n, m) forms
    part n of m parts of the products, so that the results of all parts add up to R; counts and times are those of all.
    """

    ladder: Ladder
    upper: int
    lower: int
    held: bool
    share: tuple[int, int] = (0, 1)

    @cached_property
    def cuts(self) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """Tiles of a (and b), and tiles of e (and f)."""
        above, below, _, _ = self.ladder.extents
        return _cuts(above, self.upper), _cuts(below, self.lower)

    @cached_property
    def formed(self) -> tuple[int, int]:
        """(Number of products that form tiles of W, their multiply-adds); for a function the cost of what is read."""
        above, below = (_Tiles([cut.stop - cut.start for cut in cuts]) for cuts in self.cuts)
        inner = self.ladder.extents[2]
        if self.ladder.even:
            # Each pair of pairs of tiles once; of a pair of the same tile a >= e.
            squares = above.unlike_squares + sum(pairs(n, 1) ** 2 for n in above.lengths)
            return pairs(above.pairs, 1), inner * (pairs(above.total, 1) ** 2 + squares) // 2
        count = (above.pairs - above.count) * below.count**2 + above.count * below.pairs
        work = above.unlike * below.total**2 + above.like * (below.unlike + below.like)
        return (0, self.ladder.x.cost * work) if self.ladder.given else (count, inner * work)

    @cached_property
    def combined(self) -> int:
        """Number of tiles W± of each half."""
        above, below = (pairs(len(cuts), 1) for cuts in self.cuts)
        return pairs(above, 1) if self.ladder.even else above * below

    @property
    def applied(self) -> int:
        """Multiply-adds of the products W± t±."""
        above, below, _, _ = self.ladder.extents
        return sum(pairs(above, half) * pairs(below, half) * self.ladder.columns(half) for half in HALVES)

    @property
    def work(self) -> int:
        """Multiply-adds of all products."""
        return self.formed[1] + self.applied

    @property
    def tile(self) -> int:
        """Elements of the largest tile of W."""
        return self.upper**2 * self.lower**2

    @property
    def slots(self) -> int:
        """Number of tiles of W that are held at the same time in the arena."""
        if self.ladder.given:
            return 0
        return 3 if self.ladder.even else 2

    @property
    def columns(self) -> int:
        """Columns of t± in the half with more columns."""
        return max(self.ladder.columns(half) for half in HALVES)

    @property
    def kept(self) -> tuple[int, int]:
        """(Elements of the tiles of x that are held, elements of t±)."""
        above, below, inner, _ = self.ladder.extents
        x = 2 * inner * self.upper * self.lower
        if self.ladder.given:
            x = 0
        elif self.held:
            x = inner * (pairs(above, 1) if self.ladder.even else above * below)
        return x, sum(pairs(below, half) * self.ladder.columns(half) for half in HALVES)

    @property
    def arena(self) -> int:
        """Elements of the buffer that holds all temporaries.

        These are the arrays held throughout, and the largest of what one turn of the loops needs, what separating t
        into halves needs before them, and what combining R needs after them.
        """
        turn = (self.slots + 3) * self.tile + max(self.upper, self.lower) ** 2 * self.columns
        apart = 2 * self.lower**2 * self.ladder.extents[3]
        together = 3 * self.upper**2 * self.ladder.extents[3]
        return sum(self.kept) + max(turn, apart, together)

    @property
    def memory(self) -> int:
        """Elements that a run holds besides operands and result."""
        above, below = (len(cuts) for cuts in self.cuts)
        views = (above * below * self.held + 2 * pairs(below, 1)) * VIEW
        # A function makes the two tiles that are combined.
        made = 2 * self.tile if self.ladder.x.cost else 0
        return self.arena + views + made

    def seconds(self, rates: OperationRates) -> float:
        """Return the estimated time of a run."""
        above, below, inner, free = self.ladder.extents
        mm, ll = self.upper**2, self.lower**2
        ml = self.upper * self.lower
        count, work = self.formed
        # Tiles that are given are used as often as two tiles in the arena.
        near = max(self.slots, 2) * self.tile
        total = _products(rates, count, (ml, ml, inner), work)
        turns = self.combined * (2 if self.ladder.even else 1)
        elements = min(self.combined * self.tile, pairs(above, 1) * pairs(below, 1) // (2 if self.ladder.even else 1))
        for half in HALVES:
            columns = self.ladder.columns(half)
            if columns:
                work = pairs(above, half) * pairs(below, half) * columns
                total += _products(rates, turns, (mm, columns, ll), work)
                total += self.combined * rates.step + 2 * rates.copy(elements, near)
                total += turns * rates.step + turns * rates.copy(mm * columns, near, turned=half < 0)
        copies, copied = (len(self.cuts[0]) * len(self.cuts[1]), self.kept[0])
        if self.ladder.given:
            copies = 0
        elif not self.held:
            copies, copied = 2 * count, 2 * count * inner * ml
        everything = inner * above * below + (above**2 + below**2) * free
        total += copies * rates.step + rates.copy(copied, everything)
        return total + rates.copy(4 * (below**2 + above**2) * free, everything, turned=False)

    def __str__(self) -> str:
        ladder, root = self.ladder, self.ladder.tree.root
        (a, b), (e, f) = ladder.upper, ladder.lower
        turned = {label: ladder.free[axis] for label, axis in zip(ladder.free, ladder.turned)}
        x, t, name = ladder.x.name, ladder.t.name, root.name
        once = f", {','.join(ladder.free)} of their pairs once" if any(k != v for k, v in turned.items()) else ""

        def of(what: str, labels: Sequence[str], /, **names: str) -> str:
            return f"{what}[{','.join(names.get(label, label) for label in labels)}]"

        def xs(one: str, two: str) -> str:
            return " ".join(of(x, ladder.x.indices, **{a: high, e: low}) for high, low in ((a, one), (b, two)))

        exchanged = of(t, ladder.t.indices, **{e: f, f: e}, **turned)
        alike = f", {of(x, ladder.x.indices, **{a: e, e: a})} = {of(x, ladder.x.indices)}" if ladder.even else ""
        total = f"sum({','.join(ladder.inner)}) " if ladder.inner else ""
        tiles = (
            f"for four tiles of {a}, {b}, {e}, {f} of {self.upper}, any order once:\n"
            f"    for each way to take two of them as {a} >= {b}, two as {e} >= {f}:"
            if ladder.even
            else f"for {a} >= {b} in tiles of {self.upper}:\n    for {e} >= {f} in tiles of {self.lower}:"
        )
        if ladder.given:
            formed = f"{of(x, ladder.x.indices)} ± {of(x, ladder.x.indices, **{e: f, f: e})}"
        else:
            formed = f"{total}{xs(e, f)} ± {total}{xs(f, e)}"
        lines = [
            f"symmetry: {exchanged} = {'-' * (ladder.sign < 0)}{of(t, ladder.t.indices)}{alike}",
            f"multiply-adds: {self.formed[1]:.4g} for W, {self.applied:.4g} with {t}",
            f"memory: {self.arena:.4g} elements in one arena",
            f"{of(t + '±', ladder.t.indices)} = {of(t, ladder.t.indices)} ± {of(t, ladder.t.indices, **{e: f, f: e})}, "
            f"{e} >= {f}{once}",
            tiles,
            f"        W±[{a},{b},{e},{f}] = {formed}",
            f"        {of(name + '±', root.indices)} += W± {of(t + '±', ladder.t.indices)}",
        ]
        if ladder.even:
            high, low = {a: e, b: f}, {e: a, f: b}
            lines.append(f"        {of(name + '±', root.indices, **high)} += W± {of(t + '±', ladder.t.indices, **low)}")
        both = f"{of(name, root.indices)}, {of(name, root.indices, **{a: b, b: a})}"
        return "\n".join([*lines, f"{both} = ({name}+ ± {name}-) / 2"])

    def data(self) -> dict[str, Any]:
        """Return tiles, loops and counts in JSON's types."""
        return {
            "tiles": {self.ladder.upper[0]: self.upper, self.ladder.lower[0]: self.lower},
            "loops": str(self),
            "elements": self.memory,
            "multiply_adds": self.work,
        }


@dataclass(frozen=True)
class _Tiles:
    """Sums over pairs of tiles of these lengths."""

    lengths: Sequence[int]

    @property
    def count(self) -> int:
        """Number of tiles."""
        return len(self.lengths)

    @property
    def pairs(self) -> int:
        """Number of pairs of tiles, including pairs of a tile with itself."""
        return pairs(self.count, 1)

    @property
    def total(self) -> int:
        """Elements in all tiles."""
        return sum(self.lengths)

    @property
    def like(self) -> int:
        """Elements in pairs of a tile with itself."""
        return sum(n * n for n in self.lengths)

    @property
    def unlike(self) -> int:
        """Elements in pairs of different tiles."""
        return (self.total**2 - self.like) // 2

    @property
    def unlike_squares(self) -> int:
        """Sum over pairs of different tiles of the squared number of their elements."""
        return (self.like**2 - sum(n**4 for n in self.lengths)) // 2


def _cuts(extent: int, size: int) -> tuple[slice, ...]:
    """Return the tiles of an axis."""
    return tuple(slice(start, min(start + size, extent)) for start in range(0, extent, size))


def _products(rates: OperationRates, count: int, shape: tuple[int, int, int], work: int) -> float:
    """Return the time of so many products of at most this shape with so many multiply-adds in all."""
    full = max(count * prod(shape), 1)
    return count * (rates.call + rates.step) + work / full * count * (rates.product(*shape) - rates.call)
