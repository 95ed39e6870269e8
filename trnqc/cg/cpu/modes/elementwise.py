"""Products of equally numbered channels, with lanes over their numbers, and what leads to such channels and back.

x, y, t and the gradients of x and y are planes [component][channel] where all lanes reach them, a whole number of
vectors each; the gradient h of t is [component, block] of vectors. The pairs u < v are the channels q of two gathered
planes: a row q of such pairs has one channel u and those after it in y. Rows are written as whole vectors, one after
another, so that what one writes too far the next one overwrites; a plane has a vector to spare for the last.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from trnqc.cg.cpu.modes.mixing import common
from trnqc.cg.cpu.slots import ZERO, Channels, index, load_vector, store_vector, vectors
from trnqc.cg.problem.coefficients import sparse
from trnqc.cg.programs import elementwise
from trnqc.cg.programs.coupling import Degrees
from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen.build import Builder, dot
from trnqc.gen.values import lane, lt, select

# Vectors of t; elements of a plane of x, of y and of t.
EXTENTS = BLOCKS, X_APART, Y_APART, T_APART = tuple(Var(n, "i64") for n in ("blocks", "x_apart", "y_apart", "t_apart"))


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
        """Elements from a plane to the next."""
        return (self.blocks + 1) * self.lanes

    @property
    def size(self) -> int:
        return self.dim * self.apart

    @property
    def name(self) -> str:
        return f"{self.mul}_{self.dim}"


def planes_of(channels: Channels) -> Planes:
    """The planes that hold a slot."""
    return Planes(channels.mul, channels.dim, channels.dtype, channels.lanes)


@cache
def spread(channels: Channels) -> st.Function:
    """A slot from memory into planes."""
    b, p = Builder(), planes_of(channels)
    m, to = Array("m", p.dtype), common("to", p.size, p.dtype)
    for block, n in channels.each(b):
        held = b.array("held", p.dtype, (p.dim,), lanes=True)
        channels.unpack(b, held, ZERO, m, block, n)
        for i in range(p.dim):
            b.add(st.Pack(to, block * p.lanes + i * p.apart, held, index(i), 1, 1, p.lanes))
    for i in range(p.dim):
        store_vector(b, to, i * p.apart + p.blocks * p.lanes, zero(p.dtype), p.lanes)
    return b.function(f"spread_{channels.name}", (m, to))


@cache
def collected(channels: Channels) -> st.Function:
    """A slot in memory += that in planes."""
    b, p = Builder(), planes_of(channels)
    m, t = Array("m", p.dtype), common("t", p.size, p.dtype)
    for block, n in channels.each(b):
        held = b.array("held", p.dtype, (p.dim,), lanes=True)
        channels.unpack(b, held, ZERO, m, block, n)
        for i in range(p.dim):
            b.accumulate(held[i], load_vector(b, t, block * p.lanes + i * p.apart, p.lanes))
        channels.pack(b, m, block, held, ZERO, n)
    return b.function(f"collect_{channels.name}", (m, t))


def zero(dtype: str) -> Value:
    return const(0.0, dtype)


def clear_planes(b: Builder, array: Array, lanes: int) -> None:
    """Set planes to zero."""
    with b.loop("b", (array.size or 0) // lanes) as block:
        store_vector(b, array, block * lanes, zero(array.dtype), lanes)


@cache
def product(degrees: Degrees, dtype: str, lanes: int, adds: bool) -> st.Function:
    """t = the product of x and y, or += it."""
    b, pw = Builder(), Var("pw", dtype)
    x, y, t = (common(name, 1, dtype) for name in ("x", "y", "t"))
    with b.loop("b", BLOCKS) as block:
        xs, ys = _operands(b, degrees, x, y, block * lanes, lanes)
        for k, terms in elementwise.product(b, degrees, pw, xs, ys).items():
            place = T_APART * k + block * lanes
            store_vector(b, t, place, dot(terms, load_vector(b, t, place, lanes) if adds else None), lanes)
    return b.function(f"multiply{'_add' * adds}_{'_'.join(map(str, degrees))}", (pw, *EXTENTS, x, y, t))


@cache
def gradients(degrees: Degrees, dtype: str, lanes: int) -> st.Function:
    """gx and gy += those of <h, t>."""
    b, pw, h = Builder(), Var("pw", dtype), vectors("h", 1, dtype)
    x, y, gx, gy = (common(name, 1, dtype) for name in ("x", "y", "gx", "gy"))
    with b.loop("b", BLOCKS) as block:
        xs, ys = _operands(b, degrees, x, y, block * lanes, lanes)
        hs = {k: h[BLOCKS * k + block] for k in range(2 * degrees[2] + 1)}
        sums = elementwise.gradients(b, degrees, pw, xs, ys, hs)
        for array, apart, terms in zip((gx, gy), (X_APART, Y_APART), sums):
            for n in sorted(terms):
                place = apart * n + block * lanes
                store_vector(b, array, place, dot(terms[n], load_vector(b, array, place, lanes)), lanes)
    return b.function(f"multiply_gradients_{'_'.join(map(str, degrees))}", (pw, *EXTENTS, x, y, h, gx, gy))


def _operands(
    b: Builder, degrees: Degrees, x: Array, y: Array, place: Value, lanes: int
) -> tuple[dict[int, Value], dict[int, Value]]:
    """A block's components of x and y that are coupled."""
    used = ({int(term[at]) for term in sparse(*degrees)} for at in (0, 1))
    xs, ys = (
        {n: load_vector(b, array, apart * n + place, lanes) for n in sorted(numbers)}
        for array, apart, numbers in zip((x, y), (X_APART, Y_APART), used)
    )
    return xs, ys


@contextmanager
def _rows(b: Builder, mul: int, lanes: int) -> Iterator[tuple[Value, Value, Value]]:
    """Loop over u and blocks of the pairs u < v; yields u, its first pair and the block."""
    q = b.declare("q", index(0))
    with b.loop("u", mul - 1) as u:
        count = (mul - 1) - u
        with b.loop("b", (count + (lanes - 1)) // lanes) as block:
            yield u, q, block
        b.assign(q, q + count)


@cache
def gathered(source: Planes, to: Planes, first: bool) -> st.Function:
    """The channels u (first) or v of all pairs u < v, in e3nn's order."""
    b, x, g = Builder(), common("x", source.size, source.dtype), common("g", to.size, to.dtype)
    with _rows(b, source.mul, source.lanes) as (u, q, block):
        for i in range(source.dim):
            plane = source.apart * i + u
            value = x[plane] if first else load_vector(b, x, plane + 1 + block * source.lanes, source.lanes)
            store_vector(b, g, to.apart * i + q + block * to.lanes, value, to.lanes)
    for i in range(to.dim):
        store_vector(b, g, to.apart * i + to.mul, zero(to.dtype), to.lanes)
    return b.function(f"gather_{'first' if first else 'second'}_{source.name}", (x, g))


@cache
def scattered(to: Planes, source: Planes, first: bool) -> st.Function:
    """Gradients of the channels += those of the pairs."""
    b, gx, g = Builder(), common("gx", to.size, to.dtype), common("g", source.size, source.dtype)
    with _rows(b, to.mul, to.lanes) as (u, q, block):
        there = lt(lane(), (to.mul - 1) - u - block * to.lanes)
        for i in range(to.dim):
            value = load_vector(b, g, source.apart * i + q + block * to.lanes, to.lanes)
            if first:
                b.accumulate(gx[to.apart * i + u], select(there, value, zero(to.dtype)))
                continue
            place = to.apart * i + u + 1 + block * to.lanes
            store_vector(b, gx, place, load_vector(b, gx, place, to.lanes) + value, to.lanes)
    return b.function(f"scatter_{'first' if first else 'second'}_{to.name}", (gx, g))
