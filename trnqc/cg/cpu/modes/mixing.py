"""Channels mixed by weights: z[c, w] += sum_r W[r, w] t[r, c] with lanes over w, and its derivatives.

A row r = u mul2 + v is a pair of input channels; a column c is a component of the output, or of the outputs of several
edges that share their weights. t lies as [v, c, u] where all lanes read it; its gradient lies in the same order, and z
as [c, w], both as vectors of channels with zeros past the last one. Weights are streamed once, in their own order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from trnqc.cg.cpu.slots import vectors
from trnqc.gen import Array, Value, Var
from trnqc.gen import statements as st
from trnqc.gen.values import const, fma, lane

# Sums kept in registers: enough to hide the latency of an addition, and no more than there are registers for.
ENOUGH, MOST = 8, 20
# Channels of x in one sum: sums of sums lose less than one long sum. A multiple of any number of copies.
SPAN = 64
# Vectors of a row of weights whose statements stand one after another; more are a loop.
UNROLLED = 8
U, V, B, F = (Var(name, "i64") for name in ("u", "v", "b", "first"))
ZERO = const(0, "i64")


Vectors = Sequence[tuple[Value, int]]  # which ones, and how much of each is there


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

    def row_of_t(self, c: int, u: Value) -> Value:
        return (V * self.columns + c) * (len(self.rows) * self.lanes) + u

    def vector_of_t(self, c: int, b: int) -> Value:
        return (V * self.columns + c) * len(self.rows) + b

    def vector_of_z(self, c: int, b: Value) -> Value:
        edge, k = divmod(c, self.dim)
        return (b + edge * len(self.vectors)) * self.dim + k

    def weight(self, u: Value, b: Value) -> Value:
        return (u * self.mul2 + V) * self.mul3 + b * self.lanes


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
    w, t, z = arrays = Array("w", m.dtype), common("t", m.t_size * m.lanes, m.dtype), vectors("z", m.z_size, m.dtype)
    body: list[st.Statement] = []
    for columns in chunks(m.columns, MOST):
        size = max(1, MOST // len(columns))
        whole = m.mul3 // m.lanes // size * size
        each = [(B + n, m.lanes) for n in range(size)]
        body += [st.loop(B, whole, _sums(m, arrays, each, columns, ""), step=size)] if whole else []
        rest = [(const(b, "i64"), m.vectors[b]) for b in range(whole, len(m.vectors))]
        body += _sums(m, arrays, rest, columns, f"{columns[0]}_") if rest else []
    return st.Function(f"mix_{m.name}", (w, t, z), st.block(body))


def _sums(m: Mixing, arrays: tuple[Array, ...], chosen: Vectors, columns: range, run: str) -> list[st.Statement]:
    """The sums over all rows that belong to some vectors of weights and some columns."""
    w, t, z = arrays
    pairs = [(n, c) for n in range(len(chosen)) for c in columns]
    copies = max(1, min(ENOUGH // len(pairs), m.mul1))
    sums = {(n, c, i): Var(f"z{run}{n}_{c}_{i}", m.dtype) for n, c in pairs for i in range(copies)}
    places = {(n, c): z[m.vector_of_z(c, chosen[n][0])] for n, c in pairs}

    def row(i: int) -> list[st.Statement]:
        held = [vectors(f"w{n}_{i}", 1, m.dtype) for n in range(len(chosen))]
        reads = [s for array, vector in zip(held, chosen) for s in _read(m, w, vector, U + i, array)]
        factors = {c: t[m.row_of_t(c, U + i)] for c in columns}
        return reads + [st.Assign(sums[n, c, i], fma(factors[c], held[n][0], sums[n, c, i])) for n, c in pairs]

    def summed(begin: Value | int, end: Value | int, whole: Value | int) -> list[st.Statement]:
        """z += the rows of u from begin to end; copies of the sums take turns until `whole`."""
        return [
            *(st.Declare(variable, const(0.0, m.dtype)) for variable in sums.values()),
            st.loop(U, whole, st.loop(V, m.mul2, *map(row, range(copies))), begin=begin, step=copies),
            *([st.loop(U, end, st.loop(V, m.mul2, row(0)), begin=whole)] if whole != end else []),
            *(st.store(to, to + total([sums[n, c, i] for i in range(copies)])) for (n, c), to in places.items()),
        ]

    spans, rest = divmod(m.mul1, SPAN)
    first = spans * SPAN
    made = [st.loop(F, first, summed(F, F + SPAN, F + SPAN), step=SPAN)] if spans else []
    return made + (summed(first, m.mul1, first + rest // copies * copies) if rest else [])


@cache
def backward(m: Mixing, weights: bool = True) -> st.Function:
    """gt = W gz summed over w, stored; and with `weights` gw = t gz summed over columns, stored or added to."""
    w, t, gz = Array("w", m.dtype), common("t", m.t_size * m.lanes, m.dtype), vectors("gz", m.z_size, m.dtype)
    gw, gt = Array("gw", m.dtype), vectors("gt", m.t_size, m.dtype)
    arrays = (w, t, gz, gw, gt)
    whole, rest = divmod(m.mul1, m.lanes)
    body: list[st.Statement] = []
    for columns in chunks(m.columns, MOST // 2):
        body += [st.loop(F, whole, _rows(m, arrays, F, m.lanes, columns, weights, ""))] if whole else []
        body += _rows(m, arrays, const(whole, "i64"), rest, columns, weights, f"{columns[0]}_") if rest else []
    name = f"mix_{'back' if weights else 'reduce'}_{m.name}"
    return st.Function(name, arrays if weights else (w, gz, gt), st.block(st.loop(V, m.mul2, body)))


def _rows(
    m: Mixing, arrays: tuple[Array, ...], first: Value, used: int, columns: range, weights: bool, run: str
) -> list[st.Statement]:
    """The rows of a vector of t: each leaves its sums by lane to be added up, and the gradient of its weights."""
    w, t, gz, gw, gt = arrays
    q, u, zero = Var("q", "i64"), first * m.lanes + Var("q", "i64"), const(0.0, m.dtype)
    squares = -(-used * len(columns) // m.lanes)
    parts = common(f"parts{run}", squares * m.lanes**2, m.dtype)
    sums = {c: Var(f"s{c}", m.dtype) for c in columns}
    factors = {c: Var(f"t{c}", m.dtype) for c in columns}

    def vector(b: Value, filled: int, name: str = "_") -> list[st.Statement]:
        held, made = vectors(f"w{name}", 1, m.dtype), vectors(f"gw{name}", 1, m.dtype)
        grads = {c: gz[m.vector_of_z(c, b)] for c in columns}
        body = _read(m, w, (b, filled), u, held)
        body += [st.Assign(sums[c], fma(held[0], grads[c], sums[c])) for c in columns]
        if not weights:
            return body
        adds = m.shared or columns[0] > 0
        body += _read(m, gw, (b, filled), u, made) if adds else [st.DeclareArray(made), st.store(made[0], zero)]
        value = made[0]
        for c in columns:
            value = fma(factors[c], grads[c], value)
        return [*body, st.store(made[0], value), st.Pack(gw, m.weight(u, b), made, ZERO, 1, 1, filled)]

    def put(name: str, pair: Value, value: Value) -> list[st.Statement]:
        one = vectors(name, 1, m.dtype)
        return [st.DeclareArray(one), st.store(one[0], value), st.Pack(parts, pair * m.lanes, one, ZERO, 1, 1, m.lanes)]

    looped = m.mul3 // m.lanes if m.mul3 // m.lanes > UNROLLED else 0
    over = [st.loop(B, looped, vector(B, m.lanes))] if looped else []
    rest = [vector(const(b, "i64"), m.vectors[b], str(b)) for b in range(looped, len(m.vectors))]
    read = [st.Let(factors[c], t[m.row_of_t(c, u)]) for c in columns] if weights else []
    start = [st.Declare(sums[c], zero) for c in columns]
    puts = [put(f"put{c}", q + (c - columns[0]) * used, sums[c]) for c in columns]
    lacking = [st.loop(q, squares * m.lanes, put("put", q, zero), begin=used * len(columns))]
    places = [(V * m.columns + c) * len(m.rows) + first for c in columns]
    return [
        st.DeclareArray(parts),
        st.loop(q, used, read, start, over, rest, puts),
        *(lacking if used * len(columns) % m.lanes else []),
        st.Barrier(),
        *_add_lanes(m, parts, squares, gt, places, used, run),
    ]


def _add_lanes(
    m: Mixing, parts: Array, squares: int, gt: Array, places: Sequence[Value], used: int, run: str
) -> list[st.Statement]:
    """gt = the sums over the lanes of rows of `parts`, `used` rows for every place; a square of rows at a time."""
    added = common(f"added{run}", squares * m.lanes, m.dtype)
    made: list[st.Statement] = [st.DeclareArray(added)]
    for n in range(squares):
        turned, one = vectors(f"turned{run}_{n}", m.lanes, m.dtype), vectors(f"one{run}_{n}", 1, m.dtype)
        rows = st.GatherRows(turned, parts, lane() * m.lanes + n * m.lanes**2, const(m.lanes, "i64"))
        made += [st.DeclareArray(turned), st.DeclareArray(one), rows]
        made.append(st.store(one[0], total([turned[k] for k in range(m.lanes)])))
        made.append(st.Pack(added, const(n * m.lanes, "i64"), one, ZERO, 1, 1, m.lanes))
    back = [st.Unpack(gt, place, added, const(n * used, "i64"), 1, 1, used) for n, place in enumerate(places)]
    return [*made, st.Barrier(), *back]


def _read(m: Mixing, w: Array, vector: tuple[Value, int], u: Value, to: Array) -> list[st.Statement]:
    """A vector of a row of weights, zero past the row's end."""
    b, filled = vector
    return [st.DeclareArray(to), st.Unpack(to, ZERO, w, m.weight(u, b), 1, 1, filled)]
