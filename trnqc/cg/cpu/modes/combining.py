"""Combination of products t of pairs of channels to z: z += M(w, t), and its gradients with respect to t and w.

Each pair may have a channel of z of its own, or weights mix all pairs (mixing.py), or, without weights, all pairs are
added up. t is [component, pair], which all lanes can read. Its gradient h is [component, block] of vectors. z and w are
in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from trnqc.cg.cpu.modes import mixing
from trnqc.cg.cpu.modes.mixing import Mixing
from trnqc.cg.cpu.slots import Channels, add, load
from trnqc.cg.cpu.vectors import ZERO, clear, load_vector, shared, store_vector, vectors
from trnqc.gen import Array, Value
from trnqc.gen import statements as st
from trnqc.gen.build import Builder, dot
from trnqc.gen.values import fma


@dataclass(frozen=True)
class Combination:
    """The map M of one path: whether it mixes pairs of channels, has weights, shares them; and the channels of z."""

    mixes: bool
    weighted: bool
    shared: bool
    pairs: int
    channels: Channels

    @property
    def mixing(self) -> Mixing:
        z = self.channels
        return Mixing(self.pairs, 1, z.mul, z.dim, 1, z.lanes, z.dtype, self.shared)

    @property
    def apart(self) -> int:
        """Number of elements from a component of t to the next."""
        return self.blocks * self.channels.lanes

    @property
    def blocks(self) -> int:
        return -(-self.pairs // self.channels.lanes)

    @property
    def name(self) -> str:
        return f"{self.channels.name}{'_w' * self.weighted}"

    def forward(self, b: Builder, w: st.View, t: Array, zs: Array, z: st.View) -> None:
        """Write z += M(w, t); `zs` is scratch for the slot of z."""
        if not self.mixes:
            b.call(each(self), *[w] * self.weighted, t, z)
        elif not self.weighted:
            b.call(total(self), t, z)
        else:
            clear(b, zs, self.channels.size)
            b.call(mixing.forward(self.mixing), w, t, zs)
            b.call(add(self.channels), z, zs)

    def backward(self, b: Builder, w: st.View, t: Array, zs: Array, gz: st.View, gw: st.View | None, h: Array) -> None:
        """Write the gradient h of t and, unless it is None, the gradient gw of w; `zs` is scratch for the slot of z."""
        slopes = [] if gw is None else [gw]
        if not self.mixes:
            b.call(each_gradients(self, gw is not None), *[w] * self.weighted, t, gz, *slopes, h)
        elif not self.weighted:
            b.call(total_gradients(self), gz, h)
        else:
            b.call(load(self.channels), gz, zs)
            arguments = (w, zs, h) if gw is None else (w, t, zs, gw, h)
            b.call(mixing.backward(self.mixing, weights=gw is not None), *arguments)


def _pairs(b: Builder, m: Combination, t: Array, block: Value) -> list[Value]:
    """Load all components of a block of pairs."""
    lanes = m.channels.lanes
    return [load_vector(b, t, block * lanes + m.apart * k, lanes) for k in range(m.channels.dim)]


@cache
def each(m: Combination) -> st.Function:
    """Return the function for z[q] += w[q] t[q], where q is a pair."""
    b, channels = Builder(), m.channels
    w, t, z = Array("w", channels.dtype), shared("t", 1, channels.dtype), Array("z", channels.dtype)
    for block, n in channels.each(b):
        sums = b.array("z", channels.dtype, (channels.dim,), lanes=True)
        channels.unpack(b, sums, ZERO, z, block, n)
        factor = load_vector(b, w, block * channels.lanes, n) if m.weighted else None
        for k, value in enumerate(_pairs(b, m, t, block)):
            b.store(sums[k], value + sums[k] if factor is None else fma(factor, value, sums[k]))
        channels.pack(b, z, block, sums, ZERO, n)
    return b.function(f"each_{m.name}", (*[w] * m.weighted, t, z))


@cache
def each_gradients(m: Combination, slopes: bool) -> st.Function:
    """Return the function for h[q] = w[q] gz[q] and, if `slopes`, gw[q] = sum_k t[q, k] gz[q, k].

    If edges share weights, the function adds to gw.
    """
    b, channels, dtype = Builder(), m.channels, m.channels.dtype
    w, gz, gw = (Array(name, dtype) for name in ("w", "gz", "gw"))
    t, h = shared("t", 1, dtype), vectors("h", 1, dtype)
    for block, n in channels.each(b):
        gradient = b.array("gz", dtype, (channels.dim,), lanes=True)
        channels.unpack(b, gradient, ZERO, gz, block, n)
        factor = load_vector(b, w, block * channels.lanes, n) if m.weighted else None
        for k in range(channels.dim):
            b.store(h[block + m.blocks * k], gradient[k] if factor is None else factor * gradient[k])
        if slopes:
            place = block * channels.lanes
            terms = [(value, gradient[k]) for k, value in enumerate(_pairs(b, m, t, block))]
            store_vector(b, gw, place, dot(terms, load_vector(b, gw, place, n) if m.shared else None), n)
    params = (*[w] * m.weighted, t, gz, *[gw] * slopes, h)
    return b.function(f"each_{'slopes' if slopes else 'back'}_{m.name}", params)


@cache
def total(m: Combination) -> st.Function:
    """Return the function that adds the sum over all pairs to z, which has one channel."""
    b, t, z = Builder(), shared("t", 1, m.channels.dtype), Array("z", m.channels.dtype)
    with b.loop("b", m.blocks) as block:
        for k, value in enumerate(_pairs(b, m, t, block)):
            b.accumulate(z[k], value)
    return b.function(f"total_{m.pairs}_{m.channels.dim}", (t, z))


@cache
def total_gradients(m: Combination) -> st.Function:
    """Return the function that sets h = gz for every pair."""
    b, gz, h = Builder(), Array("gz", m.channels.dtype), vectors("h", 1, m.channels.dtype)
    with b.loop("b", m.blocks) as block:
        for k in range(m.channels.dim):
            b.store(h[block + m.blocks * k], gz[k])
    return b.function(f"total_back_{m.pairs}_{m.channels.dim}", (gz, h))
