"""Functions of paths over channels of equal number, or over pairs u < v (uuu, uuw, ``uvu<v``, ``u<vw``), on a CPU.

x, y -> planes -> for u < v: planes of the pairs -> t = P(x, y) (elementwise.py) -> z += M(w, t) (combining.py)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trnqc.cg.cpu.modes import elementwise
from trnqc.cg.cpu.modes.combining import Combination
from trnqc.cg.cpu.modes.elementwise import Planes, planes_of
from trnqc.cg.cpu.slots import Channels
from trnqc.cg.cpu.target import ProductTarget
from trnqc.cg.cpu.vectors import declare_shared, index, memory, vectors
from trnqc.cg.problem.instructions import PathInstruction
from trnqc.cg.problem.modes import MODES
from trnqc.cg.programs import composed
from trnqc.cg.programs.directions import Direction
from trnqc.gen import Array, Value, const
from trnqc.gen import statements as st
from trnqc.gen.build import Builder


@dataclass(frozen=True)
class PathGroup:
    """Paths that read the same pairs of channels of the same slots of x and y."""

    target: ProductTarget
    paths: tuple[PathInstruction, ...]

    def _number(self, operand: str) -> int:
        """Return the number of the slot of x or y."""
        return self.paths[0].i_in1 if operand[-1] == "x" else self.paths[0].i_in2

    def channels(self, operand: str) -> Channels:
        """Return the channels of the slot of x or y."""
        return self.target.channels(self.target.problem.irreps_of(operand)[self._number(operand)])

    @property
    def gathers(self) -> bool:
        """Whether the pairs are the pairs with u < v."""
        return MODES[self.paths[0].connection_mode].pairs == "u<v"

    @property
    def pairs(self) -> int:
        """Number of pairs of channels."""
        return self.paths[0].path_shape[0]

    def planes(self, operand: str) -> Planes:
        """Return the planes of x or y that are multiplied."""
        slot = self.channels(operand)
        return Planes(self.pairs if self.gathers else slot.mul, slot.dim, slot.dtype, slot.lanes)

    def slot(self, operand: str, rows: dict[str, Array]) -> st.View:
        """Return the slot of x or y in memory."""
        return st.view(rows[operand][self.target.problem.irreps_of(operand).slices[self._number(operand)].start])

    def combination(self, path: PathInstruction) -> Combination:
        channels = self.target.channels(self.target.problem.irreps_out[path.i_out])
        mixes = MODES[path.connection_mode].result == "w"
        return Combination(mixes, path.has_weight, self.target.problem.shared_weights, self.pairs, channels)


def groups(target: ProductTarget) -> Iterator[PathGroup]:
    """Yield the groups of a problem."""
    paths: dict[tuple[int, int, str], list[PathInstruction]] = {}
    for path in target.paths("uuu", "uuw", "uvu<v", "u<vw"):
        paths.setdefault((path.i_in1, path.i_in2, MODES[path.connection_mode].pairs), []).append(path)
    return (PathGroup(target, tuple(group)) for group in paths.values())


def function(group: PathGroup, direction: Direction) -> st.Function:
    """Return the function of the paths of a group for one edge.

    It adds to the output, gx and gy in memory. It writes gw, or adds to it if edges share weights.
    """
    b, dtype, lanes = Builder(), group.target.dtype, group.target.lanes
    rows = {name: memory(name, dtype) for name in direction.operands}
    planes = {name: _load(b, group, name, rows) for name in direction.reads if name[-1] in "xy"}
    for name in ("gx", "gy") if direction.gradients else ():
        planes[name] = declare_shared(b, f"{name}s", group.planes(name).size, dtype)
        elementwise.clear_planes(b, planes[name], lanes)
    combinations = [group.combination(path) for path in group.paths]
    blocks = max(m.blocks * m.channels.dim for m in combinations)
    t = declare_shared(b, "t", blocks * lanes, dtype)
    h, zs = vectors("h", blocks, dtype), vectors("zs", max(m.channels.size for m in combinations), dtype)
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
    group: PathGroup
    path: PathInstruction
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

    def product(self, operands: tuple[tuple[str, str], ...]) -> None:
        for n, (x, y) in enumerate(operands):
            multiply = elementwise.product(*self._kind, adds=n > 0)
            self.b.call(multiply, *self._extents, self.planes[x], self.planes[y], self.t)

    def combine(self, w: str) -> None:
        self.combination.forward(self.b, self._weights(w), self.t, self.zs, self._slot(self.direction.output))

    def combine_gradients(self, w: str, slopes: bool) -> None:
        gw = self._weights("gw") if slopes else None
        self.combination.backward(self.b, self._weights(w), self.t, self.zs, self._slot("gz"), gw, self.h)

    def product_gradients(self, x: str, y: str) -> None:
        planes = self.planes
        arrays = (planes[x], planes[y], self.h, planes["gx"], planes["gy"])
        self.b.call(elementwise.gradients(*self._kind), *self._extents, *arrays)

    @property
    def _kind(self) -> tuple[tuple[int, int, int], str, int]:
        """Degrees, dtype and lanes."""
        target = self.group.target
        return target.problem.degrees(self.path), target.dtype, target.lanes

    @property
    def _extents(self) -> tuple[Value, ...]:
        """The path weight and `elementwise.EXTENTS`."""
        m = self.combination
        sizes = (m.blocks, self.group.planes("x").apart, self.group.planes("y").apart, m.apart)
        return const(self.path.path_weight, self.group.target.dtype), *map(index, sizes)

    def _weights(self, name: str) -> st.View:
        return st.view(self.rows[name][self.path.weight_offset])

    def _slot(self, name: str) -> st.View:
        return st.view(self.rows[name][self.group.target.problem.slices3[self.path.i_out].start])


def _load(b: Builder, group: PathGroup, name: str, rows: dict[str, Array]) -> Array:
    """Load the channels of x or y that are multiplied into planes."""
    channels, dtype = group.channels(name), group.target.dtype
    to = declare_shared(b, f"{name}s", group.planes(name).size, dtype)
    slot = declare_shared(b, f"{name}_all", planes_of(channels).size, dtype) if group.gathers else to
    b.call(elementwise.load_planes(channels), group.slot(name, rows), slot)
    if group.gathers:
        b.call(elementwise.gather(planes_of(channels), group.planes(name), name[-1] == "x"), slot, to)
    return to


def _add(b: Builder, group: PathGroup, name: str, gradient: Array, rows: dict[str, Array]) -> None:
    """Add the gradient of the channels that are multiplied to gx or gy in memory."""
    channels = group.channels(name)
    slot = gradient
    if group.gathers:
        slot = declare_shared(b, f"{name}_all", planes_of(channels).size, group.target.dtype)
        elementwise.clear_planes(b, slot, group.target.lanes)
        b.call(elementwise.scatter(planes_of(channels), group.planes(name), name[-1] == "x"), slot, gradient)
    b.call(elementwise.add_planes(channels), group.slot(name, rows), slot)
