"""Paths of mode uvu as CPU kernels see them, and where the operands of a slot lie in memory and in vectors.

instructions -> shapes (paths of equal shapes share their functions) and offsets into the rows of x, y, w and z

A slot in scratch is [block][component] of vectors; a block has as many channels as a vector has lanes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from trnqc.cg.problem.coefficients import sparse
from trnqc.cg.problem.irreps import Irreps
from trnqc.cg.problem.problem import TPProblem
from trnqc.cg.programs.coupling import Degrees, by_pair
from trnqc.gen import Array, Value, const
from trnqc.gen import statements as st
from trnqc.gen.build import Builder

# The number of sums over channels that stay in registers while the blocks of a path are passed.
SUMS = 21


@dataclass(frozen=True)
class Channels:
    """The channels of a slot: mul times dim elements in memory, and the vectors that hold them.

    Parameters
    ----------
    mul, dim : int
        The number of channels and of components.
    layout : str
        Which of the two is contiguous in memory; see `TPProblem`.
    dtype, lanes
        The vectors' type, "f64" or "f32", and length.
    apart : int
        The multiplicity of the slot that the channels are a part of, or 0 if they are all of it.
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
        """Vectors."""
        return self.blocks * self.dim

    def unpack(self, b: Builder, to: Array, place: Value, source: Array, block: Value, rows: int) -> None:
        """Load one block of `rows` channels from memory into vectors, from a place on."""
        for at, i, stride, n in self._moves(block):
            b.add(st.Unpack(to, place + i, source, at, stride, n, rows))

    def pack(self, b: Builder, to: Array, block: Value, source: Array, place: Value, rows: int) -> None:
        """Store one block of `rows` channels from vectors into memory."""
        for at, i, stride, n in self._moves(block):
            b.add(st.Pack(to, at, source, place + i, stride, n, rows))

    def _moves(self, block: Value) -> Iterator[tuple[Value, int, int, int]]:
        """(place in memory, first component, stride, components) of what moves together."""
        if self.layout == "mul_ir":
            yield block * (self.lanes * self.dim), 0, self.dim, self.dim
        else:
            for i in range(self.dim):
                yield block * self.lanes + i * (self.apart or self.mul), i, 1, 1

    def each(self, b: Builder) -> Iterator[tuple[Value, int]]:
        """Loop over blocks: the full ones, then the rest; yields a block and the number of its channels."""
        full, rest = divmod(self.mul, self.lanes)
        if full:
            with b.loop("b", full) as block:
                yield block, self.lanes
        if rest:
            with b.loop("b", full + 1, begin=full) as block:
                yield block, rest


@dataclass(frozen=True)
class Shape:
    """What the functions of a path depend on.

    Parameters
    ----------
    degrees : (int, int, int)
    mul1, mul2 : int
        The multiplicities of x and y.
    step : int
        Elements from a component of y to the next.
    weighted, summed : bool
        Whether the path has weights, and whether edges share them, so that their gradient is added up.
    layout, dtype, lanes
        As in `Channels`.
    """

    degrees: Degrees
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
        return tuple(sorted(by_pair(self.degrees)))

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
    def x(self) -> Channels:
        return Channels(self.mul1, self.dims[0], self.layout, self.dtype, self.lanes)

    @property
    def z(self) -> Channels:
        return Channels(self.mul1, self.dims[2], self.layout, self.dtype, self.lanes)


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
    """The slots of x or z that take part: their channels, where each begins in memory and in scratch, and the scratch.

    size: vectors of scratch for one edge; place: where a slot begins in it, all of whose edges stand together.
    """

    channels: dict[int, Channels]
    start: dict[int, int]
    place: dict[int, int]
    size: int


def slots_of(problem: TPProblem, irreps: Irreps, used: set[int], dtype: str, lanes: int, edges: int = 1) -> Slots:
    """The slots numbered in `used`, for vectors of a type and for several edges at a time."""
    channels = {n: Channels(irreps[n].mul, irreps[n].ir.dim, problem.layout, dtype, lanes) for n in sorted(used)}
    place, size = {}, 0
    for n, slot in channels.items():
        place[n], size = size, size + slot.size * edges
    return Slots(channels, {n: irreps.slices[n].start for n in channels}, place, size)


@dataclass(frozen=True)
class Paths:
    """A problem for vectors of `lanes` elements of type `dtype`, "f64" or "f32", with its uvu paths."""

    problem: TPProblem
    dtype: str
    lanes: int

    @cached_property
    def all(self) -> tuple[Path, ...]:
        """The uvu paths in the order of the slots of z, each once for every channel of y."""
        paths = []
        for ins in sorted(self.problem.instructions, key=lambda ins: ins.i_out):
            if ins.connection_mode != "uvu" or 0 in ins.path_shape:
                continue
            slot, start = self.problem.irreps_in2[ins.i_in2], self.problem.slices2[ins.i_in2].start
            inner = self.problem.layout == "mul_ir"
            mul1, mul2 = ins.path_shape
            shape = Shape(
                self.problem.degrees(ins),
                mul1,
                mul2,
                step=1 if inner else slot.mul,
                weighted=ins.has_weight,
                summed=self.problem.shared_weights,
                layout=self.problem.layout,
                dtype=self.dtype,
                lanes=self.lanes,
            )
            for v in range(slot.mul):
                y = start + v * (slot.ir.dim if inner else 1)
                paths.append(Path(shape, ins.i_in1, ins.i_out, ins.path_weight, y, ins.weight_offset + v))
        return tuple(paths)

    @cached_property
    def slots1(self) -> Slots:
        used = {path.i_in1 for path in self.all}
        return slots_of(self.problem, self.problem.irreps_in1, used, self.dtype, self.lanes)

    @cached_property
    def slots3(self) -> Slots:
        used = {path.i_out for path in self.all}
        return slots_of(self.problem, self.problem.irreps_out, used, self.dtype, self.lanes)

    def to(self, slot: int) -> tuple[Path, ...]:
        """The paths that add to a slot of z."""
        return tuple(path for path in self.all if path.i_out == slot)


def index(number: int) -> Value:
    """A constant index."""
    return const(number, "i64")


ZERO = index(0)


def memory(name: str, dtype: str) -> Array:
    """An array in memory."""
    return Array(name, dtype)


def vectors(name: str, size: int, dtype: str) -> Array:
    """Scratch of vectors."""
    return Array(name, dtype, (max(1, size),), "local", lanes=True)


def clear(b: Builder, array: Array, size: int) -> None:
    """Set the first vectors of an array to zero."""
    if size:
        with b.loop("at", size) as at:
            b.store(array[at], 0)


def load_vector(b: Builder, source: Array, place: Value | int, rows: int, stride: int = 1) -> Value:
    """A vector of elements that lie `stride` apart in memory; lanes from `rows` on are 0."""
    held = b.array("read", source.dtype, (1,), lanes=True)
    b.add(st.Unpack(held, ZERO, source, _index(place), stride, 1, rows))
    return held[0]


def store_vector(b: Builder, to: Array, place: Value | int, value: Value, rows: int, stride: int = 1) -> None:
    """Store the first `rows` lanes of a vector, `stride` apart."""
    held = b.array("write", to.dtype, (1,), lanes=True)
    b.store(held[0], value)
    b.add(st.Pack(to, _index(place), held, ZERO, stride, 1, rows))


def _index(place: Value | int) -> Value:
    return index(place) if isinstance(place, int) else place
