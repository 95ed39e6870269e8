"""Schedule of a program on the engines.

Each engine runs its instructions in program order, as early as hazards and shared resources allow.

    program --Node--> cost and operands of each instruction --Schedule--> times, totals, events

One queue for loads and one for stores trigger the DMA instructions in program order. Descriptors are generated for one
instruction at a time, and the bytes move on the DMA engines that serve their partitions.
"""

from __future__ import annotations

from typing import Any

from trnqc.sim.machine.targets import PSUM_BANK_BYTES, PSUM_BANKS
from trnqc.sim.timeline.calendar import Calendar
from trnqc.sim.timeline.hazards import NO_WAIT, Hazards, Wait
from trnqc.sim.timeline.record import Loop, Operand, Step
from trnqc.sim.timeline.totals import DMA, ENGINES, GPSIMD, SCALAR, SYNC, TENSOR, VECTOR, Event, Totals
from trnqc.sim.timeline.work import Work, WorkTable

# The two DMA queues; they follow the queues of the five engines.
LOADS, STORES = 5, 6
QUEUES = (*ENGINES, "loads", "stores")
_NUMBER = {name: n for n, name in enumerate(ENGINES)}


class Node:
    """An instruction with its cost and the shared resources that it needs."""

    __slots__ = ("banks", "id", "me", "port", "queue", "software", "step", "storages", "work")

    def __init__(self, step: Step, work: Work, address: dict[int, int], constants: dict[str, float]):
        self.step, self.work, self.id = step, work, step.id
        self.me = DMA if step.engine == "dma" else _NUMBER[step.engine]
        self.queue = self.me
        if self.me == DMA:
            self.queue = STORES if step.outputs[0].space == "hbm" else LOADS
        elif self.me == SYNC:
            self.queue = LOADS
        operands = step.outputs + step.inputs
        self.storages = {o.storage for o in operands}
        banks = [_banks(o, address) for o in operands if o.space == "psum"] if constants["psum_bank_exclusive"] else []
        self.banks = tuple({bank for touched in banks for bank in touched})
        self.port = self._port(operands, constants)
        runtime = step.indices > 0 or (not constants["hardware_dge"] and any(o.dynamic for o in operands))
        # Whether GpSimd makes the descriptors of this DMA.
        self.software = self.me == DMA and runtime and constants["software_dge_ns"] > 0

    def _port(self, operands: tuple[Operand, ...], constants: dict[str, float]) -> str:
        spaces = {o.space for o in operands}
        if constants["vector_scalar_port"] and self.me in (VECTOR, SCALAR) and "psum" in spaces:
            return "psum"
        if constants["vector_gpsimd_port"] and self.me in (VECTOR, GPSIMD) and "sbuf" in spaces:
            return "sbuf"
        return ""


def _operands_of_tensor(step: Step) -> tuple[tuple[Operand, ...], tuple[Operand, ...]]:
    """The operand that LoadStationary reads, and the operands that MultiplyMoving reads; a transpose may hold an
    identity.
    """
    if step.op == "nc_matmul":
        return step.inputs[:1], step.inputs[1:]
    if step.op == "nc_transpose":
        return step.data[1:], (*step.data[:1], *step.inputs[len(step.data) :])
    return (), step.inputs


def _banks(o: Operand, address: dict[int, int]) -> range:
    start = address.get(o.storage, 0)
    return range((start + o.b0) // PSUM_BANK_BYTES, min(PSUM_BANKS, -(-(start + o.b1) // PSUM_BANK_BYTES)))


class Schedule:
    """State of all queues while a program is placed on them."""

    def __init__(
        self, table: WorkTable, hazards: Hazards, address: dict[int, int], constants: dict[str, float], event_limit: int
    ):
        self.c, self.table, self.hazards, self.address = constants, table, hazards, address
        self.totals, self.event_limit = Totals(), event_limit
        self.events: list[Event] = []
        self.dropped = 0
        self.free = [0.0] * len(QUEUES)
        self.loaded: dict[int, float] = {}  # completion times of register writes in ns, by instruction id
        self.weights_free = self.multiply_start = 0.0
        self.ports = {"psum": Calendar(), "sbuf": Calendar()}
        self.banks = [Calendar() for _ in range(PSUM_BANKS)]
        self.lanes = [Calendar() for _ in range(int(constants["dma_engines"]))]
        self.generators = [Calendar() for _ in range(max(1, int(constants["dma_generators"])))]
        self.moving = Calendar()
        self.turn = 0
        self.iteration: tuple[int, ...] = ()
        self.end = 0.0
        self._nodes: dict[int, Node] = {}

    def node(self, step: Step) -> Node:
        node = self._nodes.get(id(step))
        if node is None:
            node = self._nodes[id(step)] = Node(step, self.table.of(step), self.address, self.c)
        return node

    def issue(self, step: Step) -> None:
        """Place one instruction."""
        node = self.node(step)
        if node.me == TENSOR:
            self._multiply(node)
        elif node.me == DMA:
            self._transfer(node)
        else:
            self._compute(node)

    # -- waiting ------------------------------------------------------------------------------------------------

    def _registers(self, node: Node, wait: Wait) -> Wait:
        for writer in node.step.registers:
            t = self.loaded.get(writer, 0.0)
            if t > wait[0]:
                wait = (t, "register", SYNC)
        return wait

    def _hazards(self, node: Node, inputs: tuple[Operand, ...], outputs: tuple[Operand, ...]) -> Wait:
        wait, hazards, me = NO_WAIT, self.hazards, node.me
        for o in inputs:
            wait = hazards.read(o, me, wait)
        for o in outputs:
            wait = hazards.write(o, me, self.turn, wait)
        return self._registers(node, wait) if node.step.registers else wait

    def _shared(self, node: Node, start: float, busy: float, wait: Wait) -> tuple[float, Wait]:
        """Book the PSUM banks and the port of a node for the first common free interval at or after ``start``."""
        me = node.me
        calendars = [self.banks[b] for b in node.banks]
        causes = ["psum_bank"] * len(calendars)
        if node.port:
            calendars.append(self.ports[node.port])
            causes.append("shared_port")
        moved = True
        while moved:
            moved = False
            for calendar, cause in zip(calendars, causes, strict=True):
                t = calendar.probe(start, busy, me)
                if t > start:
                    start, wait, moved = t, (t, cause, -1), True
        for calendar in calendars:
            calendar.book(start, busy, me)
        return start, wait

    def _stall(self, queue: int, idle: float, wait: Wait) -> tuple[str, float]:
        if idle <= 0:
            return "none", 0.0
        sums = self.totals.sums
        engine = min(queue, SYNC)
        sums["stall", engine, wait[1]] += idle
        if wait[2] >= 0:
            sums["waits", engine, wait[1], wait[2]] += idle
        return wait[1], idle

    # -- kinds of instructions ----------------------------------------------------------------------------------

    def _compute(self, node: Node) -> None:
        step, work, me = node.step, node.work, node.me
        wait = self._hazards(node, step.inputs, step.outputs)
        free = self.free[node.queue]
        start = wait[0] if wait[0] > free else free
        if node.banks or node.port:
            start, wait = self._shared(node, start, work.busy, wait)
        end = start + work.busy
        self.free[node.queue] = end
        self._done(node, end, end + work.late)
        if me == SYNC:
            self.loaded[step.id] = end
        self.totals.engine(me, start, end, work.late)
        cause, idle = self._stall(node.queue, start - free, wait)
        self._show(ENGINES[me], QUEUES[node.queue], step, start, end, cause, idle)

    def _multiply(self, node: Node) -> None:
        """Place a matmul: LoadStationary, which overlaps the previous multiply, then MultiplyMoving."""
        step, work = node.step, node.work
        free = self.free[TENSOR]
        held, streamed = _operands_of_tensor(step)
        fixed = self._hazards(node, held, ())
        weights = max(fixed[0], self.weights_free, self.multiply_start)
        loaded = weights + work.weights
        wait = self._hazards(node, streamed, step.outputs)
        start = max(free, wait[0], loaded)
        if loaded >= start and loaded > wait[0]:
            wait = fixed if fixed[0] >= weights and fixed[0] > 0 else (loaded, "issue", TENSOR)
        if node.banks:
            start, wait = self._shared(node, start, work.busy, wait)
        end = start + work.busy
        self.free[TENSOR], self.weights_free, self.multiply_start = end, loaded, start
        self._done(node, end, end + work.late)
        sums = self.totals.sums
        sums["weights"] += work.weights
        sums["flops"] += work.flops
        sums["adjusted"] += work.adjusted
        self.totals.engine(TENSOR, start, end, work.late)
        cause, idle = self._stall(TENSOR, start - free, wait)
        if work.weights:
            self._show("tensor", "weights", step, weights, loaded, "none", 0.0)
        self._show("tensor", "tensor", step, start, end, cause, idle)

    def _transfer(self, node: Node) -> None:
        step, work, c = node.step, node.work, self.c
        queue, free = node.queue, self.free[node.queue]
        wait = self._hazards(node, step.inputs, step.outputs)
        issue = wait[0] if wait[0] > free else free
        issued = issue + c["dma_issue_cycles"] / c["sync_ghz"]
        self.free[queue] = issued
        self.totals.engine(SYNC, issue, issued, 0.0)
        cause, idle = self._stall(queue, issue - free, wait)
        self._show("sync", QUEUES[queue], step, issue, issued, cause, idle)
        generate = 0.0 if node.software else c["dma_generate_ns"]
        last_ready = self._descriptors(node, issue) + c["dma_start_ns"] - c["dma_generate_ns"]
        begin, end, queued = float("inf"), 0.0, 0.0
        for n, (lane, share) in enumerate(work.shares, 1):  # A lane starts as soon as its own descriptors exist.
            ready = last_ready - generate * (1 - n / len(work.shares))
            first, last = self.lanes[lane].fill(ready, share)
            begin, end, queued = min(begin, first), max(end, last), max(queued, first - ready)
            self.totals.sums["dma", lane] += share
            late = first - ready
            self._show(f"dma{lane}", QUEUES[queue], step, first, last, "dma_queue" if late > 0 else "none", late)
        self._traffic(step, work, begin, end, queued)
        finish = end + c["dma_finish_ns"]
        self._done(node, finish, finish)

    def _descriptors(self, node: Node, issue: float) -> float:
        """Make the descriptors of a DMA, and return the time at which the last one is there."""
        if not node.software:
            generator = min(self.generators, key=lambda g: g.busy[-1][1] if g.busy else 0.0)
            return generator.fill(issue, self.c["dma_generate_ns"])[1]
        free = self.free[GPSIMD]
        start = max(issue, free)
        end = self.free[GPSIMD] = start + self.c["software_dge_ns"]
        self.totals.engine(GPSIMD, start, end, 0.0)
        cause, idle = self._stall(GPSIMD, start - free, (issue, "dma_queue", -1))
        self._show("gpsimd", "gpsimd", node.step, start, end, cause, idle)
        return end

    def _traffic(self, step: Step, work: Work, begin: float, end: float, queued: float) -> None:
        sums = self.totals.sums
        sums["transfers"] += 1
        sums["moved"] += work.moved
        sums["rows"] += work.rows
        sums["dma_active"] += self.moving.cover(begin, end)
        if queued > 0:
            sums["stall", DMA, "dma_queue"] += queued
        for o in step.inputs:
            sums["read", o.space] += work.moved / max(1, len(step.inputs))
        for o in step.outputs:
            sums["write", o.space] += work.moved / max(1, len(step.inputs))

    def _done(self, node: Node, end: float, there: float) -> None:
        hazards, me = self.hazards, node.me
        for o in node.step.inputs:
            hazards.did_read(o, me, end)
        for o in node.step.outputs:
            hazards.did_write(o, me, end, there)
        if there > self.end:
            self.end = there
        if me != DMA:
            sums = self.totals.sums
            for o in node.step.inputs:
                sums["read", o.space] += (o.p1 - o.p0) * o.width * o.itemsize
            for o in node.step.outputs:
                sums["write", o.space] += (o.p1 - o.p0) * o.width * o.itemsize

    def _show(self, engine: str, queue: str, step: Step, start: float, end: float, cause: str, idle: float) -> None:
        if len(self.events) >= self.event_limit:
            self.dropped += 1
            return
        self.events.append(Event(engine, queue, step.op, step.name, step.id, start, end, self.iteration, cause, idle))

    # -- device loops -------------------------------------------------------------------------------------------

    def enter(self, loop: Loop, queues: set[int]) -> None:
        """Make every queue of a loop wait for the registers that hold the loop bounds."""
        for writer in loop.registers:
            t = self.loaded.get(writer, 0.0) + self.hazards.semaphore
            for queue in queues:
                if t > self.free[queue]:
                    self._stall(queue, t - self.free[queue], (t, "register", SYNC))
                    self.free[queue] = t

    def turn_around(self, queues: set[int]) -> None:
        """Add the branch at the end of a pass, and a barrier if the constants require one."""
        c = self.c
        if c["loop_barrier"]:
            meet = max(self.end, *(self.free[q] for q in queues))
            for queue in queues:
                self._stall(queue, meet - self.free[queue], (meet, "issue", -1))
                self.free[queue] = meet
        for queue in queues:
            spent = c["loop_cycles"] / c[f"{ENGINES[min(queue, SYNC)]}_ghz"]
            self.free[queue] += spent
            self.totals.sums["stall", min(queue, SYNC), "issue"] += spent
        self.turn += 1

    def shift(self, dt: float, queues: set[int], storages: set[int], writers: set[int]) -> None:
        """Delay the state that a loop uses by ``dt`` ns."""
        for queue in queues:
            self.free[queue] += dt
        self.hazards.shift(storages, dt)
        for writer in writers & self.loaded.keys():
            self.loaded[writer] += dt
        if TENSOR in queues:
            self.weights_free += dt
            self.multiply_start += dt
        for calendar in self._calendars():
            calendar.shift(dt)
        self.end += dt
        engines = {min(q, SYNC) for q in queues}
        self.totals.shift(dt, engines)

    def _calendars(self) -> list[Any]:
        return [*self.ports.values(), *self.banks, *self.lanes, *self.generators, self.moving]
