"""Paths of mode uvu as the kernels see them: what their code depends on, and where their operands lie.

instructions -> shapes (paths of equal shapes share their functions) and offsets into the rows of x, y, w and z
A slot in scratch is [block][component] of vectors, a block being as many channels as a vector has lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from trnqc.cg.problem.coefficients import sparse
from trnqc.cg.problem.problem import TPProblem
from trnqc.gen import Array, Value, Var
from trnqc.gen import statements as st
from trnqc.gen.values import const

Body = list[st.Statement]
# Sums over channels that stay in registers while a path's blocks are passed.
SUMS = 21


@dataclass(frozen=True)
class Rows:
    """mul rows of dim elements in memory, and the vectors that hold them; layout says which runs faster there.

    apart: multiplicity of the slot that they are part of, if they are not all of it.
    """

    mul: int
    dim: int
    layout: str
    dtype: str
    lanes: int
    apart: int = 0

    @property
    def name(self) -> str:
        part = f"_of{self.apart}" * (self.apart > 0 and self.layout == "ir_mul")
        return f"{self.mul}_{self.dim}{'_i' * (self.layout == 'ir_mul')}{part}"

    @property
    def blocks(self) -> int:
        return -(-self.mul // self.lanes)

    @property
    def size(self) -> int:
        return self.blocks * self.dim

    def unpacked(self, to: Array, place: Value, source: Array, block: Value, rows: int) -> Body:
        """One block, from a place in memory on, into vectors."""
        return [st.Unpack(to, place + i, source, at, stride, n, rows) for at, i, stride, n in self._moves(block)]

    def packed(self, to: Array, block: Value, source: Array, place: Value, rows: int) -> Body:
        return [st.Pack(to, at, source, place + i, stride, n, rows) for at, i, stride, n in self._moves(block)]

    def _moves(self, block: Value) -> Iterator[tuple[Value, int, int, int]]:
        """(place in memory, first component, stride, components) of what moves together."""
        if self.layout == "mul_ir":
            yield block * (self.lanes * self.dim), 0, self.dim, self.dim
        else:
            for i in range(self.dim):
                yield block * self.lanes + i * (self.apart or self.mul), i, 1, 1

    def each(self, name: str, body: Callable[[Value, int], Body]) -> Body:
        """The body for every block: those that are full in a loop, then the rest."""
        full, rest, block = *divmod(self.mul, self.lanes), Var(name, "i64")
        made: Body = [st.loop(block, full, body(block, self.lanes))] if full else []
        return made + ([st.loop(block, full + 1, body(block, rest), begin=full)] if rest else [])


@dataclass(frozen=True)
class Shape:
    """What the functions of a path depend on. step: between components of y; summed: edges share their weights."""

    degrees: tuple[int, int, int]
    mul1: int
    mul2: int
    step: int
    weighted: bool
    summed: bool
    layout: str
    dtype: str
    lanes: int

    @property
    def name(self) -> str:
        marks = f"{'w' * self.weighted}{'s' * self.summed}{'i' * (self.layout == 'ir_mul')}"
        return "_".join(map(str, (*self.degrees, self.mul1, self.mul2, self.step))) + (marks and f"_{marks}")

    @property
    def dims(self) -> tuple[int, int, int]:
        l1, l2, l3 = self.degrees
        return 2 * l1 + 1, 2 * l2 + 1, 2 * l3 + 1

    @property
    def terms(self) -> tuple[tuple[int, int, int, float], ...]:
        return sparse(*self.degrees)

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """(i, k) that some component of y couples."""
        return tuple(sorted({(i, k) for i, _, k, _ in self.terms}))

    @property
    def parts(self) -> tuple[tuple[int, ...], ...]:
        """The components i, a few at a time, so that the sums over their pairs fit in registers."""
        parts: list[list[int]] = [[]]
        for i in range(self.dims[0]):
            held = sum(p in parts[-1] for p, _ in self.pairs)
            more = sum(p == i for p, _ in self.pairs)
            if parts[-1] and held + more > SUMS:
                parts.append([])
            parts[-1].append(i)
        return tuple(map(tuple, parts))

    @property
    def x(self) -> Rows:
        return Rows(self.mul1, self.dims[0], self.layout, self.dtype, self.lanes)

    @property
    def z(self) -> Rows:
        return Rows(self.mul1, self.dims[2], self.layout, self.dtype, self.lanes)


@dataclass(frozen=True)
class Path:
    """One channel of y of one instruction; `w` and `y` are offsets into their rows."""

    shape: Shape
    i_in1: int
    i_out: int
    path_weight: float
    y: int
    w: int


@dataclass(frozen=True)
class Slots:
    """Slots of x or z that take part: their rows, where each begins in memory and in scratch."""

    rows: dict[int, Rows]
    start: dict[int, int]
    place: dict[int, int]
    size: int


@dataclass(frozen=True)
class Paths:
    """The uvu paths of a problem for vectors of `lanes` elements of type `dtype`, "f64" or "f32"."""

    problem: TPProblem
    dtype: str
    lanes: int

    @cached_property
    def all(self) -> tuple[Path, ...]:
        """In the order of the slots of z, a path once for every channel of y."""
        found = []
        for ins in sorted(self.problem.instructions, key=lambda ins: ins.i_out):
            if ins.connection_mode != "uvu" or 0 in ins.path_shape:
                continue
            slot, start = self.problem.irreps_in2[ins.i_in2], self.problem.slices2[ins.i_in2].start
            inner = self.problem.layout == "mul_ir"
            mul1, mul2 = ins.path_shape
            shape = Shape(self.problem.degrees(ins), mul1, mul2, 1 if inner else slot.mul, ins.has_weight,
                          self.problem.shared_weights, self.problem.layout, self.dtype, self.lanes)  # fmt: skip
            for v in range(slot.mul):
                y = start + v * (slot.ir.dim if inner else 1)
                found.append(Path(shape, ins.i_in1, ins.i_out, ins.path_weight, y, ins.weight_offset + v))
        return tuple(found)

    @cached_property
    def slots1(self) -> Slots:
        return self._slots(self.problem.irreps_in1, {path.i_in1 for path in self.all})

    @cached_property
    def slots3(self) -> Slots:
        return self._slots(self.problem.irreps_out, {path.i_out for path in self.all})

    def _slots(self, irreps, used: set[int]) -> Slots:  # type: ignore[no-untyped-def]
        numbers = sorted(used)
        rows = {n: Rows(irreps[n].mul, irreps[n].ir.dim, self.problem.layout, self.dtype, self.lanes) for n in numbers}
        place, size = {}, 0
        for n in numbers:
            place[n], size = size, size + rows[n].size
        return Slots(rows, {n: irreps.slices[n].start for n in numbers}, place, size)

    def to(self, slot: int) -> tuple[Path, ...]:
        """The paths that add to a slot of z."""
        return tuple(path for path in self.all if path.i_out == slot)


def index(number: int) -> Value:
    return const(number, "i64")
