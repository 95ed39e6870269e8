"""A plan as a program: a group of lanes takes an edge, or edges of one node in order, phase by phase.

Rows of operands: of an edge, or of the node at either end of it. In a convolution the edges are sorted by one end, the
node; what belongs to it stays in registers, or in shared memory, for all its edges. The edges of a node may be cut into
segments; then each has a row of its own behind those of the nodes, and `sum_rows` adds these up in order.

Slots go straight between memory and registers where a channel's components lie apart (ir_mul), and otherwise through
`stage`, so that lanes touch neighbours. Lanes without a channel of their own repeat the last one: they store what is
there already, and are masked in sums over lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

from trnqc.cg.cuda.coupled import Coupled
from trnqc.cg.cuda.couplings import couplings
from trnqc.cg.cuda.memory import DTYPES, FIRST, ORIGIN, SEGMENTS, G, Values
from trnqc.cg.cuda.paths import Paths
from trnqc.cg.cuda.schedule import KINDS, Plan, phase_parts
from trnqc.cg.problem.problem import Instruction
from trnqc.errors import UnsupportedError
from trnqc.gen import Array, Value, const
from trnqc.gen import statements as st
from trnqc.gen.values import lane, lt, minimum

Update = Callable[[Value], Value]


def function_name(plan: Plan, kahan: bool = False, atomic: bool = False) -> str:
    """The kernel's name, which tells pass, precision and kind of sums, and not the problem."""
    return f"cg_{plan.work.name}_{DTYPES[plan.size]}{'_kahan' * kahan}{'_atomic' * atomic}"


def parameters(plan: Plan) -> tuple[Value | Array, ...]:
    """first and origin (the group and the edge that rows count from), SEGMENTS in a convolution, then the operands."""
    names = (*plan.work.reads, *plan.work.writes)
    operands = tuple(Array(name, DTYPES[plan.size]) for name in names)
    return (FIRST, ORIGIN, *(SEGMENTS.values() if plan.work.by else ()), *operands)


def program(plan: Plan, kahan: bool = False, atomic: bool = False) -> st.Function:
    """The kernel of a pass; groups are edges, or segments of edges in a convolution.

    gy must hold zeros at the start. kahan: sums over a node's edges are compensated. atomic: they are added to the
    node's row, which must hold zeros, by hardware and in any order. Raises UnsupportedError for both at once.
    """
    if kahan and (atomic or not plan.work.by):
        raise UnsupportedError("compensated sums are those of a deterministic convolution")
    if kahan and plan.resident:
        raise UnsupportedError("compensated sums on a GPU need output slots that one slot of x reaches, by uvu paths")
    body = Kernel(plan, kahan, atomic).body()
    title = plan.problem.label or str(plan.problem)
    return st.Function(function_name(plan, kahan, atomic), parameters(plan), body, group=G, title=title)


class Kernel(Coupled):
    """Writes one program, from the whole down to a path."""

    def body(self) -> st.Block:
        write, work = self.write, self.work
        group = write.let("which", G + FIRST)
        if work.by:
            self.begin, self.end, self.node, self.target = (
                write.let(name, SEGMENTS[name][group]) for name in ("begin", "end", "node", "target")
            )
        else:
            self.edge = self.place = self.node = self.target = group
        self._open_resident()
        for phase in self.plan.phases:
            self.phase = phase
            slot = self.problem.irreps_in1[phase.i_in1]
            with write.block(f"x {slot}"):
                self._phase(slot.mul)
        self._close_resident()
        self._unreached()
        arrays = [st.DeclareArray(a) for a in (*self.tables.values(), *self.shared.values())]
        return st.block(arrays, st.Let(self.lane, lane()), write.body)

    # A phase

    def _phase(self, mul: int) -> None:
        phase, write = self.phase, self.write
        if phase.blocks == 1:
            self._block(const(0, "i64"), mul)
            return
        with write.loop("channel", mul, step=self.wide * phase.channels) as channel:
            # The compiler would keep a pointer for every operand that moves along, and has too few registers for that.
            c = write.declare("c", channel)
            write.add(st.Fence((c,)))
            self._block(c, mul)

    def _block(self, c: Value, mul: int) -> None:
        write, phase = self.write, self.phase
        self.c, self.mul = c, mul
        start = [self.lane + q * self.wide for q in range(phase.channels)]
        raw = [write.let("own", s if c.op == "const" else c + s) for s in start]
        tail = [phase.blocks * phase.channels * self.wide > mul and
                (phase.blocks > 1 or (q + 1) * self.wide > mul) for q in range(phase.channels)]  # fmt: skip
        self.own = raw
        self.valid = [lt(r, mul) if t else None for r, t in zip(raw, tail)]
        self.u = [write.let("u", minimum(r, mul - 1)) if t else r for r, t in zip(raw, tail)]
        self.x: dict[str, Values] = {}
        self.gx: Values = []
        self.sums: dict[int, Values] = {}
        self.comp: dict[int, Values] = {}
        self.gz: dict[int, Values] = {}
        self._at_node_open()
        if self.work.by:
            with write.loop("p", self.end, begin=self.begin) as p:
                self.place = p
                self.edge, self.far = write.let("edge", SEGMENTS["order"][p]), write.let("far_end", SEGMENTS["far"][p])
                self._edge()
        else:
            self._edge()
        self._at_node_close()

    def _in1(self, wanted: Callable[[str], bool]) -> None:
        slot = self.problem.irreps_in1[self.phase.i_in1]
        for name in self.work.reads:
            if KINDS[name] == 0 and wanted(name):
                self.x[name] = self.load(name, self.place_of(name, self.phase.i_in1), slot.ir.dim)
        if "gx" in self.work.writes and wanted("gx"):
            self.gx = self.fresh("gx", slot.ir.dim)

    def _in1_close(self, wanted: Callable[[str], bool]) -> None:
        if self.gx and wanted("gx"):
            self.store("gx", self.place_of("gx", self.phase.i_in1), self.gx)

    def _at_node_open(self) -> None:
        self._in1(self.at_node)
        for slot in self._slots() if self.work.by == "receiver" else ():
            if slot not in self.plan.resident:
                self.sums[slot] = self.fresh("sum", self.problem.irreps_out[slot].ir.dim)
                if self.kahan:
                    self.comp[slot] = self.fresh("lost", self.problem.irreps_out[slot].ir.dim)

    def _at_node_close(self) -> None:
        self._in1_close(self.at_node)
        if self.work.by == "receiver":
            (name,) = self.work.writes
            for slot, sums in self.sums.items():
                # What the last sums lost is not lost yet.
                rest = [[total - lost for total, lost in zip(*pair)] for pair in zip(sums, self.comp.get(slot, []))]
                self.store(name, self.place_of(name, slot), rest or sums)

    def _slots(self) -> list[int]:
        return list(dict.fromkeys(self.problem.instructions[n].i_out for n in self.phase.paths))

    def _edge(self) -> None:
        def other(name: str) -> bool:
            return not self.at_node(name)

        self._in1(other)
        if self.work.by and "gz" in self.work.reads:
            self._load_resident([slot for slot in self._slots() if slot in self.plan.resident])
        paths, parts = Paths(self), phase_parts(self.problem, self.phase)
        single = next((p for p in parts if self.problem.irreps_in2[self.path(p[0]).i_in2].mul == 1), ())
        table = couplings(self.problem, single)
        if single:
            self.couple(table)
        for slot, numbers in groupby(self.phase.paths, key=lambda n: self.path(n).i_out):
            self._slot_open(slot)
            for n in numbers:
                if n in single:
                    paths.write(n, table, const(0, "i64"))
                    continue
                own = couplings(self.problem, (n,))
                with self.write.loop("v", self.problem.irreps_in2[self.path(n).i_in2].mul) as v:
                    # What the paths before have summed of gy is still to be flushed.
                    if single and "gy" in self.work.writes:
                        self.flush(table, const(0, "i64"))
                    self.couple(own, v)
                    paths.write(n, own, v)
                    if "gy" in self.work.writes:
                        self.flush(own, v)
                    if single:
                        self.couple(table)
            self._slot_close(slot)
        if single and "gy" in self.work.writes:
            self.flush(table, const(0, "i64"))
        self._in1_close(other)

    def path(self, number: int) -> Instruction:
        return self.problem.instructions[number]

    def _slot_open(self, slot: int) -> None:
        """The slot's gz into registers, and registers for what this edge adds to it."""
        d, resident = self.problem.irreps_out[slot].ir.dim, slot in self.plan.resident
        uvu = any(self.path(n).connection_mode == "uvu" for n in self.phase.paths if self.path(n).i_out == slot)
        if "gz" in self.work.reads and uvu:
            if resident:
                kept = self.shared["gz_kept"]
                at = [self.kept(slot, d, u) for u in self.u]
                self.gz[slot] = [[self.write.let("gz", kept[a + k]) for k in range(d)] for a in at]
            else:
                self.gz[slot] = self.load("gz", self.place_of("gz", slot), d)
        if self.out and not resident and (self.work.by != "receiver" or self.kahan):
            self.edge_sums = self.fresh("z", d)

    def _slot_close(self, slot: int) -> None:
        if not self.out or slot in self.plan.resident:
            return
        if self.kahan:
            self._compensated(slot)
        elif self.work.by != "receiver":
            self.store(self.out, self.place_of(self.out, slot), self.edge_sums)

    def _compensated(self, slot: int) -> None:
        """Kahan 1965: what a sum lost is taken from the next term."""
        write = self.write
        for sums, losts, terms in zip(self.sums[slot], self.comp[slot], self.edge_sums):
            for total, lost, term in zip(sums, losts, terms):
                part = write.let("part", term - lost)
                more = write.let("more", total + part)
                write.add(st.Assign(lost, (more - total) - part), st.Assign(total, more))

    def add_out(self, slot: int, q: int, k: int, update: Update) -> None:
        """Let the output's element of channel q and component k become update(itself)."""
        if slot in self.plan.resident:
            d = self.problem.irreps_out[slot].ir.dim
            element = self.shared[f"{self.out}_kept"][self.kept(slot, d, self.own[q]) + k]
            self.write.add(st.store(element, update(element)))
            return
        sums = self.sums[slot] if self.work.by == "receiver" and not self.kahan else self.edge_sums
        self.write.add(st.Assign(sums[q][k], update(sums[q][k])))

    def _unreached(self) -> None:
        """Slots that no path reaches hold zeros."""
        reached = {self.path(n).i_out for phase in self.plan.phases for n in phase.paths}
        used = {phase.i_in1 for phase in self.plan.phases}
        todo = [(self.out, n, slot.dim) for n, slot in enumerate(self.problem.irreps_out) if n not in reached]
        todo += [("gx", n, slot.dim) for n, slot in enumerate(self.problem.irreps_in1) if n not in used]
        for name, n, size in todo:
            if name in self.work.writes and size and not self.atomic:
                base = self.place_of(name, n)
                with self.write.loop("n", size, step=self.wide) as i:
                    at = minimum(i + self.lane, size - 1)
                    self.write.add(st.store(self.array(name)[base + at], self.zero()))
