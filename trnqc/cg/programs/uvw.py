"""Paths of mode uvw as programs: every edge couples y to x, t = A x, and mixes the channels of t by weights, z += W t.

x, y -> staged x -> t[v, k, u] = sum_i A[i, k] x[u, i], A[i, k] = pw sum_j C[i, j, k] y[v, j] -> mixing -> z

The gradients take the same steps backwards; those of second order are, with dt = A(y) ggx + A(ggy) x,

    ggz = W dt + ggW t,   gW = dt gz,   gx = A(y) (ggW gz) + A(ggy) (W gz),   gy = C x (ggW gz) + C ggx (W gz).

Edges that share their weights are taken several at a time: to the mixing they are columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from trnqc.cg.problem.irreps import Irreps
from trnqc.cg.problem.problem import Instruction, TPProblem
from trnqc.cg.programs import mixing
from trnqc.cg.programs.channels import coupling, uncoupling
from trnqc.cg.programs.edges import Row, cleared
from trnqc.cg.programs.mixing import Mixing, common
from trnqc.cg.programs.paths import Paths, Rows
from trnqc.cg.programs.uvu import taken, vectors
from trnqc.gen import Array, Value, Var
from trnqc.gen import statements as st
from trnqc.gen.values import const, lt, minimum

Body = list[st.Statement]
# Edges at a time where weights are shared: enough for a weight that was read to be used several times.
TOGETHER = 8


@dataclass(frozen=True)
class Slot:
    """A slot of x or z: its rows, where they begin in memory, and in scratch, as [edge, block, component]."""

    rows: Rows
    start: int
    place: int


@dataclass(frozen=True)
class Target:
    """A problem's uvw paths for vectors of `lanes` elements of a type ("f64" or "f32"), `edges` edges at a time."""

    problem: TPProblem
    dtype: str
    lanes: int
    edges: int = 1

    @cached_property
    def paths(self) -> tuple[Instruction, ...]:
        return tuple(p for p in self.problem.instructions if p.connection_mode == "uvw" and 0 not in p.path_shape)

    @cached_property
    def slots1(self) -> dict[int, Slot]:
        """The slots of x that a path reads, by number."""
        return self._slots(self.problem.irreps_in1, {p.i_in1 for p in self.paths})

    @cached_property
    def slots3(self) -> dict[int, Slot]:
        """The slots of z that a path adds to, by number."""
        return self._slots(self.problem.irreps_out, {p.i_out for p in self.paths})

    def _slots(self, irreps: Irreps, used: set[int]) -> dict[int, Slot]:
        made, place = {}, 0
        for number in sorted(used):
            mul_ir, start = irreps[number], irreps.slices[number].start
            rows = Rows(mul_ir.mul, mul_ir.ir.dim, self.problem.layout, self.dtype, self.lanes)
            made[number] = Slot(rows, start, place)
            place += rows.size * self.edges
        return made

    def mixing(self, path: Instruction) -> Mixing:
        dim, shared = self.problem.irreps_out[path.i_out].ir.dim, self.problem.shared_weights
        mul1, mul2, mul3 = path.path_shape
        return Mixing(mul1, mul2, mul3, dim, self.edges, self.lanes, self.dtype, shared)

    def scratch(self, name: str, like: str) -> Array:
        """Vectors for staged slots of x or z, for the sums of y, or for the coupled channels of a path."""
        sizes = {
            "x": sum(slot.rows.size for slot in self.slots1.values()) * self.edges,
            "y": self.problem.dims[1] * self.edges,
            "z": sum(slot.rows.size for slot in self.slots3.values()) * self.edges,
            "t": max((m.t_size for _, m in self.mixings), default=0),
        }
        return vectors(name, sizes[like], self.dtype)

    def common(self, name: str) -> Array:
        """The coupled channels of a path where all lanes reach them."""
        return common(name, max((m.t_size for _, m in self.mixings), default=0) * self.lanes, self.dtype)

    @cached_property
    def mixings(self) -> tuple[tuple[Instruction, Mixing], ...]:
        return tuple((path, self.mixing(path)) for path in self.paths)


COUNT, N, NONE = Var("count", "i64"), Var("n", "i64"), const(0, "i64")


def forward(target: Target) -> st.Function:
    """z += the paths' part, of `count` edges whose rows follow one another; w are the rows of weights, or the one."""
    x, y, w, z = memory = _memory(target, "x", "y", "w", "z")
    xs, zs = target.scratch("xs", "x"), target.scratch("zs", "z")
    tv, ts = target.scratch("tv", "t"), target.common("ts")
    body: Body = [*_stage(target, 1, x, xs), *_clear(zs)]
    for path, m in target.mixings:
        body += [*_couple(target, path, y, xs, tv), *_spread(m, tv, ts)]
        body.append(st.Call(mixing.forward(m), (_weights(w, path), ts, _staged(target.slots3[path.i_out], zs))))
    return _function("uvw_forward", memory, (xs, zs, tv, ts), [*body, *_emit(target, 3, zs, z)])


def backward(target: Target) -> st.Function:
    """gx and gy += the paths' part, their gw stored or, where weights are shared, added."""
    x, y, w, gz, gx, gy, gw = memory = _memory(target, "x", "y", "w", "gz", "gx", "gy", "gw")
    xs, gxs, gzs, gys = (target.scratch(f"{name}s", name[-1]) for name in ("x", "gx", "gz", "gy"))
    tv, ts, gt = target.scratch("tv", "t"), target.common("ts"), target.scratch("gt", "t")
    body: Body = [*_stage(target, 1, x, xs), *_stage(target, 3, gz, gzs), *_clear(gxs), *_clear(gys)]
    for path, m in target.mixings:
        given = _staged(target.slots3[path.i_out], gzs)
        body += [*_couple(target, path, y, xs, tv), *_spread(m, tv, ts)]
        body.append(st.Call(mixing.backward(m), (_weights(w, path), ts, given, _weights(gw, path), gt)))
        body += _uncouple(target, path, (y, xs, gt, gxs, gys))
    body += [*_emit(target, 1, gxs, gx), *_emit_y(target, gys, gy)]
    return _function("uvw_backward", memory, (xs, gxs, gzs, gys, tv, ts, gt), body)


def double_backward(target: Target) -> st.Function:
    """gx, gy and ggz += the paths' part of the gradients of <ggx, gx> + <ggy, gy> + <ggw, gw>; gw as in `backward`."""
    memory = _memory(target, "x", "y", "w", "gz", "ggx", "ggy", "ggw", "gx", "gy", "gw", "ggz")
    x, y, w, gz, ggx, ggy, ggw, gx, gy, gw, ggz = memory
    xs, ggxs, gxs, gzs, ggzs, gys = (
        target.scratch(f"{name}s", name[-1]) for name in ("x", "ggx", "gx", "gz", "ggz", "gy")
    )
    tv, gt = target.scratch("tv", "t"), target.scratch("gt", "t")
    ts, dts = target.common("ts"), target.common("dts")
    body: Body = [*_stage(target, 1, x, xs), *_stage(target, 1, ggx, ggxs), *_stage(target, 3, gz, gzs)]
    body += [*_clear(gxs), *_clear(gys), *_clear(ggzs)]
    for path, m in target.mixings:
        slot = target.slots3[path.i_out]
        given, out, own, other = _staged(slot, gzs), _staged(slot, ggzs), _weights(w, path), _weights(ggw, path)
        body += [*_couple(target, path, y, xs, tv), *_spread(m, tv, ts)]
        body += [
            *_couple(target, path, y, ggxs, tv),
            *_couple(target, path, ggy, xs, tv, adds=True),
            *_spread(m, tv, dts),
        ]
        body += [st.Call(mixing.forward(m), (own, dts, out)), st.Call(mixing.forward(m), (other, ts, out))]
        body.append(st.Call(mixing.backward(m), (own, dts, given, _weights(gw, path), gt)))
        body += _uncouple(target, path, (ggy, ggxs, gt, gxs, gys))
        body.append(st.Call(mixing.backward(m, weights=False), (other, given, gt)))
        body += _uncouple(target, path, (y, xs, gt, gxs, gys))
    body += [*_emit(target, 1, gxs, gx), *_emit_y(target, gys, gy), *_emit(target, 3, ggzs, ggz)]
    return _function("uvw_double", memory, (xs, ggxs, gxs, gzs, ggzs, gys, tv, gt, ts, dts), body)


OPERANDS: dict[Callable[[Target], st.Function], tuple[str, ...]] = {
    forward: ("x", "y", "w", "z"),
    backward: ("x", "y", "w", "gz", "gx", "gy", "gw"),
    double_backward: ("x", "y", "w", "gz", "ggx", "ggy", "ggw", "gx", "gy", "gw", "ggz"),
}


def part(paths: Paths, kind: Callable[[Target], st.Function], rows: Mapping[str, Row]) -> Body:
    """The uvw paths of an edge, to be run after what they add to is there; nothing for a problem without them."""
    target = Target(paths.problem, paths.dtype, paths.lanes)
    if not target.paths:
        return []
    return [st.Call(kind(target), (const(1, "i64"), *(rows[name][0] for name in OPERANDS[kind])))]


def together(paths: Paths, name: str) -> st.Function | None:
    """A pass that takes several edges at a time; None unless all paths are uvw and edges share their weights.

    Called like the program of `batch` of that name: the operands, for gradients `share`, and the range of edges.
    """
    kind = next(kind for kind in OPERANDS if kind.__name__ == name)
    target = Target(paths.problem, paths.dtype, paths.lanes, TOGETHER)
    modes = {path.connection_mode for path in paths.problem.instructions if 0 not in path.path_shape}
    if modes != {"uvw"} or not paths.problem.shared_weights:
        return None
    own, (begin, end, share, e) = kind(target), (Var(name, "i64") for name in ("begin", "end", "share", "e"))
    arrays = dict(zip(OPERANDS[kind], _memory(target, *OPERANDS[kind])))
    lengths = dict(zip("xyz", paths.problem.dims))
    starts = {operand: e * lengths[operand[-1]] for operand in arrays if not operand.endswith("w")}
    starts["gw"] = share * paths.problem.weight_numel
    zeroed = [_zero(arrays[o], starts[o], COUNT * lengths[o[-1]]) for o in own.written if o != "gw"]
    views = (st.view(array[starts.get(operand, NONE)]) for operand, array in arrays.items())
    block = [st.Let(COUNT, minimum(end - e, TOGETHER)), *zeroed, st.Call(own, (COUNT, *views))]
    given: list[Array | Value] = [*arrays.values(), *[share] * ("gw" in arrays), begin, end]
    return st.Function(name, tuple(given), st.block(st.loop(e, end, block, begin=begin, step=TOGETHER)))


def _zero(array: Array, begin: Value, count: Value) -> st.Statement:
    i = Var("i", "i64")
    return st.loop(i, count, st.store(array[begin + i], 0.0))


def _memory(target: Target, *names: str) -> tuple[Array, ...]:
    """Rows of the operands, one after another."""
    return tuple(Array(name, target.dtype) for name in names)


def _function(name: str, memory: Sequence[Array], scratch: Sequence[Array], body: Body) -> st.Function:
    return st.Function(name, (COUNT, *memory), st.block([*map(st.DeclareArray, scratch), *body]))


def _each(target: Target, made: Callable[[Value], Body], end: Value | int = COUNT) -> Body:
    """What is made for every edge."""
    return made(NONE) if target.edges == 1 else [st.loop(N, end, made(N))]


def _stage(target: Target, which: int, source: Array, to: Array) -> Body:
    """Slots of x (1) or z (3) of all edges; edges that are not there are zero."""
    slots, row = _slots(target, which)
    lacking = [st.If(lt(COUNT, target.edges), st.block(_clear(to)))] if target.edges > 1 else []

    def one(n: Value) -> Body:
        return [st.Call(taken(s.rows), (st.view(source[n * row + s.start]), _of_edge(to, s, n))) for s in slots]

    return lacking + _each(target, one)


def _emit(target: Target, which: int, source: Array, to: Array) -> Body:
    """Slots of x (1) or z (3) of all edges in memory += those in scratch."""
    slots, row = _slots(target, which)

    def one(n: Value) -> Body:
        return [st.Call(added(s.rows), (st.view(to[n * row + s.start]), _of_edge(source, s, n))) for s in slots]

    return _each(target, one)


@cache
def added(rows: Rows) -> st.Function:
    """A slot in memory += that in scratch."""
    m, t, held = Array("m", rows.dtype), vectors("t", rows.size, rows.dtype), vectors("held", rows.dim, rows.dtype)

    def body(b: Value, n: int) -> Body:
        sums = [st.accumulate(held[k], t[b * rows.dim + k]) for k in range(rows.dim)]
        return [st.DeclareArray(held), *rows.unpacked(held, NONE, m, b, n), *sums, *rows.packed(m, b, held, NONE, n)]

    return st.Function(f"add_{rows.name}", (m, t), st.block(rows.each("b", body)))


def _clear(array: Array) -> Body:
    return cleared(array, array.size or 0)


def _slots(target: Target, which: int) -> tuple[list[Slot], int]:
    slots = target.slots1 if which == 1 else target.slots3
    return list(slots.values()), target.problem.dims[which - 1]


def _emit_y(target: Target, source: Array, to: Array) -> Body:
    """gy += the sums over the lanes."""
    j, d2 = Var("j", "i64"), target.problem.dims[1]
    return [st.loop(j, COUNT * d2, st.accumulate(to[j], source[j]))] if d2 else []


def _weights(w: Array, path: Instruction) -> st.View:
    return st.view(w[path.weight_offset])


def _staged(slot: Slot, array: Array) -> st.View:
    return st.view(array[slot.place])


def _spread(m: Mixing, tv: Array, ts: Array) -> Body:
    """The vectors of t put where all lanes reach them."""
    i = Var("i", "i64")
    return [st.loop(i, m.t_size, st.Pack(ts, i * m.lanes, tv, i, 1, 1, m.lanes)), st.Barrier()]


def _couple(target: Target, path: Instruction, y: Array, xs: Array, tv: Array, adds: bool = False) -> Body:
    """t = A(y) x, or += it, of all edges."""
    slot, columns = target.slots1[path.i_in1], target.problem.irreps_out[path.i_out].ir.dim
    function = coupling(target.problem.degrees(path), target.dtype, adds)

    def one(n: Value) -> Body:
        t = st.view(tv[n * (columns * slot.rows.blocks)])
        return [st.Call(function, (*_sizes(target, path), _y(target, path, y, n), _of_edge(xs, slot, n), t))]

    return _each(target, one, target.edges)


def _uncouple(target: Target, path: Instruction, arrays: tuple[Array, ...]) -> Body:
    """gx += A(y) gt and gy += C x gt of all edges."""
    y, xs, gt, gxs, gys = arrays
    slot, columns = target.slots1[path.i_in1], target.problem.irreps_out[path.i_out].ir.dim
    function = uncoupling(target.problem.degrees(path), target.dtype)
    d2, start = target.problem.dims[1], target.problem.slices2[path.i_in2].start

    def one(n: Value) -> Body:
        t, gy = st.view(gt[n * (columns * slot.rows.blocks)]), st.view(gys[n * d2 + start])
        x, gx = _of_edge(xs, slot, n), _of_edge(gxs, slot, n)
        return [st.Call(function, (*_sizes(target, path), _y(target, path, y, n), x, t, gx, gy))]

    return _each(target, one)


def _of_edge(array: Array, slot: Slot, n: Value) -> st.View:
    return st.view(array[n * slot.rows.size + slot.place])


def _sizes(target: Target, path: Instruction) -> tuple[Value, ...]:
    """The path's weight and `channels.SIZES`."""
    slot, m = target.problem.irreps_in2[path.i_in2], target.mixing(path)
    apart = (slot.ir.dim, 1) if target.problem.layout == "mul_ir" else (1, slot.mul)
    sizes = (slot.mul, len(m.rows), m.columns * len(m.rows), *apart)
    return const(path.path_weight, target.dtype), *(const(size, "i64") for size in sizes)


def _y(target: Target, path: Instruction, y: Array, n: Value) -> st.View:
    # Edges that are not there meet a y that is: their x is zero.
    row = minimum(n, COUNT - 1) * target.problem.dims[1] if target.edges > 1 else NONE
    return st.view(y[row + target.problem.slices2[path.i_in2].start])
