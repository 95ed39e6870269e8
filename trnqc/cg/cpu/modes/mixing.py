"""Channels mixed by weights, z[c, w] += sum_r W[r, w] t[r, c], and its gradients; the lanes of a vector are channels w.

A row r = u mul2 + v is a pair of channels of x and y. A column c is a component of z, or of the z of several edges that
share their weights. t is [v, c, u] in an array that all lanes can read, and its gradient has the same order. z is
[c, w]. Both z and the gradient of t are vectors of channels, with zeros beyond the last channel. Weights are read once,
in their own order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from trnqc.cg.cpu.vectors import index, load_vector, memory, shared, store_vector, vectors
from trnqc.gen import Array, Value, const
from trnqc.gen import statements as st
from trnqc.gen.build import Builder, dot
from trnqc.gen.values import fma, lane

# Number of independent sums that hide the latency of an addition.
ENOUGH = 8
# Largest number of sums in registers.
MOST = 20
# Number of channels of x that are added to one sum before it is added to z, which loses less to rounding than one long
# sum. A multiple of 8, 4, 2 and 1, the numbers of copies of a sum that `_Sums` uses for this many channels.
SPAN = 64
# Largest number of vectors in a row of weights for which statements are unrolled instead of looped.
UNROLLED = 8


@dataclass(frozen=True)
class Mixing:
    """Extents of the mixing of one path, for `edges` edges at once.

    Gradients of shared weights are added to those in memory.
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
    def x_blocks(self) -> int:
        """Number of vectors that hold t[v, c]."""
        return -(-self.mul1 // self.lanes)

    @property
    def vectors(self) -> tuple[int, ...]:
        """Number of weights in each vector of a row of weights."""
        return tuple(min(self.lanes, self.mul3 - begin) for begin in range(0, self.mul3, self.lanes))

    @property
    def t_size(self) -> int:
        """Number of vectors of t."""
        return self.mul2 * self.columns * self.x_blocks

    @property
    def z_size(self) -> int:
        """Number of vectors of z."""
        return self.columns * len(self.vectors)

    def row_of_t(self, c: int, u: Value, v: Value) -> Value:
        """Return the position of t[v, c, u] in elements."""
        return (v * self.columns + c) * (self.x_blocks * self.lanes) + u

    def vector_of_z(self, c: int, b: Value) -> Value:
        """Return the position in z of block b of column c, in vectors."""
        edge, k = divmod(c, self.dim)
        return (b + edge * len(self.vectors)) * self.dim + k

    def weight(self, u: Value, v: Value, b: Value) -> Value:
        """Return the position of block b of the weights of u and v, in elements."""
        return (u * self.mul2 + v) * self.mul3 + b * self.lanes


def chunks(n: int, size: int) -> Iterator[range]:
    """Divide the numbers below n into ranges of nearly equal lengths, at most `size`."""
    runs = -(-n // size)
    for run in range(runs):
        yield range(run * n // runs, (run + 1) * n // runs)


def total(terms: Sequence[Value]) -> Value:
    """Return the sum of the terms, added pairwise."""
    terms = list(terms)
    while len(terms) > 1:
        terms = [a + b for a, b in zip(terms[::2], terms[1::2])] + terms[len(terms) // 2 * 2 :]
    return terms[0]


@cache
def forward(m: Mixing) -> st.Function:
    """Return the function that adds W t to z."""
    b = Builder()
    w, t, z = memory("w", m.dtype), shared("t", m.t_size * m.lanes, m.dtype), vectors("z", m.z_size, m.dtype)
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
    """Writes the sums over all rows for some columns and some blocks of weights.

    `chosen` has the number of each block and the number of weights in it.
    """

    b: Builder
    m: Mixing
    w: Array
    t: Array
    z: Array
    chosen: Sequence[tuple[Value, int]]
    columns: range

    @property
    def copies(self) -> int:
        """Number of copies of each sum, which are used in turn so that additions need not wait for one another."""
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
        """Add the rows of the channels `begin` to `end` to z, with several copies of the sums up to `whole`."""
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
    """Return the function that stores h = sum_w W gz and, if `weights`, the gradient gw = sum_c t gz of the weights.

    If edges share weights, the function adds to gw.
    """
    b, whole, rest = Builder(), *divmod(m.mul1, m.lanes)
    w, t, gz = memory("w", m.dtype), shared("t", m.t_size * m.lanes, m.dtype), vectors("gz", m.z_size, m.dtype)
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
    """Writes the gradients of the `used` rows in one vector of t.

    Each row stores one sum for each lane, which are then added up to h, and its gradient of the weights.
    """

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
        """Number of squares of lanes x lanes elements that hold the sums of all rows and columns."""
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
        """Return the sums by lane of W gz of one row, for every column."""
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
        """Write the terms of one block of weights."""
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
        """Set h to the sums over lanes of `parts`, which has `used` rows for every column, one square at a time."""
        b, m = self.b, self.m
        added = b.array("added", m.dtype, (max(1, self.squares * m.lanes),), "shared")
        for n in range(self.squares):
            square = b.array("square", m.dtype, (m.lanes,), lanes=True)
            b.add(st.GatherRows(square, parts, lane() * m.lanes + n * m.lanes**2, index(m.lanes)))
            store_vector(b, added, n * m.lanes, total([square[k] for k in range(m.lanes)]), m.lanes)
        b.barrier()
        for n, c in enumerate(self.columns):
            place = (self.v * m.columns + c) * m.x_blocks + self.first
            b.add(st.Unpack(self.h, place, added, index(n * self.used), 1, 1, self.used))
