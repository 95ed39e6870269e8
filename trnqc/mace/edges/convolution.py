"""Programs of the convolution on the edges of a block: forward for the edges of a node, reverse for an edge.

forward    A_k += w sum_i A_ik x_i                                                 summed over edges in registers
reverse    s_i = sum_k A_ik gA_k:  gx_i += w s_i,  dE/dr += w' sum_i x_i s_i,  gY_j += sum_ik C_ijk (w x_i gA_k)

The lanes are channels. Sums over channels, dE/dr and gY, stay vectors here; `layer` adds their lanes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from trnqc.cg.problem.coefficients import sparse
from trnqc.cg.programs.coupling import contracted
from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen.build import Builder, dot
from trnqc.gen.values import fma
from trnqc.mace.edges.paths import Path, PathLayout

# First and last + 1 edge of a run in a block, offset of the slopes behind the weights.
BEGIN, END, SLOPES = (Var(name, "i64") for name in ("begin", "end", "slopes"))
# The edges of a block, and their rows of weights.
EDGES, EDGE_ROWS = Array("edges", "i64"), Array("rows", "i64")


def couplings(layout: PathLayout, dtype: str) -> st.Function:
    """Return the program that writes the couplings of the edges of a block.

    Its parameters are ``end`` (the number of edges), ``edges``, ``harmonics`` and ``couplings``.
    """
    b = Builder()
    y = Array("harmonics", dtype, (None, layout.dims[1]))
    out = Array("couplings", dtype, (None, len(layout.couplings)))
    with b.loop("row", END) as row:
        edge = b.let("edge", EDGES[row])
        needed = sorted({j for terms in layout.couplings for j, _ in terms})
        values = {j: b.let("y", y[edge, j]) for j in needed}
        for n, terms in enumerate(layout.couplings):
            b.store(out[row, n], dot([(const(c, dtype), values[j]) for j, c in terms]))
    return b.function("couplings", (END, EDGES, y, out))


def forward(layout: PathLayout, dtype: str, step: int, most: int) -> st.Function:
    """Return the program that adds the edges `begin` to `end` of a block to a node.

    At most `most` sums are kept in registers; rows of weights are `step` rows from one vector to the next. Its
    parameters are ``begin, end``, ``edges`` and ``rows`` (numbers of the edges of the block, and their rows of
    weights), ``senders``, ``couplings``, ``weights``, ``x`` and ``z`` (of the node).
    """
    b, (senders, factors, weights, x, z) = Builder(), _operands(layout, dtype)
    nv = layout.vectors
    with b.loop("v", nv) as v:
        for group in _groups(layout, most):
            sums = {(p.z, k): b.declare("sum", z[(p.z + k) * nv + v]) for _, p in group for k in range(p.dims[2])}
            with b.loop("edge", END, begin=BEGIN) as edge:
                row = b.let("row", EDGE_ROWS[edge])
                start = b.let("start", senders[EDGES[edge]] * (layout.dims[0] * nv) + v)
                components = {i: b.let("x", x[start + (group[0][1].x + i) * nv]) for i in range(group[0][1].dims[0])}
                for n, p in group:
                    _add(b, p, sums, weights[(n * nv + v) * step + row], components, factors, edge)
            for (first, k), total in sums.items():
                b.store(z[(first + k) * nv + v], total)
    return b.function("convolve", (BEGIN, END, EDGES, EDGE_ROWS, senders, factors, weights, x, z))


def _add(
    b: Builder,
    p: Path,
    sums: dict[tuple[int, int], Value],
    weight: Value,
    x: dict[int, Value],
    factors: Array,
    edge: Value,
) -> None:
    """Add a path of an edge to the sums. The weight multiplies x, or the result if that has fewer components."""
    w = b.let("w", weight)
    if p.dims[0] <= p.dims[2]:
        weighted = {i: b.let("wx", w * x[i]) for i in x}
        for i, k, n, sign in p.couplings:
            total = sums[p.z, k]
            b.assign(total, fma(_signed(factors[edge, n], sign), weighted[i], total))
        return
    for k in range(p.dims[2]):
        terms = [(_signed(factors[edge, n], sign), x[i]) for i, at, n, sign in p.couplings if at == k]
        b.assign(sums[p.z, k], fma(w, b.let("z", dot(terms)), sums[p.z, k]))


def _groups(layout: PathLayout, most: int) -> Iterator[list[tuple[int, Path]]]:
    """Paths with their numbers that read the same slot of x and have at most so many results, at least one path."""
    group: list[tuple[int, Path]] = []
    for entry in sorted(enumerate(layout.paths), key=lambda entry: (entry[1].x, entry[1].z)):
        results = sum(p.dims[2] for _, p in [*group, entry])
        if group and (group[0][1].x != entry[1].x or results > most):
            yield group
            group = []
        group.append(entry)
    if group:
        yield group


def _operands(layout: PathLayout, dtype: str) -> tuple[Array, Array, Array, Array, Array]:
    weights, x, z = (Array(name, dtype, lanes=True) for name in ("weights", "x", "z"))
    return Array("senders", "i64"), Array("couplings", dtype, (None, len(layout.couplings))), weights, x, z


def reverse(layout: PathLayout, dtype: str, step: int, edges: int) -> st.Function:
    """Return the program of the gradients of one edge, for blocks of at most `edges` edges.

    Its parameters are ``slopes`` (offset of the slopes behind the weights), ``couplings`` and ``weights`` (of the
    edge), ``x`` and ``g_x`` (of the sender), ``g_z`` (of the receiver), the scratch ``sums`` [d2], and ``kept`` [d2,
    edges, lanes] from the edge on, to which the vectors of the gradients of all harmonics but the first, and of the
    length, are written. For `step` see `forward`.
    """
    b = Builder()
    nv = layout.vectors
    factors = Array("couplings", dtype)
    weights, x, g_x, g_z, sums = (Array(name, dtype, lanes=True) for name in ("weights", "x", "g_x", "g_z", "sums"))
    zero = const(0, dtype)
    for n in range(layout.dims[1]):
        b.store(sums[n], zero)
    for n, p in enumerate(layout.paths):
        places = (
            st.view(weights[n * nv * step]),
            st.view(x[p.x * nv]),
            st.view(g_x[p.x * nv]),
            st.view(g_z[p.z * nv]),
            st.view(sums[max(p.y - 1, 0)]),
            st.view(sums[layout.dims[1] - 1]),
        )
        b.call(_path(p, layout.vectors, dtype, step), SLOPES, factors, *places)
    kept = Array("kept", dtype)
    for n in range(layout.dims[1]):
        place = const(n * edges * layout.lanes, "i64")
        b.add(st.Pack(kept, place, sums, const(n, "i64"), 1, 1, layout.lanes))
    return b.function("edge_gradient", (SLOPES, factors, weights, x, g_x, g_z, sums, kept))


@cache
def _path(p: Path, nv: int, dtype: str, step: int) -> st.Function:
    """The gradients of one path of an edge."""
    b, zero = Builder(), const(0, dtype)
    factors = Array("couplings", dtype)
    names = ("weights", "x", "g_x", "g_z", "g_y", "g_r")
    weights, x, g_x, g_z, g_y, g_r = arrays = tuple(Array(name, dtype, lanes=True) for name in names)
    curved = p.degrees[1] > 0
    grams = {(i, k): b.declare("gram", zero) for i, k, _, _ in p.couplings if curved}
    slope = b.declare("slope", zero)
    a = {(i, k): (b.let("a", factors[n]), sign) for i, k, n, sign in p.couplings}
    with b.loop("v", nv) as v:
        w, dw = b.let("w", weights[v * step]), b.let("dw", weights[v * step + SLOPES])
        g = [b.let("g", g_z[k * nv + v]) for k in range(p.dims[2])]
        gradient_of_w: Value | None = None
        for i in range(p.dims[0]):
            terms = [(_signed(value, sign), g[k]) for (at, k), (value, sign) in a.items() if at == i]
            component, place = b.let("x", x[i * nv + v]), g_x[i * nv + v]
            if terms:
                s = b.let("s", dot(terms))
                b.store(place, fma(w, s, place))
                gradient_of_w = component * s if gradient_of_w is None else fma(component, s, gradient_of_w)
            weighted = b.let("wx", w * component)
            for (at, k), gram in grams.items():
                if at == i:
                    b.assign(gram, fma(weighted, g[k], gram))
        assert gradient_of_w is not None
        b.assign(slope, fma(dw, b.let("gw", gradient_of_w), slope))
    # Paths are added one by one, so that rounding errors of float32 are those of few terms.
    b.store(g_r[0], g_r[0] + slope)
    if curved:
        for j, total in contracted(sparse(*p.degrees), grams, {j: g_y[j] for j in range(p.dims[1])}).items():
            b.store(g_y[j], total)
    name = f"path_{'_'.join(map(str, p.degrees))}_{p.couplings[0][2]}"
    return b.function(name, (SLOPES, factors, *arrays))


def _signed(value: Value, sign: float) -> Value:
    return value if sign > 0 else -value
