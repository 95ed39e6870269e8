"""Rows, registers and shared memory of a device program: where an operand's values lie, and how they get there."""

from __future__ import annotations

from collections.abc import Callable

from trnqc.cg.cuda.schedule import KINDS, Phase, Plan
from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen.build import Builder
from trnqc.gen.values import lt, minimum, select

DTYPES = {4: "f32", 8: "f64"}
G, FIRST, ORIGIN = Var("group", "i64"), Var("first", "i64"), Var("origin", "i64")
# Of a segment: its edges in order, the node and where its sums go; of an edge: its number and the node at its far end.
SEGMENTS = {name: Array(name, "i64") for name in ("begin", "end", "node", "target", "order", "far")}
Values = list[list[Value]]  # [channel of the lane][component]


class Memory:
    """The state of writing one program.

    Of the edge at hand: edge, place (among those in order), far; node and target as in SEGMENTS. Of the block of
    channels: c (the first), mul (of the slot), and by channel of the lane own (may lie beyond mul), u (does not) and
    valid (None where all lanes have one).
    """

    c: Value
    mul: int
    own: list[Value]
    u: list[Value]
    valid: list[Value | None]
    node: Value
    target: Value

    def __init__(self, plan: Plan, kahan: bool, atomic: bool) -> None:
        self.plan, self.problem, self.work = plan, plan.problem, plan.work
        self.kahan, self.atomic = kahan, atomic
        self.dtype, self.wide = DTYPES[plan.size], plan.lanes
        self.write = Builder()
        self.tables: dict[tuple[float, ...], Array] = {}
        self.shared = {name: Array(name, self.dtype, (n,), space="shared") for name, n in plan.shared.items()}
        self.lane = Var("lane_number", "i64")
        self.edge = self.far = self.place = G
        self.phase: Phase

    def zero(self) -> Value:
        return const(0.0, self.dtype)

    def array(self, name: str) -> Array:
        return Array(name, self.dtype)

    @property
    def out(self) -> str:
        """Which output has the rows of z, if any."""
        return next((name for name in self.work.writes if KINDS[name] == 3), "")

    def row(self, name: str) -> Value:
        """The row of an operand for the edge at hand; sums over a node's edges go to the segment's."""
        kind = KINDS[name]
        if kind == 1 or (not self.work.by and kind != 2):
            return self.edge
        if kind == 2:
            if not self.problem.shared_weights:
                return self.edge
            return self.place - ORIGIN if name in self.work.writes else const(0, "i64")
        if (kind == 0) == (self.work.by == "sender"):
            return self.target if name in self.work.writes else self.node
        return self.far

    def place_of(self, name: str, slot: int) -> Value:
        """Where a slot of an operand begins."""
        d1, d2, d3 = self.problem.dims
        length = (d1, d2, self.problem.weight_numel, d3)[KINDS[name]]
        slices = (self.problem.slices1, self.problem.slices2, (), self.problem.slices3)[KINDS[name]]
        return self.write.let(f"at_{name}", self.row(name) * length + slices[slot].start)

    def at_node(self, name: str) -> bool:
        """Whether an operand's row is that of the node by which edges are sorted."""
        return KINDS[name] == {"sender": 0, "receiver": 3}.get(self.work.by, -1)

    # Between memory and registers

    def fresh(self, hint: str, d: int) -> Values:
        return [[self.write.declare(hint, self.zero()) for _ in range(d)] for _ in self.u]

    def staged(self, d: int) -> bool:
        return self.problem.layout == "mul_ir" and d > 1

    def _spread(self, d: int) -> list[tuple[Value, Value]]:
        """(place in the stage, place in the slot) of a lane's elements when lanes take neighbours."""
        found = []
        last = self.mul * d - 1
        for r in range(self.phase.channels * d):
            local = self.lane + r * self.wide
            place = local if self.c.op == "const" else self.c * d + local
            if (self.phase.blocks * self.phase.channels * self.wide) > self.mul:
                place = self.write.let("clamped", minimum(place, last))
                local = place if self.c.op == "const" else place - self.c * d
            found.append((local, place))
        return found

    def load(self, name: str, base: Value, d: int) -> Values:
        """A slot's values of this block's channels."""
        write, array = self.write, self.array(name)
        if not self.staged(d):
            step = self.mul if d > 1 else 0
            return [[write.let(name, array[base + (u + i * step)]) for i in range(d)] for u in self.u]
        stage = self.shared["stage"]
        for r, (_, place) in enumerate(self._spread(d)):
            write.add(st.store(stage[self.lane + r * self.wide], array[base + place]))
        write.barrier()
        rows = [u if self.c.op == "const" else u - self.c for u in self.u]
        values = [[write.let(name, stage[row * d + i]) for i in range(d)] for row in rows]
        write.barrier()
        return values

    def store(self, name: str, base: Value, values: Values) -> None:
        """The other way round; sums over a node's edges are added up by hardware if that is wanted."""
        write, array, d = self.write, self.array(name), len(values[0])
        adds = self.atomic and self.at_node(name)
        if not self.staged(d):
            step = self.mul if d > 1 else 0
            for u, valid, own in zip(self.u, self.valid, values):
                for i, value in enumerate(own):
                    self._put(array[base + (u + i * step)], value, valid if adds else None, adds)
            return
        stage, rows = self.shared["stage"], [self.lane + q * self.wide for q in range(len(values))]
        for row, own in zip(rows, values):
            write.add(*(st.store(stage[row * d + i], value) for i, value in enumerate(own)))
        write.barrier()
        for r, (local, place) in enumerate(self._spread(d)):
            unclamped = self.lane + r * self.wide + (0 if self.c.op == "const" else self.c * d)
            valid = lt(unclamped, self.mul * d) if adds else None
            self._put(array[base + place], write.let("out", stage[local]), valid, adds)
        write.barrier()

    def _put(self, element: Value, value: Value, valid: Value | None, adds: bool) -> None:
        if adds:
            value = value if valid is None else select(valid, value, self.zero())
            self.write.add(st.accumulate(element, value))
        else:
            self.write.add(st.store(element, value))

    # Output slots in shared memory: [channel][component], channels padded to those of all lanes

    def kept(self, slot: int, d: int, channel: Value) -> Value:
        before = sum(self.plan.padded(n) * self.problem.irreps_out[n].ir.dim for n in self.plan.resident if n < slot)
        return self.write.let("kept", channel * d + before)

    def _open_resident(self) -> None:
        out = f"{self.out}_kept"
        if out in self.shared:
            size = self.plan.shared[out]
            with self.write.loop("n", size, step=self.wide) as n:
                place = minimum(n + self.lane, size - 1)
                self.write.add(st.store(self.shared[out][place], self.zero()))
            self.write.barrier()
        if not self.work.by and "gz" in self.work.reads:
            self._load_resident(list(self.plan.resident))

    def _load_resident(self, slots: list[int]) -> None:
        if slots:
            self.write.barrier()
        for slot in slots:
            self._each(slot, "gz", lambda at, kept: st.store(kept, at))
        if slots:
            self.write.barrier()

    def _close_resident(self) -> None:
        if f"{self.out}_kept" not in self.shared:
            return
        self.write.barrier()
        for slot in self.plan.resident:
            self._each(slot, self.out, self._flushed)

    def _flushed(self, at: Value, kept: Value) -> st.Statement:
        return st.accumulate(at, kept) if self.atomic and self.at_node(self.out) else st.store(at, kept)

    def _each(self, slot: int, name: str, do: Callable[[Value, Value], st.Statement]) -> None:
        """A statement for every element of a slot and its place in shared memory, lanes over neighbours."""
        mul, d = self.problem.irreps_out[slot].mul, self.problem.irreps_out[slot].ir.dim
        base, start = self.place_of(name, slot), self.kept(slot, d, const(0, "i64"))
        kept, size = self.shared[f"{name}_kept"], mul * d
        with self.write.loop("n", size, step=self.wide) as n:
            place = self.write.let("at", minimum(n + self.lane, size - 1))
            inside = place if self.problem.layout == "mul_ir" or d == 1 else place % mul * d + place // mul
            value = kept[start + inside]
            if self.atomic and name == self.out:
                value = select(lt(n + self.lane, size), value, self.zero())
            self.write.add(do(self.array(name)[base + place], value))
