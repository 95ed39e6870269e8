"""Functions of uvu paths: lanes run over channels u, and y enters as numbers that are the same on every lane.

A[i, k] = pw sum_j C[i, j, k] y[j] is formed once an edge; per block of channels then, with w the weights,

    z_k = w sum_i A_ik x_i,   gx_i = w p_i and gw = sum_i x_i p_i with p_i = sum_k A_ik gz_k,
    gy_j = pw sum_ik C_ijk G_ik with G_ik = sum_u w x_i gz_k.

For second order, with B formed from ggy as A from y, s_i = w ggx_i + ggw x_i and q_i = sum_k B_ik gz_k,

    ggz_k = sum_i A_ik s_i + B_ik w x_i,   gx_i = ggw p_i + w q_i,
    gw = sum_i ggx_i p_i + x_i q_i,   G_ik = sum_u s_i gz_k.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from trnqc.cg.programs.paths import Body, Rows, Shape, index
from trnqc.gen import Array, Value, Var
from trnqc.gen import statements as st
from trnqc.gen.values import const, fma

Pairs = dict[tuple[int, int], Value]
Params = tuple[Value | Array, ...]


def memory(name: str, dtype: str) -> Array:
    return Array(name, dtype)


def vectors(name: str, size: int, dtype: str) -> Array:
    return Array(name, dtype, (max(1, size),), "local", lanes=True)


@cache
def taken(rows: Rows) -> st.Function:
    """A slot from memory into scratch."""
    m, t = memory("m", rows.dtype), vectors("t", rows.size, rows.dtype)
    body = rows.each("b", lambda b, n: rows.unpacked(t, b * rows.dim, m, b, n))
    return st.Function(f"take_{rows.name}", (m, t), st.block(body))


@cache
def given(rows: Rows) -> st.Function:
    """A slot from scratch into memory."""
    m, t = memory("m", rows.dtype), vectors("t", rows.size, rows.dtype)
    body = rows.each("b", lambda b, n: rows.packed(m, b, t, b * rows.dim, n))
    return st.Function(f"give_{rows.name}", (m, t), st.block(body))


@cache
def forward(shape: Shape, adds: bool) -> st.Function:
    """z = the path's part, in memory; or, if it adds, z += it in scratch."""
    s, d1, d3 = shape, shape.dims[0], shape.dims[2]
    pw, y, w = Var("pw", s.dtype), memory("y", s.dtype), memory("w", s.dtype)
    x, z = vectors("x", s.x.size, s.dtype), _target(s, adds)

    def body(b: Value, n: int) -> Body:
        read, xs = _components("x", x, b, d1)
        made, factor = weight(s, "w", w, b, n)
        scaled, xs, factor = (*_times("v", xs, factor), None) if d1 <= d3 else ([], xs, factor)
        sums = [_dot([(a[i, q], xs[i]) for i, q in a if q == k], s.dtype) for k in range(d3)]
        parts = [_product(total, factor) for total in sums]
        return [*read, *made, *scaled, *_written(s, z, b, n, parts, adds)]

    formed, a = coupled(s, "a", y, pw)
    params: Params = (pw, y, x, *[w] * s.weighted, z)
    return st.Function(f"forward{'_more' * adds}_{s.name}", params, st.block(formed, s.x.each("b", body)))


@cache
def backward(shape: Shape) -> st.Function:
    """gx += and gy += in scratch, gw = (shared weights: +=) in memory, for gz in scratch; gy is a sum of every lane."""
    s, d1, d3 = shape, shape.dims[0], shape.dims[2]
    pw, y, w, gw = Var("pw", s.dtype), memory("y", s.dtype), memory("w", s.dtype), memory("gw", s.dtype)
    x, gx, gz = (vectors(name, size, s.dtype) for name, size in _scratch(s, "x gx gz"))
    gy = vectors("gy", s.dims[1] * s.step, s.dtype)
    kept = vectors("kept", s.x.blocks, s.dtype)
    formed, a = coupled(s, "a", y, pw)

    def part(number: int, of: tuple[int, ...], sums: dict[tuple[int, int], Value]) -> Callable[[Value, int], Body]:
        def body(b: Value, n: int) -> Body:
            read_x, xs = _components("x", x, b, d1, of)
            read_z, zs = _components("gz", gz, b, d3)
            made, factor = weight(s, "w", w, b, n)
            p = {i: Var(f"p{i}", s.dtype) for i in of}
            out: Body = [*read_x, *read_z, *made]
            out += [st.Let(p[i], _dot([(a[i, k], zs[k]) for q, k in a if q == i], s.dtype)) for i in of]
            out += [_add(gx, b * d1 + i, p[i], factor) for i in of]
            if s.weighted:
                out += slope(s, number, kept, gw, b, n, [(xs[i], p[i]) for i in of])
            scaled, xs = _times("v", xs, factor)
            return [*out, *scaled, *[st.Assign(g, fma(xs[i], zs[k], g)) for (i, k), g in sums.items()]]

        return body

    params: Params = (pw, y, x, *[w] * s.weighted, gz, gx, gy, *[gw] * s.weighted)
    return st.Function(f"backward_{s.name}", params, st.block(formed, _kept(s, kept), _summed(s, gy, pw, part)))


@cache
def double_backward(shape: Shape, adds: bool, outputs: bool = True, inputs: bool = True) -> st.Function:
    """outputs: ggz as z in `forward`; inputs: gx, gy and gw as in `backward`."""
    s, d1, d3 = shape, shape.dims[0], shape.dims[2]
    pw, y, ggy, w, ggw, gw = (Var("pw", s.dtype), *(memory(n, s.dtype) for n in ("y", "ggy", "w", "ggw", "gw")))
    x, ggx, gx, gz = (vectors(name, size, s.dtype) for name, size in _scratch(s, "x ggx gx gz"))
    gy, ggz, kept = vectors("gy", s.dims[1] * s.step, s.dtype), _target(s, adds), vectors("kept", s.x.blocks, s.dtype)
    (from_y, a), (from_ggy, c) = coupled(s, "a", y, pw), coupled(s, "c", ggy, pw)

    def given(b: Value, n: int, of: tuple[int, ...]) -> tuple[Body, dict, dict, dict, Value | None, Value | None]:
        """s_i and w x_i, and what they are made of."""
        (read_x, xs), (read_g, gs) = _components("x", x, b, d1, of), _components("ggx", ggx, b, d1, of)
        (made, v), (more, dv) = weight(s, "w", w, b, n), weight(s, "ggw", ggw, b, n)
        if v is None or dv is None:
            return [*read_x, *read_g], xs, gs, gs, v, dv
        sums = {i: Var(f"s{i}", s.dtype) for i in of}
        both: Body = [st.Let(sums[i], fma(v, gs[i], dv * xs[i])) for i in of]
        return [*read_x, *read_g, *made, *more, *both], xs, gs, sums, v, dv

    def outwards(b: Value, n: int) -> Body:
        read, xs, _, sums, v, _ = given(b, n, tuple(range(d1)))
        scaled, xs = _times("v", xs, v)
        parts = [
            _dot([(m[i, q], values[i]) for m, values in ((a, sums), (c, xs)) for i, q in m if q == k], s.dtype)
            for k in range(d3)
        ]
        return [*read, *scaled, *_written(s, ggz, b, n, parts, adds)]

    def part(number: int, of: tuple[int, ...], total: dict[tuple[int, int], Value]) -> Callable[[Value, int], Body]:
        def body(b: Value, n: int) -> Body:
            read, xs, gs, sums, v, dv = given(b, n, of)
            read_z, zs = _components("gz", gz, b, d3)
            p, q = ({i: Var(f"{name}{i}", s.dtype) for i in of} for name in "pq")
            out: Body = [*read, *read_z]
            for i in of:
                out.append(st.Let(p[i], _dot([(a[i, k], zs[k]) for r, k in a if r == i], s.dtype)))
                out.append(st.Let(q[i], _dot([(c[i, k], zs[k]) for r, k in c if r == i], s.dtype)))
                out.append(_add(gx, b * d1 + i, q[i], v))
                out += [_add(gx, b * d1 + i, p[i], dv)] * s.weighted
            if s.weighted:
                out += slope(s, number, kept, gw, b, n, [t for i in of for t in ((gs[i], p[i]), (xs[i], q[i]))])
            return [*out, *[st.Assign(g, fma(sums[i], zs[k], g)) for (i, k), g in total.items()]]

        return body

    w_params, out, back = [w, ggw] * s.weighted, [ggz] * outputs, [gx, gy, *[gw] * s.weighted] * inputs
    params: Params = (pw, y, ggy, x, ggx, *w_params, *[gz] * inputs, *out, *back)
    body = [from_y, from_ggy, s.x.each("b", outwards) if outputs else []]
    body += [_kept(s, kept), _summed(s, gy, pw, part)] if inputs else []
    name = f"double{'_more' * adds}{'_outputs' * (not inputs)}{'_inputs' * (not outputs)}"
    return st.Function(f"{name}_{s.name}", params, st.block(*body))


def coupled(s: Shape, name: str, y: Array, pw: Value) -> tuple[Body, Pairs]:
    """Forms pw sum_j C[i, j, k] y[j] for every pair (i, k)."""
    scaled = [Var(f"{name}_y{j}", s.dtype) for j in range(s.dims[1])]
    body: Body = [st.Let(v, y[j * s.step] * pw) for j, v in enumerate(scaled)]
    a = Array(name, s.dtype, (max(1, len(s.pairs)),), "local")
    body.append(st.DeclareArray(a))
    pairs = {}
    for n, (i, k) in enumerate(s.pairs):
        terms = [(const(value, s.dtype), scaled[j]) for p, j, q, value in s.terms if (p, q) == (i, k)]
        body.append(st.store(a[n], _dot(terms, s.dtype)))
        pairs[i, k] = a[n]
    return body, pairs


def weight(s: Shape, name: str, w: Array, b: Value, n: int) -> tuple[Body, Value | None]:
    """A block of weights, one a channel, as a vector; nothing for a path without."""
    if not s.weighted:
        return [], None
    held = vectors(f"{name}_", 1, s.dtype)
    moved = st.Unpack(held, index(0), w, b * (s.lanes * s.mul2), s.mul2, 1, n)
    return [st.DeclareArray(held), moved], held[0]


def slope(s: Shape, number: int, kept: Array, gw: Array, b: Value, n: int, terms: list) -> Body:
    """The gradient of a block of weights: a part of the components at a time, written after the last one."""
    last = number + 1 == len(s.parts)
    total = _dot(terms, s.dtype, kept[b] if number else None)
    if not last:
        return [st.store(kept[b], total)]
    held = vectors("gw_", 1, s.dtype)
    start, made = b * (s.lanes * s.mul2), [st.DeclareArray(held)]
    if s.summed:
        made.append(st.Unpack(held, index(0), gw, start, s.mul2, 1, n))  # type: ignore[arg-type]
        total = total + held[0]
    return [*made, st.store(held[0], total), st.Pack(gw, start, held, index(0), s.mul2, 1, n)]


def _kept(s: Shape, kept: Array) -> Body:
    return [st.DeclareArray(kept)] if s.weighted and len(s.parts) > 1 else []


def _summed(s: Shape, gy: Array, pw: Value, part: Callable[..., Callable[[Value, int], Body]]) -> Body:
    """The parts one after another, each with its sums G over channels, which then are added to gy."""
    body: Body = []
    for number, of in enumerate(s.parts):
        sums = {(i, k): Var(f"g{i}_{k}", s.dtype) for i, k in s.pairs if i in of}
        body += [st.Declare(g, const(0, s.dtype)) for g in sums.values()]
        body += s.x.each("b", part(number, of, sums))
        for j in range(s.dims[1]):
            terms = [(const(c, s.dtype), sums[i, k]) for i, q, k, c in s.terms if q == j and i in of]
            if terms:
                body.append(st.store(gy[j * s.step], fma(_dot(terms, s.dtype), pw, gy[j * s.step])))
    return body


def _written(s: Shape, z: Array, b: Value, n: int, parts: list[Value], adds: bool) -> Body:
    """One block of z: added to in scratch, or packed into memory."""
    d3 = len(parts)
    if adds:
        return [st.store(z[b * d3 + k], z[b * d3 + k] + part) for k, part in enumerate(parts)]
    held = vectors("z_", d3, s.dtype)
    made = [st.store(held[k], part) for k, part in enumerate(parts)]
    return [st.DeclareArray(held), *made, *s.z.packed(z, b, held, index(0), n)]


def _target(s: Shape, adds: bool) -> Array:
    return vectors("z", s.z.size, s.dtype) if adds else memory("z", s.dtype)


def _scratch(s: Shape, names: str) -> list[tuple[str, int]]:
    return [(name, (s.z if name == "gz" else s.x).size) for name in names.split()]


def _components(
    name: str, source: Array, b: Value, dim: int, of: tuple[int, ...] | None = None
) -> tuple[Body, dict[int, Value]]:
    """Variables that hold a block's components."""
    names = {i: Var(f"{name}{i}", source.dtype) for i in (range(dim) if of is None else of)}
    return [st.Let(v, source[b * dim + i]) for i, v in names.items()], names


def _times(name: str, values: dict[int, Value], factor: Value | None) -> tuple[Body, dict[int, Value]]:
    if factor is None:
        return [], values
    scaled = {i: Var(f"{name}{i}", v.dtype) for i, v in values.items()}
    return [st.Let(scaled[i], v * factor) for i, v in values.items()], scaled


def _add(target: Array, place: Value, value: Value, factor: Value | None) -> st.Statement:
    old = target[place]
    return st.store(old, old + value if factor is None else fma(value, factor, old))


def _product(value: Value, factor: Value | None) -> Value:
    return value if factor is None else value * factor


def _dot(terms: list[tuple[Value, Value]], dtype: str, start: Value | None = None) -> Value:
    total = start
    for a, b in terms:
        total = a * b if total is None else fma(a, b, total)
    return const(0, dtype) if total is None else total
