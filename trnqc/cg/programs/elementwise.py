"""Products of equally numbered channels: t[q] = x[q] y[q] with lanes over q, and what leads to such channels and back.

    t_k = pw sum_ij C_ijk x_i y_j,   gx_i = sum_j q_ij y_j and gy_j = sum_i q_ij x_i with q_ij = pw sum_k C_ijk gt_k

x, y, t and the gradients of x and y are planes [component][channel] where all lanes reach them, a whole number of
vectors each; the gradient of t is [component, block] of vectors. The pairs u < v are the channels q of two gathered
planes: a row q of such pairs has one channel u and those after it in y. Rows are written as whole vectors, one after
another, so that what one writes too far the next one overwrites; a plane has a vector to spare for the last.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from trnqc.cg.problem.coefficients import sparse
from trnqc.cg.programs.channels import Degrees
from trnqc.cg.programs.mixing import common
from trnqc.cg.programs.paths import Body, Rows, index
from trnqc.cg.programs.uvu import vectors
from trnqc.gen import Array, Value, Var
from trnqc.gen import statements as st
from trnqc.gen.values import const, fma, lane, lt, select

B, U, Q = (Var(name, "i64") for name in ("b", "u", "q"))
# Vectors of t; elements of a plane of x, of y and of t.
EXTENTS = BLOCKS, X_APART, Y_APART, T_APART = tuple(Var(n, "i64") for n in ("blocks", "x_apart", "y_apart", "t_apart"))
Terms = list[tuple[Value, Value]]


@dataclass(frozen=True)
class Planes:
    """`dim` planes of `mul` channels; what lies behind the channels of a plane is zero."""

    mul: int
    dim: int
    dtype: str
    lanes: int

    @property
    def blocks(self) -> int:
        return -(-self.mul // self.lanes)

    @property
    def apart(self) -> int:
        return (self.blocks + 1) * self.lanes

    @property
    def size(self) -> int:
        return self.dim * self.apart

    @property
    def name(self) -> str:
        return f"{self.mul}_{self.dim}"


def planes(rows: Rows) -> Planes:
    """Those that hold a slot."""
    return Planes(rows.mul, rows.dim, rows.dtype, rows.lanes)


def read(name: str, source: Array, place: Value, lanes: int) -> tuple[Body, Value]:
    """A vector of a plane, from a place on."""
    held = vectors(name, 1, source.dtype)
    return [st.DeclareArray(held), st.Unpack(held, index(0), source, place, 1, 1, lanes)], held[0]


def write(name: str, to: Array, place: Value, value: Value, lanes: int) -> Body:
    """A vector to a plane, from a place on."""
    held = vectors(name, 1, to.dtype)
    return [st.DeclareArray(held), st.store(held[0], value), st.Pack(to, place, held, index(0), 1, 1, lanes)]


def dot(terms: Terms, begin: Value | None = None) -> Value:
    total = begin
    for a, b in terms:
        total = a * b if total is None else fma(a, b, total)
    assert total is not None
    return total


@cache
def spread(rows: Rows) -> st.Function:
    """A slot from memory into planes."""
    p = planes(rows)
    m, to, held = Array("m", rows.dtype), common("to", p.size, rows.dtype), vectors("held", rows.dim, rows.dtype)

    def body(b: Value, n: int) -> Body:
        moved = [st.Pack(to, b * p.lanes + i * p.apart, held, index(i), 1, 1, p.lanes) for i in range(p.dim)]
        return [st.DeclareArray(held), *rows.unpacked(held, index(0), m, b, n), *moved]

    ends = [index(i * p.apart + p.blocks * p.lanes) for i in range(p.dim)]
    zeros = [write(f"zero{i}", to, end, zero(p.dtype), p.lanes) for i, end in enumerate(ends)]
    return st.Function(f"spread_{rows.name}", (m, to), st.block(rows.each("b", body), *zeros))


@cache
def returned(rows: Rows) -> st.Function:
    """A slot in memory += that in planes."""
    p = planes(rows)
    m, t, held = Array("m", rows.dtype), common("t", p.size, rows.dtype), vectors("held", rows.dim, rows.dtype)

    def body(b: Value, n: int) -> Body:
        out: Body = [st.DeclareArray(held), *rows.unpacked(held, index(0), m, b, n)]
        for i in range(p.dim):
            got, value = read(f"t{i}", t, b * p.lanes + i * p.apart, p.lanes)
            out += [*got, st.accumulate(held[i], value)]
        return [*out, *rows.packed(m, b, held, index(0), n)]

    return st.Function(f"return_{rows.name}", (m, t), st.block(rows.each("b", body)))


def zero(dtype: str) -> Value:
    return const(0.0, dtype)


def cleared(array: Array, lanes: int) -> Body:
    """Planes of zeros."""
    return [st.loop(B, (array.size or 0) // lanes, write("zero", array, B * lanes, zero(array.dtype), lanes))]


@cache
def product(degrees: Degrees, dtype: str, lanes: int, adds: bool) -> st.Function:
    """t = the product of x and y, or += it."""
    pw, x, y, t = Var("pw", dtype), common("x", 1, dtype), common("y", 1, dtype), common("t", 1, dtype)
    (read_x, xs), (read_y, ys), terms = *_operands(degrees, x, y, lanes), sparse(*degrees)
    products = {(i, j): Var(f"p{i}_{j}", dtype) for i, j, _, _ in terms}
    body = [*read_x, *read_y, *(st.Let(p, pw * xs[i] * ys[j]) for (i, j), p in products.items())]
    for k in range(2 * degrees[2] + 1):
        place = T_APART * k + B * lanes
        got, before = read(f"t{k}", t, place, lanes) if adds else ([], None)
        total = dot([(const(c, dtype), products[i, j]) for i, j, q, c in terms if q == k], before)
        body += [*got, *write(f"to{k}", t, place, total, lanes)]
    name = f"multiply{'_more' * adds}_{'_'.join(map(str, degrees))}"
    return st.Function(name, (pw, *EXTENTS, x, y, t), st.block(st.loop(B, BLOCKS, body)))


@cache
def gradients(degrees: Degrees, dtype: str, lanes: int) -> st.Function:
    """gx and gy += those of <gt, t>."""
    pw, gt = Var("pw", dtype), vectors("gt", 1, dtype)
    x, y, gx, gy = (common(name, 1, dtype) for name in ("x", "y", "gx", "gy"))
    (read_x, xs), (read_y, ys), terms = *_operands(degrees, x, y, lanes), sparse(*degrees)
    ts = {k: Var(f"t{k}", dtype) for _, _, k, _ in terms}
    q = {(i, j): Var(f"q{i}_{j}", dtype) for i, j, _, _ in terms}
    body = [*read_x, *read_y, *(st.Let(v, pw * gt[BLOCKS * k + B]) for k, v in ts.items())]
    body += [st.Let(v, dot([(const(c, dtype), ts[k]) for a, b, k, c in terms if (a, b) == ij])) for ij, v in q.items()]
    for name, array, apart, values, other, at in (("gx", gx, X_APART, xs, ys, 0), ("gy", gy, Y_APART, ys, xs, 1)):
        for n in values:
            place = apart * n + B * lanes
            got, before = read(f"{name}{n}", array, place, lanes)
            total = dot([(q[ij], other[ij[1 - at]]) for ij in q if ij[at] == n], before)
            body += [*got, *write(f"to_{name}{n}", array, place, total, lanes)]
    name = f"divide_{'_'.join(map(str, degrees))}"
    return st.Function(name, (pw, *EXTENTS, x, y, gt, gx, gy), st.block(st.loop(B, BLOCKS, body)))


def _operands(degrees: Degrees, x: Array, y: Array, lanes: int) -> list[tuple[Body, dict[int, Value]]]:
    """What reads a block's components of x and y, and these."""
    found = []
    for array, apart, at in ((x, X_APART, 0), (y, Y_APART, 1)):
        body, values = list[st.Statement](), dict[int, Value]()
        for n in sorted({int(term[at]) for term in sparse(*degrees)}):
            got, values[n] = read(f"{array.name}{n}_", array, apart * n + B * lanes, lanes)
            body += got
        found.append((body, values))
    return found


def _rows(mul: int, lanes: int, row: Body) -> Body:
    """For every u but the last: the pairs from q on, blocks b of them."""
    count = (mul - 1) - U
    inner = st.loop(B, (count + (lanes - 1)) // lanes, row)
    return [st.Declare(Q, index(0)), st.loop(U, mul - 1, inner, st.Assign(Q, Q + count))]


@cache
def gathered(source: Planes, to: Planes, first: bool) -> st.Function:
    """The channels u (first) or v of all pairs u < v, in e3nn's order."""
    x, g = common("x", source.size, source.dtype), common("g", to.size, to.dtype)
    row: Body = []
    for i in range(source.dim):
        if first:
            value: Value = x[source.apart * i + U]
        else:
            got, value = read(f"x{i}", x, source.apart * i + U + 1 + B * source.lanes, source.lanes)
            row += got
        row += write(f"g{i}", g, to.apart * i + Q + B * to.lanes, value, to.lanes)
    ends = [write(f"zero{i}", g, index(to.apart * i + to.mul), zero(to.dtype), to.lanes) for i in range(to.dim)]
    body = st.block(_rows(source.mul, source.lanes, row), ends)
    return st.Function(f"gather_{'first' if first else 'second'}_{source.name}", (x, g), body)


@cache
def scattered(to: Planes, source: Planes, first: bool) -> st.Function:
    """Gradients of the channels += those of the pairs."""
    gx, g = common("gx", to.size, to.dtype), common("g", source.size, source.dtype)
    row: Body = []
    there = lt(lane(), (to.mul - 1) - U - B * to.lanes)
    for i in range(to.dim):
        got, value = read(f"g{i}", g, source.apart * i + Q + B * to.lanes, to.lanes)
        row += got
        if first:
            row.append(st.accumulate(gx[to.apart * i + U], select(there, value, zero(to.dtype))))
            continue
        place = to.apart * i + U + 1 + B * to.lanes
        got, before = read(f"gx{i}", gx, place, to.lanes)
        row += [*got, *write(f"to{i}", gx, place, before + value, to.lanes)]
    name = f"scatter_{'first' if first else 'second'}_{to.name}"
    return st.Function(name, (gx, g), st.block(*_rows(to.mul, to.lanes, row)))
