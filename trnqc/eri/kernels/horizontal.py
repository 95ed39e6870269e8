"""The contracted targets [e0|f0] to integrals (ab|cd), by horizontal recurrence and solid harmonics.

h [e, f] -> for each column f: e to functions a, b -> for each row: f to functions c, d -> out [ab, cd]

The horizontal recurrence of a bra is the same for every f, and that of a ket for every pair ab. So each side is one
straight-line body in a loop, and the sides are taken in the order with fewer flops. A side ends in its final functions,
so that the second side works on the solid harmonics of the first; to transform all four indices at the end costs up to
a third more. Small classes are unrolled into one body, whose intermediates never leave the registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from trnqc.eri.kernels.angular import Powers, cartesians, ncart, raised
from trnqc.eri.kernels.harmonics import harmonics
from trnqc.eri.kernels.recurrence import components
from trnqc.gen import Array, Value, Var
from trnqc.gen import statements as st
from trnqc.gen.cost import cost_of_values
from trnqc.gen.sequence import straight_line_code
from trnqc.gen.values import fma

Body = Callable[[Sequence[Value]], list[Value]]
# The centres of a bra pair and, by lane, of ket pairs: A, A - B and C, C - D.
AB, CD = Array("ab", "f64", (6,)), Array("cd", "f64", (6,), lanes=True)
# Flops of a class below which its two sides become one body without loops.
UNROLLED = 3000


@dataclass(frozen=True)
class TransferStep:
    """A step that turns every column (axis 0) or row (axis 1) of a matrix from `before` into `after` values."""

    title: str
    axis: int
    before: int
    after: int
    body: Body

    @cached_property
    def flops(self) -> int:
        """Flops of one run of the body."""
        source = Array("source", "f64", (self.before,), lanes=True)
        return cost_of_values(*self.body([source[n] for n in range(self.before)])).flops.at()


def is_trivial(l1: int, l2: int, cartesian: bool) -> bool:
    """Whether the targets of a side are its functions already."""
    return l2 == 0 and (cartesian or l1 <= 1)


def horizontal(l1: int, l2: int, shift: Sequence[Value], source: Sequence[Value]) -> list[Value]:
    """Return Cartesian (ab| in row-major order from (e0|, by (a b+1_i| = (a+1_i b| + (A-B)_i (a b|.

    Head-Gordon and Pople, J. Chem. Phys. 89, 5777 (1988), eq. 18. shift: A - B. source: the e of `components`.
    """
    known: dict[tuple[Powers, Powers], Value] = {(e, (0, 0, 0)): v for e, v in zip(components(l1, l2), source)}

    def pair(a: Powers, b: Powers) -> Value:
        if (a, b) not in known:
            # Lowering the last axis first leaves the fewest intermediates.
            axis = max(n for n in range(3) if b[n])
            low = raised(b, axis, -1)
            known[a, b] = fma(shift[axis], pair(a, low), pair(raised(a, axis), low))
        return known[a, b]

    return [pair(a, b) for a in cartesians(l1) for b in cartesians(l2)]


@cache
def side(axis: int, l1: int, l2: int, cartesian: bool) -> TransferStep:
    """Build the stage of a side: the horizontal recurrence and, unless Cartesian, solid harmonics of both indices."""
    shift = (AB, CD)[axis]

    def body(source: Sequence[Value]) -> list[Value]:
        pairs = horizontal(l1, l2, [shift[3 + n] for n in range(3)], source)
        return pairs if cartesian else harmonics(l1, l2, pairs)

    after = ncart(l1) * ncart(l2) if cartesian else (2 * l1 + 1) * (2 * l2 + 1)
    return TransferStep(f"{'bra' if axis == 0 else 'ket'} ({l1}{l2})", axis, len(components(l1, l2)), after, body)


def stages(la: int, lb: int, lc: int, ld: int, cartesian: bool, fused: bool = True) -> list[TransferStep]:
    """Return the stages from h to the integrals, in order; none if h holds the integrals already.

    fused: False takes the horizontal recurrence of both sides before all solid harmonics, for comparison.
    """
    sides = [(0, la, lb), (1, lc, ld)]
    if not fused and not cartesian:
        first = stages(la, lb, lc, ld, cartesian=True)
        later = [_transform(axis, l1, l2) for axis, l1, l2 in sides if max(l1, l2) > 1]
        return first + later
    needed = [side(axis, l1, l2, cartesian) for axis, l1, l2 in sides if not is_trivial(l1, l2, cartesian)]
    extents = (len(components(la, lb)), len(components(lc, ld)))
    return min((needed, needed[::-1]), key=lambda order: flops(order, extents) * (1 + _clashes(order, extents)))


def _transform(axis: int, l1: int, l2: int) -> TransferStep:
    after = (2 * l1 + 1) * (2 * l2 + 1)
    return TransferStep(
        f"harmonics of the {'bra' if axis == 0 else 'ket'} ({l1}{l2})",
        axis,
        ncart(l1) * ncart(l2),
        after,
        lambda values: harmonics(l1, l2, values),
    )


def flops(order: Sequence[TransferStep], extents: tuple[int, int]) -> int:
    """Return the flops of all stages for a matrix that has these extents at first."""
    total = 0
    for stage in order:
        total += stage.flops * extents[1 - stage.axis]
        extents = _after(stage, extents)
    return total


def _clashes(order: Sequence[TransferStep], extents: tuple[int, int]) -> bool:
    """Whether a stage works on columns whose elements compete for a few sets of the CPU's cache.

    With 64-byte elements (8 lanes) the columns compete if a row is a multiple of 16 such elements. The stage then takes
    half as long again.
    """
    for stage in order:
        if stage.axis == 0 and extents[1] % 16 == 0:
            return True
        extents = _after(stage, extents)
    return False


def _after(stage: TransferStep, extents: tuple[int, int]) -> tuple[int, int]:
    return (stage.after, extents[1]) if stage.axis == 0 else (extents[0], stage.after)


@dataclass(frozen=True)
class LaneMatrix:
    """A matrix with this number of columns in a flat array of lanes, from element `begin` on."""

    array: Array
    begin: int
    columns: int

    def __call__(self, row: Value | int, column: Value | int) -> Value:
        return self.array[row * self.columns + (column + self.begin)]


def scratch_size(la: int, lb: int, lc: int, ld: int, cartesian: bool, fused: bool = True) -> int:
    """Return the elements of scratch memory that `horizontal_function` needs, at least one."""
    return _stages_and_scratch(la, lb, lc, ld, cartesian, fused)[1]


def _stages_and_scratch(
    la: int, lb: int, lc: int, ld: int, cartesian: bool, fused: bool
) -> tuple[list[TransferStep], int]:
    order = stages(la, lb, lc, ld, cartesian, fused)
    extents, size = (len(components(la, lb)), len(components(lc, ld))), 0
    for stage in order[:-1]:
        extents = _after(stage, extents)
        size += extents[0] * extents[1]
    return order, max(size, 1)


@cache
def horizontal_function(
    la: int,
    lb: int,
    lc: int,
    ld: int,
    cartesian: bool,
    *,
    fused: bool = True,
    unrolled: bool | None = None,
    space: str = "global",
) -> st.Function:
    """Build the function that turns the targets of one bra pair with the ket pairs of all lanes into integrals.

    Its parameters are h, lanes [e, f] in the order of `components`; ab [6], A and A - B; cd, lanes [6], C and C - D;
    scratch, lanes [scratch_size]; and out, lanes [na nb, nc nd]. h is not changed and must not overlap with out.
    `fused` is as in `stages`; `unrolled` writes one body without loops, by default for small classes; and `space` is
    the memory of h, where "local" stands for registers.
    """
    order, size = _stages_and_scratch(la, lb, lc, ld, cartesian, fused)
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
    name = f"horizontal_{la}{lb}{lc}{ld}_{kind}"
    body = st.block(write(order, start, h, scratch, out))
    return st.Function(name, (h, AB, CD, scratch, out), body, title=f"[e0|f0] to ({la}{lb}|{lc}{ld})")


def _in_loops(
    order: list[TransferStep], extents: tuple[int, int], h: Array, scratch: Array, out: Array
) -> list[st.Statement]:
    i = Var("i", "i64")
    if not order:
        return [st.loop(i, extents[0] * extents[1], st.store(out[i], h[i]))]
    loops: list[st.Statement] = []
    source, begin = LaneMatrix(h, 0, extents[1]), 0
    for stage in order:
        after = _after(stage, extents)
        target = LaneMatrix(out, 0, after[1]) if stage is order[-1] else LaneMatrix(scratch, begin, after[1])
        if stage.axis == 0:
            values = stage.body([source(n, i) for n in range(stage.before)])
            results = [target(n, i) for n in range(stage.after)]
        else:
            values = stage.body([source(i, n) for n in range(stage.before)])
            results = [target(i, n) for n in range(stage.after)]
        loops.append(st.Block((st.loop(i, extents[1 - stage.axis], _stored(values, results)),), title=stage.title))
        source, extents, begin = target, after, begin + after[0] * after[1]
    return loops


def _unrolled(
    order: list[TransferStep], extents: tuple[int, int], h: Array, scratch: Array, out: Array
) -> list[st.Statement]:
    rows = [[LaneMatrix(h, 0, extents[1])(r, c) for c in range(extents[1])] for r in range(extents[0])]
    for stage in order:
        columns = [stage.body(line) for line in (zip(*rows) if stage.axis == 0 else rows)]
        rows = [list(line) for line in zip(*columns)] if stage.axis == 0 else columns
    values = [v for row in rows for v in row]
    return _stored(values, [out[n] for n in range(len(values))])


def _stored(values: Sequence[Value], elements: Sequence[Value]) -> list[st.Statement]:
    """Return code that computes the values and stores each in its element at once."""
    element = dict(zip(values, elements, strict=True))
    return straight_line_code(values, lambda value, held: st.store(element[value], held), "target")
