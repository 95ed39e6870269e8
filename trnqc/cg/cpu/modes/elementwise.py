"""Products of channels of equal number on a CPU, and the arrays that hold such channels.

x, y, their gradients, and t are stored as planes: [component, channel] arrays that all lanes can read, whose rows are a
whole number of vectors. The gradient h of t is [component, block] of vectors.

For modes over pairs u < v, the pairs are the channels of two gathered planes, one with the channels u and one with the
channels v. All pairs of one u lie one after another. They are written as whole vectors, so that the excess of one u is
overwritten by the next u; a plane has one more vector for the excess of the last.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from trnqc.cg.cpu.slots import Channels
from trnqc.cg.cpu.vectors import ZERO, index, load_vector, shared, store_vector, vectors
from trnqc.cg.problem.coefficients import sparse
from trnqc.cg.programs import elementwise
from trnqc.cg.programs.coupling import Degrees
from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen.build import Builder, dot
from trnqc.gen.values import lane, lt, select

# Vectors in a plane of t, and elements from a plane to the next in x, y and t.
EXTENTS = BLOCKS, X_APART, Y_APART, T_APART = tuple(Var(n, "i64") for n in ("blocks", "x_apart", "y_apart", "t_apart"))


@dataclass(frozen=True)
class Planes:
    """`dim` planes of `mul` channels each; the rest of a plane is zero."""

    mul: int
    dim: int
    dtype: str
    lanes: int

    @property
    def blocks(self) -> int:
        return -(-self.mul // self.lanes)

    @property
    def apart(self) -> int:
        """Number of elements from a plane to the next."""
        return (self.blocks + 1) * self.lanes

    @property
    def size(self) -> int:
        return self.dim * self.apart

    @property
    def name(self) -> str:
        return f"{self.mul}_{self.dim}"


def planes_of(channels: Channels) -> Planes:
    """Return the planes for all channels of a slot."""
    return Planes(channels.mul, channels.dim, channels.dtype, channels.lanes)


@cache
def load_planes(channels: Channels) -> st.Function:
    """Return the function that loads a slot from memory into planes."""
    b, p = Builder(), planes_of(channels)
    m, to = Array("m", p.dtype), shared("to", p.size, p.dtype)
    for block, n in channels.each(b):
        components = b.array("held", p.dtype, (p.dim,), lanes=True)
        channels.unpack(b, components, ZERO, m, block, n)
        for i in range(p.dim):
            b.add(st.Pack(to, block * p.lanes + i * p.apart, components, index(i), 1, 1, p.lanes))
    for i in range(p.dim):
        store_vector(b, to, i * p.apart + p.blocks * p.lanes, const(0.0, p.dtype), p.lanes)
    return b.function(f"spread_{channels.name}", (m, to))


@cache
def add_planes(channels: Channels) -> st.Function:
    """Return the function that adds a slot in planes to the slot in memory."""
    b, p = Builder(), planes_of(channels)
    m, t = Array("m", p.dtype), shared("t", p.size, p.dtype)
    for block, n in channels.each(b):
        components = b.array("held", p.dtype, (p.dim,), lanes=True)
        channels.unpack(b, components, ZERO, m, block, n)
        for i in range(p.dim):
            b.accumulate(components[i], load_vector(b, t, block * p.lanes + i * p.apart, p.lanes))
        channels.pack(b, m, block, components, ZERO, n)
    return b.function(f"collect_{channels.name}", (m, t))


def clear_planes(b: Builder, array: Array, lanes: int) -> None:
    """Set planes to zero."""
    with b.loop("b", (array.size or 0) // lanes) as block:
        store_vector(b, array, block * lanes, const(0.0, array.dtype), lanes)


@cache
def product(degrees: Degrees, dtype: str, lanes: int, adds: bool) -> st.Function:
    """Return the function for t = P(x, y), which is added to t if `adds`."""
    b, pw = Builder(), Var("pw", dtype)
    x, y, t = (shared(name, 1, dtype) for name in ("x", "y", "t"))
    with b.loop("b", BLOCKS) as block:
        xs, ys = _operands(b, degrees, x, y, block * lanes, lanes)
        for k, terms in elementwise.product(b, degrees, pw, xs, ys).items():
            place = T_APART * k + block * lanes
            store_vector(b, t, place, dot(terms, load_vector(b, t, place, lanes) if adds else None), lanes)
    return b.function(f"multiply{'_add' * adds}_{'_'.join(map(str, degrees))}", (pw, *EXTENTS, x, y, t))


@cache
def gradients(degrees: Degrees, dtype: str, lanes: int) -> st.Function:
    """Return the function that adds the gradients of <h, t> to gx and gy."""
    b, pw, h = Builder(), Var("pw", dtype), vectors("h", 1, dtype)
    x, y, gx, gy = (shared(name, 1, dtype) for name in ("x", "y", "gx", "gy"))
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
    """Load the components of a block of x and y that C couples."""
    used = ({int(term[at]) for term in sparse(*degrees)} for at in (0, 1))
    xs, ys = (
        {n: load_vector(b, array, apart * n + place, lanes) for n in sorted(numbers)}
        for array, apart, numbers in zip((x, y), (X_APART, Y_APART), used)
    )
    return xs, ys


@contextmanager
def _each_u(b: Builder, mul: int, lanes: int) -> Iterator[tuple[Value, Value, Value]]:
    """Loop over u and over blocks of its pairs u < v; yields u, the number of its first pair, and the block."""
    q = b.declare("q", index(0))
    with b.loop("u", mul - 1) as u:
        count = (mul - 1) - u
        with b.loop("b", (count + (lanes - 1)) // lanes) as block:
            yield u, q, block
        b.assign(q, q + count)


@cache
def gather(source: Planes, to: Planes, first: bool) -> st.Function:
    """Return the function that copies the channels u (if `first`) or v of all pairs u < v, in e3nn's order."""
    b, x, g = Builder(), shared("x", source.size, source.dtype), shared("g", to.size, to.dtype)
    with _each_u(b, source.mul, source.lanes) as (u, q, block):
        for i in range(source.dim):
            plane = source.apart * i + u
            value = x[plane] if first else load_vector(b, x, plane + 1 + block * source.lanes, source.lanes)
            store_vector(b, g, to.apart * i + q + block * to.lanes, value, to.lanes)
    for i in range(to.dim):
        store_vector(b, g, to.apart * i + to.mul, const(0.0, to.dtype), to.lanes)
    return b.function(f"gather_{'first' if first else 'second'}_{source.name}", (x, g))


@cache
def scatter(to: Planes, source: Planes, first: bool) -> st.Function:
    """Return the function that adds gradients of the pairs to the gradients of the channels u (if `first`) or v."""
    b, gx, g = Builder(), shared("gx", to.size, to.dtype), shared("g", source.size, source.dtype)
    with _each_u(b, to.mul, to.lanes) as (u, q, block):
        exists = lt(lane(), (to.mul - 1) - u - block * to.lanes)
        for i in range(to.dim):
            value = load_vector(b, g, source.apart * i + q + block * to.lanes, to.lanes)
            if first:
                b.accumulate(gx[to.apart * i + u], select(exists, value, const(0.0, to.dtype)))
                continue
            place = to.apart * i + u + 1 + block * to.lanes
            store_vector(b, gx, place, load_vector(b, gx, place, to.lanes) + value, to.lanes)
    return b.function(f"scatter_{'first' if first else 'second'}_{to.name}", (gx, g))
