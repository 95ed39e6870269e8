"""What the parts of a GPU kernel are written with: the plan, the builder, shared memory and the rows of operands.

In a convolution the edges are sorted by the node at one end and cut into segments (segments.py); an edge's operands lie
in the rows of the edge, of that node, or of the node at the far end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from trnqc.cg.cuda.schedule import Phase, Plan
from trnqc.cg.problem.problem import Instruction, TPProblem
from trnqc.cg.programs.directions import Direction
from trnqc.gen import Array, Value, Var, const
from trnqc.gen.build import Builder

DTYPES = {4: "f32", 8: "f64"}
GROUP, FIRST, ORIGIN = Var("group", "i64"), Var("first", "i64"), Var("origin", "i64")
# Of a segment: its edges in order, the node and where its sums go; of an edge: its number and the node at its far end.
SEGMENTS = {name: Array(name, "i64") for name in ("begin", "end", "node", "target", "order", "far")}
Values = list[list[Value]]  # [channel of the lane][component]


@dataclass(frozen=True)
class Edge:
    """The numbers that tell an edge's rows.

    Parameters
    ----------
    number, place : Value
        The edge in y and w, and its place among the edges in order.
    node, target : Value
        The node by which edges are sorted, and the row of its sums.
    far : Value
        The node at the other end.
    """

    number: Value
    place: Value
    node: Value
    target: Value
    far: Value


@dataclass(frozen=True)
class Block:
    """The channels of a slot of x that the lanes hold at once.

    Parameters
    ----------
    phase : Phase
    first : Value
        The first channel.
    mul : int
        The slot's number of channels.
    own, channel : list of Value
        For each channel of the lane its number, and the same kept below `mul`.
    valid : list of (Value or None)
        Whether the number is below `mul`; None where it is for all lanes.
    """

    phase: Phase
    first: Value
    mul: int
    own: list[Value]
    channel: list[Value]
    valid: list[Value | None]


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel under construction.

    Parameters
    ----------
    plan : Plan
    kahan : bool
        Whether sums over a node's edges are compensated.
    atomic : bool
        Whether they are added to the node's row by hardware, in any order.
    """

    plan: Plan
    kahan: bool
    atomic: bool
    b: Builder = field(default_factory=Builder)
    tables: dict[tuple[float, ...], Array] = field(default_factory=dict)
    lane: Value = field(default_factory=lambda: Var("lane_number", "i64"))

    @property
    def problem(self) -> TPProblem:
        return self.plan.problem

    @property
    def direction(self) -> Direction:
        return self.plan.direction

    @property
    def lanes(self) -> int:
        return self.plan.lanes

    @property
    def dtype(self) -> str:
        return DTYPES[self.plan.size]

    @property
    def zero(self) -> Value:
        return const(0.0, self.dtype)

    @cached_property
    def shared(self) -> dict[str, Array]:
        """Arrays in shared memory by name; see `Plan.shared`."""
        return {name: Array(name, self.dtype, (n,), space="shared") for name, n in self.plan.shared.items()}

    def array(self, name: str) -> Array:
        """An operand in memory."""
        return Array(name, self.dtype)

    def table(self, stem: str, dtype: str, data: tuple[float, ...]) -> Array:
        """A table of constants; equal tables are one."""
        key = (float(dtype == "i32"), *data)
        if key not in self.tables:
            self.tables[key] = Array(f"{stem}_{len(self.tables)}", dtype, (len(data),), space="constant", data=data)
        return self.tables[key]

    def path(self, number: int) -> Instruction:
        return self.problem.instructions[number]

    def row(self, name: str, edge: Edge) -> Value:
        """The row of an operand; sums over a node's edges go to the segment's."""
        kind, writes, by = name[-1], self.direction.writes, self.direction.by
        if kind == "w" and self.problem.shared_weights:
            return edge.place - ORIGIN if name in writes else const(0, "i64")
        if kind in "yw" or not by:
            return edge.number
        if self.at_node(name):
            return edge.target if name in writes else edge.node
        return edge.far

    def place(self, name: str, slot: int, edge: Edge) -> Value:
        """Where a slot of x, y or z begins in an operand."""
        slices = {"x": self.problem.slices1, "y": self.problem.slices2, "z": self.problem.slices3}[name[-1]]
        row = self.row(name, edge) * self.problem.row_length(name)
        return self.b.let(f"at_{name}", row + slices[slot].start)

    def at_node(self, name: str) -> bool:
        """Whether an operand's row is that of the node by which edges are sorted."""
        return name[-1] == {"sender": "x", "receiver": "z"}.get(self.direction.by)

    def registers(self, stem: str, block: Block, dim: int) -> Values:
        """Sums of zero for every channel of the lane."""
        return [[self.b.declare(stem, self.zero) for _ in range(dim)] for _ in block.own]
