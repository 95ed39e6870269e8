"""Channels mixed by weights: z[c, w] += sum_r W[r, w] t[r, c] with lanes over w, and its derivatives.

A row r = u mul2 + v is a pair of input channels; a column c is a component of the output, or of the outputs of several
edges that share their weights. t lies as [v, c, u] where all lanes read it; its gradient lies in the same order, and z
as [c, w], both as vectors of channels with zeros past the last one. Weights are streamed once, in their own order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from trnqc.cg.cpu.slots import index, load_vector, memory, store_vector, vectors
from trnqc.gen import Array, Value, const
from trnqc.gen import statements as st
from trnqc.gen.build import Builder, dot
from trnqc.gen.values import fma, lane

# Sums kept in registers: enough to hide the latency of an addition, and no more than there are registers for.
ENOUGH, MOST = 8, 20
# Channels of x in one sum: sums of sums lose less than one long sum. A multiple of any number of copies.
SPAN = 64
# Vectors of a row of weights whose statements stand one after another; more are a loop.
UNROLLED = 8


@dataclass(frozen=True)
class Mixing:
    """Extents of one path's weights, components of its output, edges at a time, and the vectors of the target.

    shared: gradients of the weights are added to, not stored.
    """

    mul1: int
    mul2: int
    mul3: int
    dim: int
    edges: int
    lanes: int
    dtype: str
    shared: bool = False

    @property
    def name(self) -> str:
        return f"{self.mul1}_{self.mul2}_{self.mul3}_{self.dim}"

    @property
    def columns(self) -> int:
        return self.edges * self.dim

    @property
    def rows(self) -> tuple[int, ...]:
        """Channels in every vector of a channel of t."""
        return fill(self.mul1, self.lanes)

    @property
    def vectors(self) -> tuple[int, ...]:
        """Weights in every vector of a row of them."""
        return fill(self.mul3, self.lanes)

    @property
    def t_size(self) -> int:
        """Vectors of t."""
        return self.mul2 * self.columns * len(self.rows)

    @property
    def z_size(self) -> int:
        """Vectors of z."""
        return self.columns * len(self.vectors)

    def row_of_t(self, c: int, u: Value, v: Value) -> Value:
        return (v * self.columns + c) * (len(self.rows) * self.lanes) + u

    def vector_of_z(self, c: int, b: Value) -> Value:
        edge, k = divmod(c, self.dim)
        return (b + edge * len(self.vectors)) * self.dim + k

    def weight(self, u: Value, v: Value, b: Value) -> Value:
        return (u * self.mul2 + v) * self.mul3 + b * self.lanes


def fill(n: int, lanes: int) -> tuple[int, ...]:
    """How many of n elements each vector holds."""
    return tuple(min(lanes, n - begin) for begin in range(0, n, lanes))


def common(name: str, size: int, dtype: str) -> Array:
    """Scratch memory that all lanes reach."""
    return Array(name, dtype, (max(1, size),), space="shared")


def chunks(n: int, size: int) -> Iterator[range]:
    """0 .. n in runs of nearly equal lengths, none above `size`."""
    runs = -(-n // size)
    for run in range(runs):
        yield range(run * n // runs, (run + 1) * n // runs)


def total(terms: Sequence[Value]) -> Value:
    """The sum, added up in pairs."""
    terms = list(terms)
    while len(terms) > 1:
        terms = [a + b for a, b in zip(terms[::2], terms[1::2])] + terms[len(terms) // 2 * 2 :]
    return terms[0]


@cache
def forward(m: Mixing) -> st.Function:
    """z += W t."""
    b = Builder()
    w, t, z = memory("w", m.dtype), common("t", m.t_size * m.lanes, m.dtype), vectors("z", m.z_size, m.dtype)
    for columns in chunks(m.columns, MOST):
        size = max(1, MOST // len(columns))
        whole = m.mul3 // m.lanes // size * size
        if whole:
            with b.loop("b", whole, step=size) as block:
                _Sums(b, m, w, t, z, [(block + n, m.lanes) for n in range(size)], columns).write()
        if rest := [(index(n), m.vectors[n]) for n in range(whole, len(m.vectors))]:
            _Sums(b, m, w, t, z, rest, columns).write()
    return b.function(f"mix_{m.name}", (w, t, z))


@dataclass(frozen=True)
class _Sums:
    """The sums over all rows that belong to some vectors of weights (numbers, filled lanes) and some columns."""

    b: Builder
    m: Mixing
    w: Array
    t: Array
    z: Array
    chosen: Sequence[tuple[Value, int]]
    columns: range

    @property
    def copies(self) -> int:
        """Sums that take turns, so that one addition need not wait for the one before."""
        return max(1, min(ENOUGH // (len(self.chosen) * len(self.columns)), self.m.mul1))

    def write(self) -> None:
        spans, rest = divmod(self.m.mul1, SPAN)
        first = spans * SPAN
        if spans:
            with self.b.loop("first", first, step=SPAN) as begin:
                self._rows(begin, begin + SPAN, begin + SPAN)
        if rest:
            self._rows(first, self.m.mul1, first + rest // self.copies * self.copies)

    def _rows(self, begin: Value | int, end: Value | int, whole: Value | int) -> None:
        """z += the rows of u from begin to end; copies of the sums take turns until `whole`."""
        b, copies = self.b, range(self.copies)
        pairs = [(n, c) for n in range(len(self.chosen)) for c in self.columns]
        sums = {(n, c, i): b.declare("sum", const(0.0, self.m.dtype)) for n, c in pairs for i in copies}
        with b.loop("u", whole, begin=begin, step=len(copies)) as u, b.loop("v", self.m.mul2) as v:
            for i in copies:
                self._row(u + i, v, {(n, c): sums[n, c, i] for n, c in pairs})
        if whole != end:
            with b.loop("u", end, begin=whole) as u, b.loop("v", self.m.mul2) as v:
                self._row(u, v, {(n, c): sums[n, c, 0] for n, c in pairs})
        for n, c in pairs:
            b.accumulate(self.z[self.m.vector_of_z(c, self.chosen[n][0])], total([sums[n, c, i] for i in copies]))

    def _row(self, u: Value, v: Value, sums: dict[tuple[int, int], Value]) -> None:
        weights = [load_vector(self.b, self.w, self.m.weight(u, v, n), filled) for n, filled in self.chosen]
        for (n, c), variable in sums.items():
            self.b.assign(variable, fma(self.t[self.m.row_of_t(c, u, v)], weights[n], variable))


@cache
def backward(m: Mixing, weights: bool = True) -> st.Function:
    """h = W gz summed over w, stored; and with `weights` gw = t gz summed over columns, stored or added to."""
    b, whole, rest = Builder(), *divmod(m.mul1, m.lanes)
    w, t, gz = memory("w", m.dtype), common("t", m.t_size * m.lanes, m.dtype), vectors("gz", m.z_size, m.dtype)
    gw, h = memory("gw", m.dtype), vectors("h", m.t_size, m.dtype)
    with b.loop("v", m.mul2) as v:
        for columns in chunks(m.columns, MOST // 2):
            if whole:
                with b.loop("first", whole) as first:
                    _Rows(b, m, w, t, gz, gw, h, v, first, m.lanes, columns, weights).write()
            if rest:
                _Rows(b, m, w, t, gz, gw, h, v, index(whole), rest, columns, weights).write()
    name = f"mix_{'back' if weights else 'reduce'}_{m.name}"
    return b.function(name, (w, t, gz, gw, h) if weights else (w, gz, h))


@dataclass(frozen=True)
class _Rows:
    """The `used` rows of a vector of t: each leaves its sums by lane to be added up, and its gradient of weights."""

    b: Builder
    m: Mixing
    w: Array
    t: Array
    gz: Array
    gw: Array
    h: Array
    v: Value
    first: Value
    used: int
    columns: range
    weights: bool

    @property
    def squares(self) -> int:
        return -(-self.used * len(self.columns) // self.m.lanes)

    def write(self) -> None:
        b, m, used, zero = self.b, self.m, self.used, const(0.0, self.m.dtype)
        parts = b.array("parts", m.dtype, (max(1, self.squares * m.lanes**2),), "shared")
        with b.loop("q", used) as q:
            sums = self._row(self.first * m.lanes + q)
            for c in self.columns:
                place = (q + (c - self.columns[0]) * used) * m.lanes
                store_vector(b, parts, place, sums[c], m.lanes)
        if used * len(self.columns) % m.lanes:
            with b.loop("q", self.squares * m.lanes, begin=used * len(self.columns)) as q:
                store_vector(b, parts, q * m.lanes, zero, m.lanes)
        b.barrier()
        self._add_lanes(parts)

    def _row(self, u: Value) -> dict[int, Value]:
        """The sums by lane of a row's weights with gz, for every column."""
        b, m, v = self.b, self.m, self.v
        factors = {c: b.let("t", self.t[m.row_of_t(c, u, v)]) for c in self.columns} if self.weights else {}
        sums = {c: b.declare("s", const(0.0, m.dtype)) for c in self.columns}
        looped = m.mul3 // m.lanes if m.mul3 // m.lanes > UNROLLED else 0
        if looped:
            with b.loop("b", looped) as block:
                self._vector(u, block, m.lanes, sums, factors)
        for n in range(looped, len(m.vectors)):
            self._vector(u, index(n), m.vectors[n], sums, factors)
        return sums

    def _vector(self, u: Value, block: Value, filled: int, sums: dict[int, Value], factors: dict[int, Value]) -> None:
        b, m = self.b, self.m
        place, gz = m.weight(u, self.v, block), {c: self.gz[m.vector_of_z(c, block)] for c in self.columns}
        weights = load_vector(b, self.w, place, filled)
        for c in self.columns:
            b.assign(sums[c], fma(weights, gz[c], sums[c]))
        if self.weights:
            adds = m.shared or self.columns[0] > 0
            start = load_vector(b, self.gw, place, filled) if adds else const(0.0, m.dtype)
            value = dot([(factors[c], gz[c]) for c in self.columns], start)
            store_vector(b, self.gw, place, value, filled)

    def _add_lanes(self, parts: Array) -> None:
        """h = the sums over the lanes of rows of `parts`, `used` rows for every column; a square of rows at a time."""
        b, m = self.b, self.m
        added = b.array("added", m.dtype, (max(1, self.squares * m.lanes),), "shared")
        for n in range(self.squares):
            square = b.array("square", m.dtype, (m.lanes,), lanes=True)
            b.add(st.GatherRows(square, parts, lane() * m.lanes + n * m.lanes**2, index(m.lanes)))
            store_vector(b, added, n * m.lanes, total([square[k] for k in range(m.lanes)]), m.lanes)
        b.barrier()
        for n, c in enumerate(self.columns):
            place = (self.v * m.columns + c) * len(m.rows) + self.first
            b.add(st.Unpack(self.h, place, added, index(n * self.used), 1, 1, self.used))
