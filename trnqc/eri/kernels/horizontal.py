"""Phase 2: [e0|f0] targets to integrals (ab|cd), by horizontal recurrence and solid harmonics, one side at a time.

h [e, f] -> each column: bra to a, b -> each row: ket to c, d -> out [ab, cd]

The bra of one column does not know of the others, nor the ket of one row: a side is one straight-line body in a loop,
and the sides go in the order that costs fewer flops. A side leaves its body in its final functions, so that the second
side works on solid harmonics of the first ("fused"); transforming all four indices at the end costs up to a third more.
Small classes are unrolled into one body, which keeps the values between the sides out of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from trnqc.eri.kernels.angular import Powers, cartesians, ncart, raised, spherical
from trnqc.eri.kernels.recurrence import components
from trnqc.eri.kernels.straight_line import lines
from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen.cost import cost_of_values
from trnqc.gen.values import fma

Body = Callable[[Sequence[Value]], list[Value]]
AB, CD = Array("ab", "f64", (6,)), Array("cd", "f64", (6,), lanes=True)
# Operations of a class below which its two sides are one body without loops.
UNROLLED = 3000


@dataclass(frozen=True)
class Stage:
    """A body that takes `before` values to `after`, for every column (axis 0) or every row (axis 1) of a matrix."""

    title: str
    axis: int
    before: int
    after: int
    body: Body

    @cached_property
    def flops(self) -> int:
        """Of one run of the body."""
        given = Array("given", "f64", (self.before,), lanes=True)
        return cost_of_values(*self.body([given[n] for n in range(self.before)])).flops.at()


def is_trivial(l1: int, l2: int, cartesian: bool) -> bool:
    """Whether a side's targets are its functions already."""
    return l2 == 0 and (cartesian or l1 <= 1)


def horizontal(l1: int, l2: int, shift: Sequence[Value], source: Sequence[Value]) -> list[Value]:
    """Cartesian (ab| in row-major order from (e0|, by (a b+1_i| = (a+1_i b| + (A-B)_i (a b|.

    shift: A - B. source: in the order of `components`. Head-Gordon and Pople, J. Chem. Phys. 89, 5777 (1988), eq. 18.
    """
    made: dict[tuple[Powers, Powers], Value] = {(e, (0, 0, 0)): v for e, v in zip(components(l1, l2), source)}

    def pair(a: Powers, b: Powers) -> Value:
        if (a, b) not in made:
            # The last axis first: it leaves the fewest intermediates.
            axis = max(n for n in range(3) if b[n])
            low = raised(b, axis, -1)
            made[a, b] = fma(shift[axis], pair(a, low), pair(raised(a, axis), low))
        return made[a, b]

    return [pair(a, b) for a in cartesians(l1) for b in cartesians(l2)]


def harmonics(l1: int, l2: int, values: Sequence[Value]) -> list[Value]:
    """Solid harmonics of both indices of a Cartesian pair, row-major; their factors are multiplied in at the end."""
    rows, columns = ncart(l1), ncart(l2)
    half = [_sums(l2, values[n * columns : (n + 1) * columns]) for n in range(rows)]
    whole = [_sums(l1, column) for column in zip(*half)]
    made = []
    for m, (factor1, _) in enumerate(_factored(l1)):
        for n, (factor2, _) in enumerate(_factored(l2)):
            factor = factor1 * factor2
            made.append(whole[n][m] if factor == 1 else whole[n][m] * factor)
    return made


@cache
def _factored(l: int) -> tuple[tuple[float, tuple[tuple[float, int], ...]], ...]:
    """Of each harmonic the commonest coefficient, and for each Cartesian function in it (ratio to that, its place)."""
    made = []
    for column in spherical(l).T:
        terms = [(float(c), n) for n, c in enumerate(column) if c]
        same = [sum(abs(abs(c / d) - 1) < 1e-12 for c, _ in terms) for d, _ in terms]
        factor = abs(terms[same.index(max(same))][0])
        ratios = [(round(c / factor) if abs(abs(c / factor) - 1) < 1e-12 else c / factor, n) for c, n in terms]
        made.append((factor, tuple(sorted(ratios, key=lambda term: (abs(term[0]) != 1, -term[0], term[1])))))
    return tuple(made)


def _sums(l: int, values: Sequence[Value]) -> list[Value]:
    """Harmonics of one index without their factors."""
    made = []
    for _, ((ratio, first), *rest) in _factored(l):
        total = values[first] if ratio == 1 else -values[first]
        for ratio, n in rest:
            if abs(ratio) == 1:
                total = total + values[n] if ratio == 1 else total - values[n]
            else:
                total = fma(const(ratio), values[n], total)
        made.append(total)
    return made


@cache
def side(axis: int, l1: int, l2: int, cartesian: bool) -> Stage:
    """Horizontal recurrence and, unless Cartesian, harmonics of both indices."""
    shift = (AB, CD)[axis]

    def body(source: Sequence[Value]) -> list[Value]:
        pairs = horizontal(l1, l2, [shift[3 + n] for n in range(3)], source)
        return pairs if cartesian else harmonics(l1, l2, pairs)

    after = ncart(l1) * ncart(l2) if cartesian else (2 * l1 + 1) * (2 * l2 + 1)
    return Stage(f"{'bra' if axis == 0 else 'ket'} ({l1}{l2})", axis, len(components(l1, l2)), after, body)


def stages(la: int, lb: int, lc: int, ld: int, cartesian: bool, fused: bool = True) -> list[Stage]:
    """What is to be done to h in turn; empty when h holds the integrals.

    fused False: all indices horizontally, then all to harmonics, for comparison.
    """
    sides = [(0, la, lb), (1, lc, ld)]
    if not fused and not cartesian:
        first = stages(la, lb, lc, ld, cartesian=True)
        later = [_transform(axis, l1, l2) for axis, l1, l2 in sides if max(l1, l2) > 1]
        return first + later
    found = [side(axis, l1, l2, cartesian) for axis, l1, l2 in sides if not is_trivial(l1, l2, cartesian)]
    extents = (len(components(la, lb)), len(components(lc, ld)))
    return min((found, found[::-1]), key=lambda order: flops(order, extents) * (1 + _clashes(order, extents)))


def _transform(axis: int, l1: int, l2: int) -> Stage:
    after = (2 * l1 + 1) * (2 * l2 + 1)
    return Stage(
        f"harmonics of the {'bra' if axis == 0 else 'ket'} ({l1}{l2})", axis, ncart(l1) * ncart(l2), after,
        lambda values: harmonics(l1, l2, values),
    )  # fmt: skip


def flops(order: Sequence[Stage], extents: tuple[int, int]) -> int:
    """Of all runs of the stages' bodies, on a matrix that starts with the extents."""
    total = 0
    for stage in order:
        total += stage.flops * extents[1 - stage.axis]
        extents = _after(stage, extents)
    return total


def _clashes(order: Sequence[Stage], extents: tuple[int, int]) -> bool:
    """Whether a stage works on columns whose elements fall on the same few sets of a CPU's cache.

    Elements of 64 bytes (8 lanes) in rows of a multiple of 16: that takes half as long again.
    """
    for stage in order:
        if stage.axis == 0 and extents[1] % 16 == 0:
            return True
        extents = _after(stage, extents)
    return False


def _after(stage: Stage, extents: tuple[int, int]) -> tuple[int, int]:
    return (stage.after, extents[1]) if stage.axis == 0 else (extents[0], stage.after)


@dataclass(frozen=True)
class Matrix:
    """Part of a flat array of lanes, from `begin` on, as a matrix of so many columns."""

    array: Array
    begin: int
    columns: int

    def __call__(self, row: Value | int, column: Value | int) -> Value:
        return self.array[row * self.columns + (column + self.begin)]


def scratch_size(la: int, lb: int, lc: int, ld: int, cartesian: bool, fused: bool = True) -> int:
    """Elements that `phase2` wants as scratch memory; at least one."""
    return _layout(la, lb, lc, ld, cartesian, fused)[1]


def _layout(*shells_and_kind: int | bool) -> tuple[list[Stage], int]:
    order = stages(*shells_and_kind)  # type: ignore[arg-type]
    la, lb, lc, ld = shells_and_kind[:4]
    extents, size = (len(components(la, lb)), len(components(lc, ld))), 0
    for stage in order[:-1]:
        extents = _after(stage, extents)
        size += extents[0] * extents[1]
    return order, max(size, 1)


@cache
def phase2(
    la: int, lb: int, lc: int, ld: int, cartesian: bool, *,
    fused: bool = True, unrolled: bool | None = None, space: str = "global",
) -> st.Function:  # fmt: skip
    """A function of h, ab, cd, scratch and out that makes integrals of one bra with the kets of all lanes.

    h: lanes [e, f], both in the order of `components`; ab: [6], no lanes, A - B in 3..5; cd: lanes [6], C - D in 3..5;
    scratch: lanes [scratch_size]; out: lanes [na nb, nc nd], a and c outer. h and out may not overlap, and h is not
    changed. fused: see `stages`. unrolled: one body without loops; None lets the size decide.
    space: of h, "local" where h is in registers.
    """
    order, size = _layout(la, lb, lc, ld, cartesian, fused)
    start = (len(components(la, lb)), len(components(lc, ld)))
    final = start
    for stage in order:
        final = _after(stage, final)
    h = Array("h", "f64", (start[0] * start[1],), space, lanes=space != "local")
    scratch = Array("scratch", "f64", (size,), lanes=True)
    out = Array("out", "f64", (final[0] * final[1],), lanes=True)
    if unrolled is None:
        unrolled = flops(order, start) < UNROLLED
    write = _unrolled if unrolled else _in_loops
    kind = ("cart" if cartesian else "sph") + ("" if fused else "_late")
    return st.Function(
        f"phase2_{la}{lb}{lc}{ld}_{kind}", (h, AB, CD, scratch, out), st.block(write(order, start, h, scratch, out)),
        title=f"[e0|f0] to ({la}{lb}|{lc}{ld})",
    )  # fmt: skip


def _in_loops(order: list[Stage], extents: tuple[int, int], h: Array, scratch: Array, out: Array) -> list[st.Statement]:
    i = Var("i", "i64")
    if not order:
        return [st.loop(i, extents[0] * extents[1], st.store(out[i], h[i]))]
    made: list[st.Statement] = []
    source, begin = Matrix(h, 0, extents[1]), 0
    for stage in order:
        after = _after(stage, extents)
        target = Matrix(out, 0, after[1]) if stage is order[-1] else Matrix(scratch, begin, after[1])
        if stage.axis == 0:
            values = stage.body([source(n, i) for n in range(stage.before)])
            places = [target(n, i) for n in range(stage.after)]
        else:
            values = stage.body([source(i, n) for n in range(stage.before)])
            places = [target(i, n) for n in range(stage.after)]
        made.append(st.Block((st.loop(i, extents[1 - stage.axis], _straight(values, places)),), title=stage.title))
        source, extents, begin = target, after, begin + after[0] * after[1]
    return made


def _unrolled(order: list[Stage], extents: tuple[int, int], h: Array, scratch: Array, out: Array) -> list[st.Statement]:
    rows = [[Matrix(h, 0, extents[1])(r, c) for c in range(extents[1])] for r in range(extents[0])]
    for stage in order:
        columns = [stage.body(line) for line in (zip(*rows) if stage.axis == 0 else rows)]
        rows = [list(line) for line in zip(*columns)] if stage.axis == 0 else columns
    values = [v for row in rows for v in row]
    return _straight(values, [out[n] for n in range(len(values))])


def _straight(values: Sequence[Value], places: Sequence[Value]) -> list[st.Statement]:
    """The values, each stored at its place as soon as it is there."""
    place = dict(zip(values, places, strict=True))
    return lines(values, lambda value, held: st.store(place[value], held), "target")
