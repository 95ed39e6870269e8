"""Paths over all pairs of channels whose result keeps v (uvv, uvuv), as programs of one edge.

For one channel u of x they are paths of mode uvu with x and y in each other's place: lanes run over the channels v of
y, and x[u] enters as numbers that are the same on every lane. uvv adds up all u in scratch; uvuv has a run of channels
of z for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from trnqc.cg.problem.coefficients import clebsch_gordan
from trnqc.cg.problem.modes import MODES
from trnqc.cg.problem.problem import Instruction, TPProblem
from trnqc.cg.programs import uvu
from trnqc.cg.programs.edges import Arguments, cleared
from trnqc.cg.programs.paths import Body, Rows, Shape
from trnqc.cg.programs.uvw import added
from trnqc.gen import Array, Value, Var
from trnqc.gen import statements as st
from trnqc.gen.values import const

U, J = Var("u", "i64"), Var("j", "i64")


@dataclass(frozen=True)
class Turned:
    """One path with x and y in each other's place."""

    problem: TPProblem
    dtype: str
    lanes: int
    path: Instruction

    @cached_property
    def own(self) -> bool:
        """Whether every channel of x has channels of z of its own."""
        return MODES[self.path.connection_mode].result == "pair"

    @cached_property
    def shape(self) -> Shape:
        l1, l2, l3 = self.problem.degrees(self.path)
        mul1, mul2 = self.path.path_shape
        inner = self.problem.layout == "mul_ir"
        return Shape((l2, l1, l3), mul2, 1, 1 if inner else mul1, self.path.has_weight, self.problem.shared_weights,
                     self.problem.layout, self.dtype, self.lanes)  # fmt: skip

    @cached_property
    def rows3(self) -> Rows:
        """The channels of z of one channel of x."""
        mul = self.problem.irreps_out[self.path.i_out].mul
        return Rows(self.shape.mul1, self.shape.dims[2], self.problem.layout, self.dtype, self.lanes, mul)

    @cached_property
    def factor(self) -> Value:
        """The path's weight, with the sign that the coefficients get when their first two degrees change places."""
        l1, l2, l3 = self.problem.degrees(self.path)
        turned = clebsch_gordan(l2, l1, l3).transpose(1, 0, 2)
        sign = 1.0 if (turned * clebsch_gordan(l1, l2, l3)).sum() > 0 else -1.0
        return const(sign * self.path.path_weight, self.dtype)

    def channel(self, x: Array) -> st.View:
        """Channel u of x in its row."""
        start = self.problem.slices1[self.path.i_in1].start
        return st.view(x[U * (self.shape.dims[1] if self.problem.layout == "mul_ir" else 1) + start])

    def slot2(self, y: Array) -> st.View:
        return st.view(y[self.problem.slices2[self.path.i_in2].start])

    def slot3(self, z: Array, u: Value | int) -> st.View:
        """The channels of z that channel u of x leads to."""
        step = self.rows3.mul * (self.rows3.dim if self.problem.layout == "mul_ir" else 1)
        start = self.problem.slices3[self.path.i_out].start
        return st.view(z[U * step + start]) if self.own else st.view(z[const(start, "i64")])

    def weights(self, w: Array) -> list[st.View]:
        """Those of channel u, where there are any."""
        return [st.view(w[U * self.shape.mul1 + self.path.weight_offset])] * self.path.has_weight

    def over(self, each: Body) -> st.For:
        return st.loop(U, self.path.path_shape[0], each)

    def scratch(self, name: str) -> Array:
        """Vectors for a slot of y, for the channels of z, or for sums by lane over the channels of x."""
        slot = self.problem.irreps_in1[self.path.i_in1]
        sizes = {"x": slot.dim, "y": self.shape.x.size, "z": self.rows3.size}
        return uvu.vectors(f"{name}s", sizes[name[-1]], self.dtype)

    def sums(self, gxs: Array) -> st.View:
        """The sums of channel u, component by component as `Shape.step` has them."""
        return st.view(gxs[U * (self.shape.dims[1] if self.problem.layout == "mul_ir" else 1)])


def paths(problem: TPProblem, dtype: str, lanes: int, weighted: bool) -> tuple[Turned, ...]:
    """All of a problem; `weighted`: those with weights."""
    return tuple(
        Turned(problem, dtype, lanes, path)
        for path in problem.instructions
        if path.connection_mode in ("uvv", "uvuv") and 0 not in path.path_shape and (path.has_weight or not weighted)
    )


@cache
def forward(p: Turned) -> st.Function:
    """z += the path's part."""
    x, y, w, z = memory = _memory(p, "x", "y", "w", "z")
    ys, zs = p.scratch("y"), p.scratch("z")
    given: Arguments = (p.factor, p.channel(x), st.View(ys, _0), *p.weights(w), st.View(zs, _0))
    call = st.Call(uvu.forward(p.shape, True), given)
    body = [*_declared(ys, zs), st.Call(uvu.taken(p.shape.x), (p.slot2(y), ys)), *_outward(p, zs, z, [call])]
    return _function(p, "forward", memory, body)


@cache
def backward(p: Turned) -> st.Function:
    """gx and gy += the path's part, its gw stored or, where weights are shared, added."""
    x, y, w, gz, gx, gy, gw = memory = _memory(p, "x", "y", "w", "gz", "gx", "gy", "gw")
    ys, gzs, gxs, gys = (p.scratch(name) for name in ("y", "gz", "gx", "gy"))
    leading: Arguments = (p.factor, p.channel(x), st.View(ys, _0), *p.weights(w))
    call = st.Call(uvu.backward(p.shape), (*leading, st.View(gzs, _0), st.View(gys, _0), p.sums(gxs), *p.weights(gw)))
    body = [*_declared(ys, gzs, gxs, gys), st.Call(uvu.taken(p.shape.x), (p.slot2(y), ys)), *_clear(gxs), *_clear(gys)]
    body += [*_inward(p, gz, gzs, [call]), *_given(p, gxs, gx, gys, gy)]
    return _function(p, "backward", memory, body)


@cache
def double_backward(p: Turned) -> st.Function:
    """gx, gy and ggz += the path's part of the gradients of <ggx, gx> + <ggy, gy> + <ggw, gw>; gw as in `backward`."""
    memory = _memory(p, "x", "y", "w", "gz", "ggx", "ggy", "ggw", "gx", "gy", "gw", "ggz")
    x, y, w, gz, ggx, ggy, ggw, gx, gy, gw, ggz = memory
    ys, ggys, gzs, ggzs, gxs, gys = (p.scratch(name) for name in ("y", "ggy", "gz", "ggz", "gx", "gy"))
    leading: Arguments = (p.factor, p.channel(x), p.channel(ggx), st.View(ys, _0), st.View(ggys, _0), *p.weights(w))
    given: Arguments = (st.View(gzs, _0), st.View(ggzs, _0), st.View(gys, _0), p.sums(gxs))
    arguments = (*leading, *p.weights(ggw), *given, *p.weights(gw))
    call = st.Call(uvu.double_backward(p.shape, True), arguments)
    body = [*_declared(ys, ggys, gzs, ggzs, gxs, gys), *_clear(gxs), *_clear(gys)]
    body += [st.Call(uvu.taken(p.shape.x), (p.slot2(a), to)) for a, to in ((y, ys), (ggy, ggys))]
    body += _outward(p, ggzs, ggz, [st.Call(uvu.taken(p.rows3), (p.slot3(gz, U), gzs)), call])
    return _function(p, "double", memory, [*body, *_given(p, gxs, gx, gys, gy)])


_0 = const(0, "i64")


def _outward(p: Turned, zs: Array, z: Array, call: Body) -> Body:
    """The calls for every channel of x, and what they leave in scratch added to z."""
    emit = st.Call(added(p.rows3), (p.slot3(z, U), zs))
    if p.own:
        return [p.over([*_clear(zs), *call, emit])]
    return [*_clear(zs), p.over(call), emit]


def _inward(p: Turned, gz: Array, gzs: Array, call: Body) -> Body:
    """The channels of gz to scratch, and the calls for every channel of x."""
    take = st.Call(uvu.taken(p.rows3), (p.slot3(gz, U), gzs))
    return [p.over([take, *call])] if p.own else [take, p.over(call)]


def _given(p: Turned, gxs: Array, gx: Array, gys: Array, gy: Array) -> Body:
    """gx and gy in memory += scratch."""
    start, size = p.problem.slices1[p.path.i_in1].start, p.problem.irreps_in1[p.path.i_in1].dim
    sums = st.loop(J, size, st.accumulate(gx[J + start], gxs[J]))
    return [sums, st.Call(added(p.shape.x), (p.slot2(gy), gys))]


def _declared(*arrays: Array) -> Body:
    return [st.DeclareArray(array) for array in arrays]


def _clear(array: Array) -> Body:
    return cleared(array, array.size or 0)


def _memory(p: Turned, *names: str) -> tuple[Array, ...]:
    return tuple(Array(name, p.dtype) for name in names)


def _function(p: Turned, direction: str, memory: Sequence[Array], body: Body) -> st.Function:
    path = p.path
    name = f"outer_{direction}_{path.i_in1}_{path.i_in2}_{path.i_out}_{path.connection_mode}_{path.weight_offset}"
    return st.Function(name, tuple(memory), st.block(*body))
