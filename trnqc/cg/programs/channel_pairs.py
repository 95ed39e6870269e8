"""Paths over equally numbered channels, or over pairs u < v, as programs of one edge (uuu, uuw, ``uvu<v``, ``u<vw``).

x, y -> planes [-> those of the pairs] -> t = product of x and y (elementwise.py) -> z += M(w, t) (combining.py)

The gradients take the same steps backwards; those of second order are, with dt = P(ggx, y) + P(x, ggy),

    ggz = M(w, dt) + M(ggw, t),  gw from dt and gz,  gx and gy from M'(w, gz) at (ggx, ggy) and M'(ggw, gz) at (x, y).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from trnqc.cg.problem.modes import MODES
from trnqc.cg.problem.problem import Instruction, TPProblem
from trnqc.cg.programs import elementwise
from trnqc.cg.programs.combining import Combination
from trnqc.cg.programs.elementwise import Planes, planes
from trnqc.cg.programs.mixing import common
from trnqc.cg.programs.paths import Body, Rows
from trnqc.cg.programs.uvu import vectors
from trnqc.gen import Array
from trnqc.gen import statements as st
from trnqc.gen.values import const


@dataclass(frozen=True)
class Group:
    """Paths that read the same pairs of channels of the same slots of x and y."""

    problem: TPProblem
    dtype: str
    lanes: int
    paths: tuple[Instruction, ...]

    @cached_property
    def rows(self) -> tuple[Rows, Rows]:
        """Of the slots of x and y."""
        first, problem = self.paths[0], self.problem
        slots = problem.irreps_in1[first.i_in1], problem.irreps_in2[first.i_in2]
        one, two = (Rows(s.mul, s.ir.dim, problem.layout, self.dtype, self.lanes) for s in slots)
        return one, two

    @cached_property
    def gathers(self) -> bool:
        return MODES[self.paths[0].connection_mode].pairs == "u<v"

    @property
    def pairs(self) -> int:
        return self.paths[0].path_shape[0]

    def staged(self, which: int) -> Planes:
        """Planes of the channels of x (0) or y (1) that take part."""
        rows = self.rows[which]
        return Planes(self.pairs if self.gathers else rows.mul, rows.dim, self.dtype, self.lanes)

    def start(self, which: int) -> int:
        """Where the slot of x or y lies in memory."""
        first = self.paths[0]
        return (self.problem.slices1[first.i_in1] if which == 0 else self.problem.slices2[first.i_in2]).start

    def combination(self, path: Instruction) -> Combination:
        slot = self.problem.irreps_out[path.i_out]
        rows = Rows(slot.mul, slot.ir.dim, self.problem.layout, self.dtype, self.lanes)
        mixes = MODES[path.connection_mode].result == "w"
        return Combination(mixes, path.has_weight, self.problem.shared_weights, self.pairs, rows)


def groups(problem: TPProblem, dtype: str, lanes: int, weighted: bool) -> tuple[Group, ...]:
    """All of a problem; `weighted`: of its paths with weights."""
    found: dict[tuple[int, int, str], list[Instruction]] = {}
    for path in problem.instructions:
        pairs = MODES[path.connection_mode].pairs
        if pairs != "uv" and 0 not in path.path_shape and (path.has_weight or not weighted):
            found.setdefault((path.i_in1, path.i_in2, pairs), []).append(path)
    return tuple(Group(problem, dtype, lanes, tuple(paths)) for paths in found.values())


@cache
def forward(group: Group) -> st.Function:
    """z += the paths' part."""
    x, y, w, z = memory = _memory(group, "x", "y", "w", "z")
    (stage_x, xs), (stage_y, ys) = stage(group, 0, x, "xs"), stage(group, 1, y, "ys")
    t, _, _, zs = scratch(group)
    body = [*stage_x, *stage_y, *map(st.DeclareArray, (t, zs))]
    for path in group.paths:
        m = group.combination(path)
        body.append(multiply(group, path, xs, ys, t))
        body += m.forward(_weights(w, path), t, zs, _slot(group, path, z))
    return _function(group, "forward", memory, body)


@cache
def backward(group: Group) -> st.Function:
    """gx and gy += the paths' part, their gw stored or, where weights are shared, added."""
    x, y, w, gz, gx, gy, gw = memory = _memory(group, "x", "y", "w", "gz", "gx", "gy", "gw")
    (stage_x, xs), (stage_y, ys) = stage(group, 0, x, "xs"), stage(group, 1, y, "ys")
    (clear_x, gxs), (clear_y, gys) = gradient(group, 0, "gxs"), gradient(group, 1, "gys")
    t, _, gt, zs = scratch(group)
    body = [*stage_x, *stage_y, *clear_x, *clear_y, *map(st.DeclareArray, (t, gt, zs))]
    for path in group.paths:
        m = group.combination(path)
        body.append(multiply(group, path, xs, ys, t))
        body += m.backward(_weights(w, path), t, zs, _slot(group, path, gz), _weights(gw, path), gt)
        body.append(divide(group, path, xs, ys, gt, gxs, gys))
    body += [*give(group, 0, gxs, gx), *give(group, 1, gys, gy)]
    return _function(group, "backward", memory, body)


@cache
def double_backward(group: Group) -> st.Function:
    """gx, gy and ggz += the paths' part of the gradients of <ggx, gx> + <ggy, gy> + <ggw, gw>; gw as in `backward`."""
    memory = _memory(group, "x", "y", "w", "gz", "ggx", "ggy", "ggw", "gx", "gy", "gw", "ggz")
    x, y, w, gz, ggx, ggy, ggw, gx, gy, gw, ggz = memory
    staged = [stage(group, n % 2, array, f"{array.name}s") for n, array in enumerate((x, y, ggx, ggy))]
    (clear_x, gxs), (clear_y, gys) = gradient(group, 0, "gxs"), gradient(group, 1, "gys")
    xs, ys, ggxs, ggys = (array for _, array in staged)
    t, dt, gt, zs = arrays = scratch(group)
    body = [*(s for part, _ in staged for s in part), *clear_x, *clear_y, *map(st.DeclareArray, arrays)]
    for path in group.paths:
        m = group.combination(path)
        own, other = _weights(w, path), _weights(ggw, path)
        given, out = _slot(group, path, gz), _slot(group, path, ggz)
        body += [multiply(group, path, ggxs, ys, dt), multiply(group, path, xs, ggys, dt, adds=True)]
        body += m.forward(own, dt, zs, out)
        body += m.backward(own, dt, zs, given, _weights(gw, path), gt)
        body.append(divide(group, path, ggxs, ggys, gt, gxs, gys))
        if path.has_weight:
            body += [multiply(group, path, xs, ys, t), *m.forward(other, t, zs, out)]
            body += m.backward(other, t, zs, given, None, gt)
            body.append(divide(group, path, xs, ys, gt, gxs, gys))
    body += [*give(group, 0, gxs, gx), *give(group, 1, gys, gy)]
    return _function(group, "double", memory, body)


def scratch(group: Group) -> tuple[Array, Array, Array, Array]:
    """For any of the paths: t, another like it, the gradient of t, and the slot of z in vectors."""
    found = [group.combination(path) for path in group.paths]
    blocks = max(m.blocks * m.rows.dim for m in found)
    t, dt = (common(name, blocks * group.lanes, group.dtype) for name in ("t", "dt"))
    zs = vectors("zs", max(m.rows.size for m in found), group.dtype)
    return t, dt, vectors("gt", blocks, group.dtype), zs


def stage(group: Group, which: int, source: Array, name: str) -> tuple[Body, Array]:
    """The channels of x (0) or y (1) that take part, as planes."""
    rows, view = group.rows[which], st.view(source[group.start(which)])
    to = common(name, group.staged(which).size, group.dtype)
    if not group.gathers:
        return [st.DeclareArray(to), st.Call(elementwise.spread(rows), (view, to))], to
    own = common(f"{name}_all", planes(rows).size, group.dtype)
    gather = elementwise.gathered(planes(rows), group.staged(which), which == 0)
    calls = [st.Call(elementwise.spread(rows), (view, own)), st.Call(gather, (own, to))]
    return [*map(st.DeclareArray, (own, to)), *calls], to


def gradient(group: Group, which: int, name: str) -> tuple[Body, Array]:
    """Planes of zeros for a gradient of the channels that take part."""
    to = common(name, group.staged(which).size, group.dtype)
    return [st.DeclareArray(to), *elementwise.cleared(to, group.lanes)], to


def give(group: Group, which: int, source: Array, to: Array) -> Body:
    """A gradient in memory += that of the channels that take part."""
    rows, view = group.rows[which], st.view(to[group.start(which)])
    if not group.gathers:
        return [st.Call(elementwise.returned(rows), (view, source))]
    own = common(f"{source.name}_all", planes(rows).size, group.dtype)
    scatter = elementwise.scattered(planes(rows), group.staged(which), which == 0)
    made: Body = [st.DeclareArray(own), *elementwise.cleared(own, group.lanes), st.Call(scatter, (own, source))]
    return [*made, st.Call(elementwise.returned(rows), (view, own))]


def multiply(group: Group, path: Instruction, xs: Array, ys: Array, t: Array, adds: bool = False) -> st.Call:
    """t = the product of x and y, or += it."""
    function = elementwise.product(group.problem.degrees(path), group.dtype, group.lanes, adds)
    return st.Call(function, (*_extents(group, path), xs, ys, t))


def divide(group: Group, path: Instruction, xs: Array, ys: Array, gt: Array, gxs: Array, gys: Array) -> st.Call:
    """gx and gy += those of a gradient of t."""
    function = elementwise.gradients(group.problem.degrees(path), group.dtype, group.lanes)
    return st.Call(function, (*_extents(group, path), xs, ys, gt, gxs, gys))


def _extents(group: Group, path: Instruction) -> Sequence:  # type: ignore[type-arg]
    m = group.combination(path)
    sizes = (m.blocks, group.staged(0).apart, group.staged(1).apart, m.apart)
    return const(path.path_weight, group.dtype), *(const(size, "i64") for size in sizes)


def _weights(w: Array, path: Instruction) -> st.View:
    return st.view(w[path.weight_offset])


def _slot(group: Group, path: Instruction, z: Array) -> st.View:
    return st.view(z[group.problem.slices3[path.i_out].start])


def _memory(group: Group, *names: str) -> tuple[Array, ...]:
    return tuple(Array(name, group.dtype) for name in names)


def _function(group: Group, direction: str, memory: Sequence[Array], body: Body) -> st.Function:
    first = group.paths[0]
    linear = "_linear" * (all(path.has_weight for path in group.paths) and direction == "forward")
    name = f"pairs_{direction}_{first.i_in1}_{first.i_in2}{'_gathered' * group.gathers}{linear}"
    return st.Function(name, tuple(memory), st.block(*body))
