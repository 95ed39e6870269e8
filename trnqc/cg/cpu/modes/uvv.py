"""Functions of paths over all pairs of channels whose result keeps v (uvv, uvuv) on a CPU.

For one channel u of x, such a path is a uvu path with x and y exchanged: the lanes of a vector are channels v of y, and
all lanes share the elements of x[u]. The results of all u are added up in scratch for uvv. For uvuv each u has channels
of z of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from trnqc.cg.cpu.modes import uvu
from trnqc.cg.cpu.slots import Channels, add, load
from trnqc.cg.cpu.target import PathShape, ProductTarget
from trnqc.cg.cpu.vectors import clear, declare_vectors, memory
from trnqc.cg.problem.coefficients import clebsch_gordan
from trnqc.cg.problem.instructions import PathInstruction
from trnqc.cg.problem.modes import MODES
from trnqc.cg.problem.problem import TPProblem
from trnqc.cg.programs.directions import Direction
from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen.build import Builder

U = Var("u", "i64")


@dataclass(frozen=True)
class Exchanged:
    """A path of mode uvv or uvuv as a uvu path with x and y exchanged."""

    target: ProductTarget
    path: PathInstruction

    @property
    def problem(self) -> TPProblem:
        return self.target.problem

    @property
    def own(self) -> bool:
        """Whether every channel of x has channels of z of its own."""
        return MODES[self.path.connection_mode].result == "pair"

    @cached_property
    def shape(self) -> PathShape:
        """The shape of the uvu path of one channel of x."""
        l1, l2, l3 = self.problem.degrees(self.path)
        mul1, mul2 = self.path.path_shape
        return self.target.shape(self.path, (l2, l1, l3), mul2, 1, slot_mul=mul1)

    @cached_property
    def channels3(self) -> Channels:
        """The channels of z to which one channel of x leads."""
        mul = self.problem.irreps_out[self.path.i_out].mul
        s = self.shape
        return Channels(s.mul1, s.dims[2], s.layout, s.dtype, s.lanes, slot_mul=mul)

    @cached_property
    def factor(self) -> Value:
        """The path weight, with the sign by which C[j, i, k] of degrees l2, l1, l3 differs from C[i, j, k]."""
        l1, l2, l3 = self.problem.degrees(self.path)
        exchanged = clebsch_gordan(l2, l1, l3).transpose(1, 0, 2)
        sign = 1.0 if (exchanged * clebsch_gordan(l1, l2, l3)).sum() > 0 else -1.0
        return const(sign * self.path.path_weight, self.target.dtype)

    def size(self, name: str) -> int:
        """Return the number of vectors in scratch: sums by lane of a slot of x, a slot of y, or channels of z."""
        sizes = {"x": self.problem.irreps_in1[self.path.i_in1].dim, "y": self.shape.x.size, "z": self.channels3.size}
        return sizes[name[-1]]

    def channel(self, x: Array, start: int) -> st.View:
        """Return channel u of a slot of x that begins at `start`."""
        return st.view(x[U * (self.shape.dims[1] if self.problem.layout == "mul_ir" else 1) + start])

    def slot3(self, z: Array) -> st.View:
        """Return the channels of z to which channel u of x leads."""
        step = self.channels3.mul * (self.channels3.dim if self.problem.layout == "mul_ir" else 1)
        start = self.problem.slices3[self.path.i_out].start
        return st.view(z[U * step + start if self.own else start])


def function(p: Exchanged, direction: Direction) -> st.Function:
    """Return the function of a path for one edge.

    It adds to the output, gx and gy in memory. It writes gw, or adds to it if edges share weights.
    """
    b, path, out = Builder(), p.path, direction.output
    rows = {name: memory(name, p.target.dtype) for name in direction.operands}
    start1, start2 = p.problem.slices1[path.i_in1].start, p.problem.slices2[path.i_in2].start
    names = (*direction.reading("y"), *direction.reading("z"), *(n for n in direction.writes if n != "gw"))
    scratch = {name: declare_vectors(b, f"{name}s", p.size(name), p.target.dtype) for name in names}
    slots2 = {name: st.view(rows[name][start2]) for name in rows if name[-1] == "y"}
    for name in direction.reading("y"):
        b.call(load(p.shape.x), slots2[name], scratch[name])
    for name in [n for n in ("gx", "gy", *[out] * (not p.own)) if n in direction.writes]:
        clear(b, scratch[name], p.size(name))
    if "gz" in direction.reads and not p.own:
        b.call(load(p.channels3), p.slot3(rows["gz"]), scratch["gz"])
    with b.loop(U, path.path_shape[0]):
        if "gz" in direction.reads and p.own:
            b.call(load(p.channels3), p.slot3(rows["gz"]), scratch["gz"])
        if out and p.own:
            clear(b, scratch[out], p.size(out))
        b.call(uvu.function(p.shape, direction, adds=True), p.factor, *_arguments(p, direction, rows, scratch))
        if out and p.own:
            b.call(add(p.channels3), p.slot3(rows[out]), scratch[out])
    if out and not p.own:
        b.call(add(p.channels3), p.slot3(rows[out]), scratch[out])
    if direction.gradients:
        with b.loop("j", p.size("gx")) as j:
            b.accumulate(rows["gx"][j + start1], scratch["gx"][j])
        b.call(add(p.shape.x), slots2["gy"], scratch["gy"])
    name = f"{direction.name}_{path.i_in1}_{path.i_in2}_{path.i_out}_{path.connection_mode}_{path.weight_offset}"
    return b.function(name, rows.values())


def _arguments(
    p: Exchanged, direction: Direction, rows: dict[str, Array], scratch: dict[str, Array]
) -> Iterator[Array | st.View]:
    """Yield the arguments of the uvu function for channel u of x."""
    start = p.problem.slices1[p.path.i_in1].start
    for parameter in uvu.parameters(p.shape, direction, True):
        name = parameter[:-1] + {"x": "y", "y": "x"}.get(parameter[-1], parameter[-1])
        if name[-1] == "w":
            yield st.view(rows[name][U * p.shape.mul1 + p.path.weight_offset])
        elif name == "gx":
            yield p.channel(scratch[name], 0)
        elif name[-1] == "x":
            yield p.channel(rows[name], start)
        else:
            yield scratch[name]
