"""CPU functions of paths over all pairs of channels whose result keeps v (uvv, uvuv).

For one channel u of x they are paths of mode uvu with x and y in each other's place: lanes run over the channels v of
y, and x[u] enters as numbers that are the same on every lane. uvv adds up all u in scratch; uvuv has a run of channels
of z for each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from trnqc.cg.cpu.modes import uvu
from trnqc.cg.cpu.slots import Channels, Shape, clear, memory
from trnqc.cg.problem.coefficients import clebsch_gordan
from trnqc.cg.problem.modes import MODES
from trnqc.cg.problem.problem import Instruction, TPProblem
from trnqc.cg.programs.directions import Direction
from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen.build import Builder

U = Var("u", "i64")


@dataclass(frozen=True)
class Exchanged:
    """One path with x and y in each other's place."""

    problem: TPProblem
    dtype: str
    lanes: int
    path: Instruction

    @property
    def own(self) -> bool:
        """Whether every channel of x has channels of z of its own."""
        return MODES[self.path.connection_mode].result == "pair"

    @cached_property
    def shape(self) -> Shape:
        l1, l2, l3 = self.problem.degrees(self.path)
        mul1, mul2 = self.path.path_shape
        return Shape(
            (l2, l1, l3),
            mul2,
            1,
            step=1 if self.problem.layout == "mul_ir" else mul1,
            weighted=self.path.has_weight,
            summed=self.problem.shared_weights,
            layout=self.problem.layout,
            dtype=self.dtype,
            lanes=self.lanes,
        )

    @cached_property
    def channels3(self) -> Channels:
        """The channels of z of one channel of x."""
        mul = self.problem.irreps_out[self.path.i_out].mul
        return Channels(self.shape.mul1, self.shape.dims[2], self.problem.layout, self.dtype, self.lanes, mul)

    @cached_property
    def factor(self) -> Value:
        """The path's weight, with the sign that the coefficients get when their first two degrees change places."""
        l1, l2, l3 = self.problem.degrees(self.path)
        exchanged = clebsch_gordan(l2, l1, l3).transpose(1, 0, 2)
        sign = 1.0 if (exchanged * clebsch_gordan(l1, l2, l3)).sum() > 0 else -1.0
        return const(sign * self.path.path_weight, self.dtype)

    def size(self, name: str) -> int:
        """Vectors of scratch: sums by lane over the channels of x, a slot of y, or the channels of z."""
        sizes = {"x": self.problem.irreps_in1[self.path.i_in1].dim, "y": self.shape.x.size, "z": self.channels3.size}
        return sizes[name[-1]]

    def channel(self, x: Array, start: int) -> st.View:
        """Channel u of x."""
        return st.view(x[U * (self.shape.dims[1] if self.problem.layout == "mul_ir" else 1) + start])

    def slot3(self, z: Array) -> st.View:
        """The channels of z that channel u of x leads to."""
        step = self.channels3.mul * (self.channels3.dim if self.problem.layout == "mul_ir" else 1)
        start = self.problem.slices3[self.path.i_out].start
        return st.view(z[U * step + start if self.own else start])


def paths(problem: TPProblem, dtype: str, lanes: int) -> Iterator[Exchanged]:
    """All of a problem."""
    for path in problem.instructions:
        if path.connection_mode in ("uvv", "uvuv") and 0 not in path.path_shape:
            yield Exchanged(problem, dtype, lanes, path)


def function(p: Exchanged, direction: Direction) -> st.Function:
    """The path of one edge. The output, gx and gy are added to; gw is written or, with shared weights, added to."""
    b, path, out = Builder(), p.path, direction.output
    rows = {name: memory(name, p.dtype) for name in (*direction.reads, *direction.writes)}
    start1, start2 = p.problem.slices1[path.i_in1].start, p.problem.slices2[path.i_in2].start
    names = (*direction.reading("y"), *direction.reading("z"), *(n for n in direction.writes if n != "gw"))
    scratch = {name: b.array(f"{name}s", p.dtype, (max(1, p.size(name)),), lanes=True) for name in names}
    slots2 = {name: st.view(rows[name][start2]) for name in rows if name[-1] == "y"}
    for name in direction.reading("y"):
        b.call(uvu.load(p.shape.x), slots2[name], scratch[name])
    for name in [n for n in ("gx", "gy", *[out] * (not p.own)) if n in direction.writes]:
        clear(b, scratch[name], p.size(name))
    if "gz" in direction.reads and not p.own:
        b.call(uvu.load(p.channels3), p.slot3(rows["gz"]), scratch["gz"])
    with b.loop(U, path.path_shape[0]):
        if "gz" in direction.reads and p.own:
            b.call(uvu.load(p.channels3), p.slot3(rows["gz"]), scratch["gz"])
        if out and p.own:
            clear(b, scratch[out], p.size(out))
        b.call(uvu.function(p.shape, direction, adds=True), p.factor, *_arguments(p, direction, rows, scratch))
        if out and p.own:
            b.call(uvu.add(p.channels3), p.slot3(rows[out]), scratch[out])
    if out and not p.own:
        b.call(uvu.add(p.channels3), p.slot3(rows[out]), scratch[out])
    if direction.gradients:
        with b.loop("j", p.size("gx")) as j:
            b.accumulate(rows["gx"][j + start1], scratch["gx"][j])
        b.call(uvu.add(p.shape.x), slots2["gy"], scratch["gy"])
    name = f"{direction.name}_{path.i_in1}_{path.i_in2}_{path.i_out}_{path.connection_mode}_{path.weight_offset}"
    return b.function(name, rows.values())


EXCHANGE = {"x": "y", "y": "x", "w": "w", "z": "z"}


def _arguments(
    p: Exchanged, direction: Direction, rows: dict[str, Array], scratch: dict[str, Array]
) -> Iterator[Array | st.View]:
    """The arguments of the uvu function of channel u."""
    start = p.problem.slices1[p.path.i_in1].start
    for parameter in uvu.parameters(p.shape, direction, True):
        name = parameter[:-1] + EXCHANGE[parameter[-1]]
        if name[-1] == "w":
            yield st.view(rows[name][U * p.shape.mul1 + p.path.weight_offset])
        elif name == "gx":
            yield p.channel(scratch[name], 0)
        elif name[-1] == "x":
            yield p.channel(rows[name], start)
        else:
            yield scratch[name]
