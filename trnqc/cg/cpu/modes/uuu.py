"""CPU functions of paths over equally numbered channels, or over pairs u < v (uuu, uuw, ``uvu<v``, ``u<vw``).

x, y -> planes [-> those of the pairs] -> t = product of x and y (elementwise.py) -> z += M(w, t) (combining.py)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from trnqc.cg.cpu.modes import elementwise
from trnqc.cg.cpu.modes.combining import Combination
from trnqc.cg.cpu.modes.elementwise import Planes, planes_of
from trnqc.cg.cpu.modes.mixing import common
from trnqc.cg.cpu.slots import Channels, index, memory, vectors
from trnqc.cg.problem.modes import MODES
from trnqc.cg.problem.problem import Instruction, TPProblem
from trnqc.cg.programs import composed
from trnqc.cg.programs.directions import Direction
from trnqc.gen import Array, Value, const
from trnqc.gen import statements as st
from trnqc.gen.build import Builder


@dataclass(frozen=True)
class Group:
    """Paths that read the same pairs of channels of the same slots of x and y."""

    problem: TPProblem
    dtype: str
    lanes: int
    paths: tuple[Instruction, ...]

    @cached_property
    def channels(self) -> dict[str, Channels]:
        """Those of the slots of x and y."""
        first, problem = self.paths[0], self.problem
        slots = {"x": problem.irreps_in1[first.i_in1], "y": problem.irreps_in2[first.i_in2]}
        return {
            kind: Channels(slot.mul, slot.ir.dim, problem.layout, self.dtype, self.lanes)
            for kind, slot in slots.items()
        }

    @property
    def gathers(self) -> bool:
        """Whether the pairs are u < v."""
        return MODES[self.paths[0].connection_mode].pairs == "u<v"

    @property
    def pairs(self) -> int:
        return self.paths[0].path_shape[0]

    def planes(self, kind: str) -> Planes:
        """Planes of the channels of x or y that take part."""
        slot = self.channels[kind]
        return Planes(self.pairs if self.gathers else slot.mul, slot.dim, self.dtype, self.lanes)

    def slot(self, operand: str, rows: dict[str, Array]) -> st.View:
        """The slot of x or y in memory."""
        first = self.paths[0]
        slices1, slices2 = self.problem.slices1, self.problem.slices2
        return st.view(rows[operand][(slices1[first.i_in1] if operand[-1] == "x" else slices2[first.i_in2]).start])

    def combination(self, path: Instruction) -> Combination:
        slot = self.problem.irreps_out[path.i_out]
        channels = Channels(slot.mul, slot.ir.dim, self.problem.layout, self.dtype, self.lanes)
        mixes = MODES[path.connection_mode].result == "w"
        return Combination(mixes, path.has_weight, self.problem.shared_weights, self.pairs, channels)


def groups(problem: TPProblem, dtype: str, lanes: int) -> Iterator[Group]:
    """All of a problem."""
    paths: dict[tuple[int, int, str], list[Instruction]] = {}
    for path in problem.instructions:
        pairs = MODES[path.connection_mode].pairs
        if pairs != "uv" and 0 not in path.path_shape:
            paths.setdefault((path.i_in1, path.i_in2, pairs), []).append(path)
    return (Group(problem, dtype, lanes, tuple(group)) for group in paths.values())


def function(group: Group, direction: Direction) -> st.Function:
    """The paths of one edge. The output, gx and gy are added to; gw is written or, with shared weights, added to."""
    b = Builder()
    rows = {name: memory(name, group.dtype) for name in (*direction.reads, *direction.writes)}
    planes = {name: _load(b, group, name, rows) for name in direction.reads if name[-1] in "xy"}
    for name in ("gx", "gy") if direction.gradients else ():
        planes[name] = _shared(b, f"{name}s", group.planes(name[-1]).size, group.dtype)
        elementwise.clear_planes(b, planes[name], group.lanes)
    combinations = [group.combination(path) for path in group.paths]
    blocks = max(m.blocks * m.channels.dim for m in combinations)
    t = _shared(b, "t", blocks * group.lanes, group.dtype)
    h, zs = vectors("h", blocks, group.dtype), vectors("zs", max(m.channels.size for m in combinations), group.dtype)
    b.add(map(st.DeclareArray, (zs, *[h] * direction.gradients)))
    for path, m in zip(group.paths, combinations):
        composed.write(_Path(b, group, path, m, direction, rows, planes, t, zs, h), direction)
    for name in ("gx", "gy") if direction.gradients else ():
        _add(b, group, name, planes[name], rows)
    first = group.paths[0]
    name = f"pairs_{direction.name}_{first.i_in1}_{first.i_in2}{'_gathered' * group.gathers}"
    return b.function(name, rows.values())


@dataclass(frozen=True)
class _Path:
    """The steps of `composed` for one path."""

    b: Builder
    group: Group
    path: Instruction
    combination: Combination
    direction: Direction
    rows: dict[str, Array]
    planes: dict[str, Array]
    t: Array
    zs: Array
    h: Array

    @property
    def weighted(self) -> bool:
        return self.path.has_weight

    def product(self, pairs: tuple[tuple[str, str], ...]) -> None:
        for n, (x, y) in enumerate(pairs):
            multiply = elementwise.product(self._degrees, self.group.dtype, self.group.lanes, adds=n > 0)
            self.b.call(multiply, *self._extents, self.planes[x], self.planes[y], self.t)

    def combine(self, w: str) -> None:
        self.combination.forward(self.b, self._weights(w), self.t, self.zs, self._slot(self.direction.output))

    def combine_gradients(self, w: str, slopes: bool) -> None:
        gw = self._weights("gw") if slopes else None
        self.combination.backward(self.b, self._weights(w), self.t, self.zs, self._slot("gz"), gw, self.h)

    def product_gradients(self, x: str, y: str) -> None:
        gradients = elementwise.gradients(self._degrees, self.group.dtype, self.group.lanes)
        planes = (self.planes[name] for name in (x, y))
        self.b.call(gradients, *self._extents, *planes, self.h, self.planes["gx"], self.planes["gy"])

    @property
    def _degrees(self) -> tuple[int, int, int]:
        return self.group.problem.degrees(self.path)

    @property
    def _extents(self) -> tuple[Value, ...]:
        m = self.combination
        sizes = (m.blocks, self.group.planes("x").apart, self.group.planes("y").apart, m.apart)
        return const(self.path.path_weight, self.group.dtype), *map(index, sizes)

    def _weights(self, name: str) -> st.View:
        return st.view(self.rows[name][self.path.weight_offset])

    def _slot(self, name: str) -> st.View:
        return st.view(self.rows[name][self.group.problem.slices3[self.path.i_out].start])


def _shared(b: Builder, name: str, size: int, dtype: str) -> Array:
    """Scratch that all lanes reach."""
    array = common(name, size, dtype)
    b.add(st.DeclareArray(array))
    return array


def _load(b: Builder, group: Group, name: str, rows: dict[str, Array]) -> Array:
    """The channels of an operand that take part, as planes."""
    channels, to = group.channels[name[-1]], _shared(b, f"{name}s", group.planes(name[-1]).size, group.dtype)
    if not group.gathers:
        b.call(elementwise.spread(channels), group.slot(name, rows), to)
        return to
    whole = _shared(b, f"{name}_all", planes_of(channels).size, group.dtype)
    b.call(elementwise.spread(channels), group.slot(name, rows), whole)
    b.call(elementwise.gathered(planes_of(channels), group.planes(name[-1]), name[-1] == "x"), whole, to)
    return to


def _add(b: Builder, group: Group, name: str, source: Array, rows: dict[str, Array]) -> None:
    """A gradient in memory += that of the channels that take part."""
    channels = group.channels[name[-1]]
    if group.gathers:
        whole = _shared(b, f"{name}_all", planes_of(channels).size, group.dtype)
        elementwise.clear_planes(b, whole, group.lanes)
        b.call(elementwise.scattered(planes_of(channels), group.planes(name[-1]), name[-1] == "x"), whole, source)
        source = whole
    b.call(elementwise.collected(channels), group.slot(name, rows), source)
