"""What becomes of products t of pairs of channels: z += M(w, t), and its derivatives with respect to t and w.

A pair has a channel of z of its own, or weights mix the pairs (mixing.py), or, without weights, all are added up.
t is [component][pair] where all lanes reach it, its gradient h [component, block] of vectors; z and w lie in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from trnqc.cg.cpu.modes import mixing, uvu
from trnqc.cg.cpu.modes.mixing import Mixing, common
from trnqc.cg.cpu.slots import ZERO, Channels, clear, load_vector, store_vector, vectors
from trnqc.gen import Array, Value
from trnqc.gen import statements as st
from trnqc.gen.build import Builder, dot
from trnqc.gen.values import fma


@dataclass(frozen=True)
class Combination:
    """M of one path.

    Parameters
    ----------
    mixes, weighted : bool
        Whether the pairs are summed to channels of z, and whether the path has weights.
    shared : bool
        Whether gradients of the weights are added to, not written.
    pairs : int
        The number of pairs.
    channels : Channels
        Those of the path's slot of z.
    """

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
        """Elements from a component of t to the next."""
        return self.blocks * self.channels.lanes

    @property
    def blocks(self) -> int:
        return -(-self.pairs // self.channels.lanes)

    @property
    def name(self) -> str:
        return f"{self.channels.name}{'_w' * self.weighted}"

    def forward(self, b: Builder, w: st.View, t: Array, zs: Array, z: st.View) -> None:
        """z += M(w, t)."""
        if not self.mixes:
            b.call(each(self), *[w] * self.weighted, t, z)
        elif not self.weighted:
            b.call(total(self), t, z)
        else:
            clear(b, zs, self.channels.size)
            b.call(mixing.forward(self.mixing), w, t, zs)
            b.call(uvu.add(self.channels), z, zs)

    def backward(self, b: Builder, w: st.View, t: Array, zs: Array, gz: st.View, gw: st.View | None, h: Array) -> None:
        """h, and gw where there is one to write."""
        slopes = [] if gw is None else [gw]
        if not self.mixes:
            b.call(each_gradients(self, gw is not None), *[w] * self.weighted, t, gz, *slopes, h)
        elif not self.weighted:
            b.call(total_gradients(self), gz, h)
        else:
            b.call(uvu.load(self.channels), gz, zs)
            both = (w, zs, h) if gw is None else (w, t, zs, gw, h)
            b.call(mixing.backward(self.mixing, weights=gw is not None), *both)


def _pairs(b: Builder, m: Combination, t: Array, block: Value) -> list[Value]:
    """All components of a block of pairs."""
    lanes = m.channels.lanes
    return [load_vector(b, t, block * lanes + m.apart * k, lanes) for k in range(m.channels.dim)]


@cache
def each(m: Combination) -> st.Function:
    """z[q] += w[q] t[q]."""
    b, channels = Builder(), m.channels
    w, t, z = Array("w", channels.dtype), common("t", 1, channels.dtype), Array("z", channels.dtype)
    for block, n in channels.each(b):
        held = b.array("z", channels.dtype, (channels.dim,), lanes=True)
        channels.unpack(b, held, ZERO, z, block, n)
        factor = load_vector(b, w, block * channels.lanes, n) if m.weighted else None
        for k, value in enumerate(_pairs(b, m, t, block)):
            b.store(held[k], value + held[k] if factor is None else fma(factor, value, held[k]))
        channels.pack(b, z, block, held, ZERO, n)
    return b.function(f"each_{m.name}", (*[w] * m.weighted, t, z))


@cache
def each_gradients(m: Combination, slopes: bool) -> st.Function:
    """h[q] = w[q] gz[q] and, with `slopes`, gw[q] = sum_k t[q] gz[q], added where weights are shared."""
    b, channels, dtype = Builder(), m.channels, m.channels.dtype
    w, t, gz, gw, h = (
        Array("w", dtype),
        common("t", 1, dtype),
        Array("gz", dtype),
        Array("gw", dtype),
        vectors("h", 1, dtype),
    )
    for block, n in channels.each(b):
        held = b.array("gz", dtype, (channels.dim,), lanes=True)
        channels.unpack(b, held, ZERO, gz, block, n)
        factor = load_vector(b, w, block * channels.lanes, n) if m.weighted else None
        for k in range(channels.dim):
            b.store(h[block + m.blocks * k], held[k] if factor is None else factor * held[k])
        if slopes:
            place = block * channels.lanes
            terms = [(value, held[k]) for k, value in enumerate(_pairs(b, m, t, block))]
            store_vector(b, gw, place, dot(terms, load_vector(b, gw, place, n) if m.shared else None), n)
    params = (*[w] * m.weighted, t, gz, *[gw] * slopes, h)
    return b.function(f"each_{'slopes' if slopes else 'back'}_{m.name}", params)


@cache
def total(m: Combination) -> st.Function:
    """z += the sum over all pairs; z has one channel."""
    b, t, z = Builder(), common("t", 1, m.channels.dtype), Array("z", m.channels.dtype)
    with b.loop("b", m.blocks) as block:
        for k, value in enumerate(_pairs(b, m, t, block)):
            b.accumulate(z[k], value)
    return b.function(f"total_{m.pairs}_{m.channels.dim}", (t, z))


@cache
def total_gradients(m: Combination) -> st.Function:
    """h = gz for every pair."""
    b, gz, h = Builder(), Array("gz", m.channels.dtype), vectors("h", 1, m.channels.dtype)
    with b.loop("b", m.blocks) as block:
        for k in range(m.channels.dim):
            b.store(h[block + m.blocks * k], gz[k])
    return b.function(f"total_back_{m.pairs}_{m.channels.dim}", (gz, h))
