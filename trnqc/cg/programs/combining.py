"""What becomes of products t of pairs of channels: z += M(w, t), and its derivatives with respect to t and w.

A pair has a channel of z of its own, or weights mix the pairs (mixing.py), or, without weights, all are summed to one.
t is [component][pair] where all lanes reach it, its gradient [component, block] of vectors; z and w lie in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from trnqc.cg.programs import mixing
from trnqc.cg.programs.elementwise import read
from trnqc.cg.programs.mixing import Mixing, common
from trnqc.cg.programs.paths import Body, Rows, index
from trnqc.cg.programs.uvu import taken, vectors
from trnqc.cg.programs.uvw import added
from trnqc.gen import Array, Value, Var
from trnqc.gen import statements as st
from trnqc.gen.values import fma

K = Var("k", "i64")


@dataclass(frozen=True)
class Combination:
    """One path's. pairs: how many; rows: of its slot of z; shared: gradients of weights are added to, not stored."""

    mixes: bool
    weighted: bool
    shared: bool
    pairs: int
    rows: Rows

    @property
    def mixing(self) -> Mixing:
        rows = self.rows
        return Mixing(self.pairs, 1, rows.mul, rows.dim, 1, rows.lanes, rows.dtype, self.shared)

    @property
    def apart(self) -> int:
        """Elements from a component of t to the next."""
        return -(-self.pairs // self.rows.lanes) * self.rows.lanes

    @property
    def blocks(self) -> int:
        return self.apart // self.rows.lanes

    def forward(self, w: st.View, t: Array, zs: Array, z: st.View) -> Body:
        """z += M(w, t)."""
        if not self.mixes:
            return [st.Call(each(self), (*[w] * self.weighted, t, z))]
        if not self.weighted:
            return [st.Call(total(self), (t, z))]
        clear = [st.loop(K, self.rows.size, st.store(zs[K], 0.0))]
        return [*clear, st.Call(mixing.forward(self.mixing), (w, t, zs)), st.Call(added(self.rows), (z, zs))]

    def backward(self, w: st.View, t: Array, zs: Array, gz: st.View, gw: st.View | None, gt: Array) -> Body:
        """gt, and gw where there is one to write."""
        gw = gw if self.weighted else None
        slopes = [] if gw is None else [gw]
        if not self.mixes:
            return [st.Call(each_gradient(self, gw is not None), (*[w] * self.weighted, t, gz, *slopes, gt))]
        if not self.weighted:
            return [st.Call(total_gradient(self), (gz, gt))]
        take = st.Call(taken(self.rows), (gz, zs))
        if gw is None:
            return [take, st.Call(mixing.backward(self.mixing, weights=False), (w, zs, gt))]
        return [take, st.Call(mixing.backward(self.mixing), (w, t, zs, gw, gt))]

    @property
    def name(self) -> str:
        return f"{self.rows.name}{'_w' * self.weighted}"


def _weights(m: Combination, name: str, w: Array, b: Value, n: int) -> tuple[Body, Value]:
    held = vectors(name, 1, w.dtype)
    return [st.DeclareArray(held), st.Unpack(held, index(0), w, b * m.rows.lanes, 1, 1, n)], held[0]


def _pairs(m: Combination, t: Array, b: Value) -> tuple[Body, list[Value]]:
    """All components of a block of pairs."""
    body, values = list[st.Statement](), list[Value]()
    for k in range(m.rows.dim):
        got, value = read(f"t{k}", t, b * m.rows.lanes + m.apart * k, m.rows.lanes)
        body, values = [*body, *got], [*values, value]
    return body, values


@cache
def each(m: Combination) -> st.Function:
    """z[q] += w[q] t[q]."""
    rows = m.rows
    w, t, z = Array("w", rows.dtype), common("t", 1, rows.dtype), Array("z", rows.dtype)
    held = vectors("held", rows.dim, rows.dtype)

    def body(b: Value, n: int) -> Body:
        got, values = _pairs(m, t, b)
        weigh, factor = _weights(m, "w_", w, b, n) if m.weighted else ([], None)
        sums = [v + held[k] if factor is None else fma(factor, v, held[k]) for k, v in enumerate(values)]
        moved: Body = [st.DeclareArray(held), *rows.unpacked(held, index(0), z, b, n), *got, *weigh]
        moved += [st.store(held[k], total) for k, total in enumerate(sums)]
        return [*moved, *rows.packed(z, b, held, index(0), n)]

    return st.Function(f"each_{m.name}", (*[w] * m.weighted, t, z), st.block(rows.each("b", body)))


@cache
def each_gradient(m: Combination, slopes: bool) -> st.Function:
    """gt[q] = w[q] gz[q] and, with `slopes`, gw[q] = sum_k t[q] gz[q], added where weights are shared."""
    rows = m.rows
    w, t, gz, gw = Array("w", rows.dtype), common("t", 1, rows.dtype), Array("gz", rows.dtype), Array("gw", rows.dtype)
    gt, held = vectors("gt", 1, rows.dtype), vectors("held", rows.dim, rows.dtype)

    def body(b: Value, n: int) -> Body:
        weigh, factor = _weights(m, "w_", w, b, n) if m.weighted else ([], None)
        out: Body = [st.DeclareArray(held), *rows.unpacked(held, index(0), gz, b, n), *weigh]
        for k in range(rows.dim):
            out.append(st.store(gt[b + m.blocks * k], held[k] if factor is None else factor * held[k]))
        if not slopes:
            return out
        got, values = _pairs(m, t, b)
        before, sum_ = _weights(m, "gw_", gw, b, n)
        if not m.shared:
            before, sum_ = before[:1], values[0] * held[0]
            values = values[1:]
        for k, value in enumerate(values, start=rows.dim - len(values)):
            sum_ = fma(value, held[k], sum_)
        made = vectors("gw_", 1, rows.dtype)
        return [*out, *got, *before, st.store(made[0], sum_), st.Pack(gw, b * rows.lanes, made, index(0), 1, 1, n)]

    params = (*[w] * m.weighted, t, gz, *[gw] * slopes, gt)
    name = f"each_{'slopes' if slopes else 'back'}_{m.name}"
    return st.Function(name, params, st.block(rows.each("b", body)))


@cache
def total(m: Combination) -> st.Function:
    """z += the sum over all pairs; z has one channel."""
    t, z, b = common("t", 1, m.rows.dtype), Array("z", m.rows.dtype), Var("b", "i64")
    got, values = _pairs(m, t, b)
    sums = [st.accumulate(z[k], value) for k, value in enumerate(values)]
    return st.Function(f"total_{m.pairs}_{m.rows.dim}", (t, z), st.block(st.loop(b, m.blocks, got, sums)))


@cache
def total_gradient(m: Combination) -> st.Function:
    """gt = gz for every pair."""
    gz, gt, b = Array("gz", m.rows.dtype), vectors("gt", 1, m.rows.dtype), Var("b", "i64")
    same = [st.store(gt[b + m.blocks * k], gz[k]) for k in range(m.rows.dim)]
    return st.Function(f"total_back_{m.pairs}_{m.rows.dim}", (gz, gt), st.block(st.loop(b, m.blocks, same)))
