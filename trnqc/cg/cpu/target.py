"""A tensor product for the vectors of a CPU: the channels of its slots in vectors, and its uvu paths.

instructions -> shapes (paths of equal shapes share their functions) and positions in the rows of x, y, w and z
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from trnqc.cg.cpu.slots import Channels, PathSlots
from trnqc.cg.problem.coefficients import sparse
from trnqc.cg.problem.instructions import PathInstruction
from trnqc.cg.problem.irreps import MulIrrep
from trnqc.cg.problem.problem import TPProblem
from trnqc.cg.programs.coupling import Degrees, by_pair

# Number of sums over channels that stay in registers during the loop over a path's blocks.
SUMS = 21


@dataclass(frozen=True)
class PathShape:
    """Properties of a uvu path on which its functions depend; layout, dtype and lanes as in `Channels`.

    `step` is the distance in memory between the components of a channel of y; `summed` says that edges share their
    weights.
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
        """Numbers of components of x, y and z."""
        l1, l2, l3 = self.degrees
        return 2 * l1 + 1, 2 * l2 + 1, 2 * l3 + 1

    @property
    def terms(self) -> tuple[tuple[int, int, int, float], ...]:
        """(i, j, k, C[i, j, k]) of the coefficients that are not zero."""
        return sparse(*self.degrees)

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Pairs (i, k) of components of x and z that some component of y couples."""
        return tuple(sorted(by_pair(self.degrees)))

    @property
    def parts(self) -> tuple[tuple[int, ...], ...]:
        """Components i of x in groups whose sums over the pairs (i, k) fit in registers."""
        parts: list[list[int]] = [[]]
        for i in range(self.dims[0]):
            if parts[-1] and sum(p in (*parts[-1], i) for p, _ in self.pairs) > SUMS:
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
class ChannelPath:
    """A uvu path for one channel of y, at positions `y` in a row of y and `w` (its first weight) in a row of w."""

    shape: PathShape
    i_in1: int
    i_out: int
    path_weight: float
    y: int
    w: int


@dataclass(frozen=True)
class ProductTarget:
    """A tensor product for vectors of one type and length."""

    problem: TPProblem
    dtype: str
    lanes: int

    def paths(self, *modes: str) -> tuple[PathInstruction, ...]:
        """Return the paths of these modes that have channels."""
        return tuple(p for p in self.problem.instructions if p.connection_mode in modes and 0 not in p.path_shape)

    def channels(self, slot: MulIrrep) -> Channels:
        """Return the channels of a whole slot."""
        return Channels(slot.mul, slot.ir.dim, self.problem.layout, self.dtype, self.lanes)

    def slots(self, kind: str, paths: Iterable[PathInstruction], edges: int = 1) -> PathSlots:
        """Return the slots of x or z (`kind`) that some paths use, with scratch for several edges at a time."""
        irreps = self.problem.irreps_of(kind)
        numbers = sorted({path.i_in1 if kind == "x" else path.i_out for path in paths})
        channels = {n: self.channels(irreps[n]) for n in numbers}
        place, size = {}, 0
        for n, slot in channels.items():
            place[n], size = size, size + slot.size * edges
        return PathSlots(channels, {n: irreps.slices[n].start for n in channels}, place, size)

    def shape(self, path: PathInstruction, degrees: Degrees, mul1: int, mul2: int, slot_mul: int) -> PathShape:
        """Return the shape of a path that is computed as uvu, where `slot_mul` is the multiplicity of y in memory."""
        layout = self.problem.layout
        step = 1 if layout == "mul_ir" else slot_mul
        shared = self.problem.shared_weights
        return PathShape(degrees, mul1, mul2, step, path.has_weight, shared, layout, self.dtype, self.lanes)

    @cached_property
    def uvu_paths(self) -> tuple[ChannelPath, ...]:
        """The uvu paths in the order of the slots of z, each once for every channel of y."""
        channel_paths = []
        for path in sorted(self.paths("uvu"), key=lambda path: path.i_out):
            slot, start = self.problem.irreps_in2[path.i_in2], self.problem.slices2[path.i_in2].start
            mul1, mul2 = path.path_shape
            shape = self.shape(path, self.problem.degrees(path), mul1, mul2, slot.mul)
            step = slot.ir.dim if self.problem.layout == "mul_ir" else 1
            channel_paths += [
                ChannelPath(shape, path.i_in1, path.i_out, path.path_weight, start + v * step, path.weight_offset + v)
                for v in range(slot.mul)
            ]
        return tuple(channel_paths)

    @cached_property
    def uvu_slots(self) -> dict[str, PathSlots]:
        """The slots of x and of z that uvu paths use, by kind."""
        return {kind: self.slots(kind, self.paths("uvu")) for kind in "xz"}

    def uvu_paths_to(self, slot: int) -> tuple[ChannelPath, ...]:
        """Return the uvu paths that add to a slot of z."""
        return tuple(path for path in self.uvu_paths if path.i_out == slot)
