"""The state of a GPU kernel under construction: its plan, builder and shared memory, and the rows of operands.

In a convolution the edges are sorted by the node at one end and divided into segments (segments.py). The operands of an
edge are in the row of the edge, of that node, or of the node at the other end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from trnqc.cg.cuda.plan import KernelPlan, Phase
from trnqc.cg.problem.instructions import PathInstruction
from trnqc.cg.problem.problem import TPProblem
from trnqc.cg.programs.directions import Direction
from trnqc.gen import Array, Value, Var, const
from trnqc.gen.build import Builder

DTYPES = {4: "f32", 8: "f64"}
# The number of a group among those of a launch, and a parameter of every kernel: the first group of the launch.
GROUP, FIRST = Var("group", "i64"), Var("first", "i64")
# The arrays of `segments.Segments`.
SEGMENTS = {name: Array(name, "i64") for name in ("begin", "end", "node", "target", "order", "far")}
# Values of a lane in registers: [channel of the lane][component].
Values = list[list[Value]]


@dataclass(frozen=True)
class Edge:
    """The numbers that determine the rows of an edge's operands.

    `number` is the row in y and w, edges are sorted by `node`, `target` is the row for sums over the segment, and `far`
    the node at the other end.
    """

    number: Value
    node: Value
    target: Value
    far: Value


@dataclass(frozen=True)
class ChannelBlock:
    """The channels of a slot of x that the lanes compute at the same time.

    `own` are the lane's channels, which may be `mul` or larger; `channel` the same, limited to mul - 1; `valid` whether
    each is below `mul`, None if it is for all lanes.
    """

    phase: Phase
    first: Value
    mul: int
    own: list[Value]
    channel: list[Value]
    valid: list[Value | None]


@dataclass(frozen=True, eq=False)
class KernelBuilder:
    """A kernel under construction, with the tables of constants used so far; see `table`.

    Sums over the edges of a node are compensated with `kahan`; with `atomic` they use atomic additions, in any order.
    """

    plan: KernelPlan
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
        """The arrays in shared memory by name; see `KernelPlan.shared`."""
        return {name: Array(name, self.dtype, (n,), space="shared") for name, n in self.plan.shared.items()}

    def array(self, name: str) -> Array:
        """Return an operand in memory."""
        return Array(name, self.dtype)

    def table(self, stem: str, dtype: str, data: tuple[float, ...]) -> Array:
        """Return a table of constants; equal tables are stored once."""
        key = (float(dtype == "i32"), *data)
        if key not in self.tables:
            self.tables[key] = Array(f"{stem}_{len(self.tables)}", dtype, (len(data),), space="constant", data=data)
        return self.tables[key]

    def path(self, number: int) -> PathInstruction:
        return self.problem.instructions[number]

    def row(self, name: str, edge: Edge) -> Value:
        """Return the row of an operand for an edge; sums over the edges of a node have a row for each segment.

        Gradients of shared weights have a row for each group of the launch. Row 0 is that of previous launches.
        """
        kind, writes, by = name[-1], self.direction.writes, self.direction.by
        if kind == "w" and self.problem.shared_weights:
            return GROUP + 1 if name in writes else const(0, "i64")
        if kind in "yw" or not by:
            return edge.number
        if self.at_node(name):
            return edge.target if name in writes else edge.node
        return edge.far

    @property
    def sums_weights(self) -> bool:
        """Whether a group adds the gradients of shared weights of all its edges up."""
        shared = self.problem.shared_weights and self.problem.weight_numel > 0
        return bool(self.direction.by) and shared and "gw" in self.direction.writes

    def place(self, name: str, slot: int, edge: Edge) -> Value:
        """Return the element at which a slot of x, y or z begins in an operand."""
        row = self.row(name, edge) * self.problem.row_length(name)
        return self.b.let(f"at_{name}", row + self.problem.irreps_of(name).slices[slot].start)

    def at_node(self, name: str) -> bool:
        """Whether an operand has the row of the node by which edges are sorted."""
        return name[-1] == {"sender": "x", "receiver": "z"}.get(self.direction.by)

    def registers(self, stem: str, block: ChannelBlock, dim: int) -> Values:
        """Declare `dim` sums for every channel of the lane, which start from zero."""
        return [[self.b.declare(stem, self.zero) for _ in range(dim)] for _ in block.own]
