"""A plan as a kernel: a group of lanes takes an edge, or the edges of one node in order, phase by phase.

    for every phase: for every block of channels of its slot of x:
        x, gx, z at the node to registers; for every edge: the rest to registers, couplings, paths, gy; back to memory

What belongs to the node by which a convolution's edges are sorted stays in registers, or in shared memory, for all its
edges. The edges of a node may be cut into segments; then each has a row of its own behind those of the nodes, and
`sum_rows` adds these up in order.

Lanes without a channel of their own repeat the last one: they store what is there already, and are masked in sums over
lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import groupby

from trnqc.cg.cuda import memory, resident
from trnqc.cg.cuda.couplings import couplings
from trnqc.cg.cuda.kernel import DTYPES, FIRST, GROUP, ORIGIN, SEGMENTS, Block, Edge, Kernel, Values
from trnqc.cg.cuda.lane_couplings import add_gy, form_couplings
from trnqc.cg.cuda.paths import Registers, write_path
from trnqc.cg.cuda.schedule import Phase, Plan, phase_parts
from trnqc.errors import UnsupportedError
from trnqc.gen import Array, Value, const
from trnqc.gen import statements as st
from trnqc.gen.values import lane, lt, minimum

FIRST_CHANNEL = const(0, "i64")


def function_name(plan: Plan, kahan: bool = False, atomic: bool = False) -> str:
    """The kernel's name, which tells direction, precision and kind of sums, and not the problem."""
    return f"cg_{plan.direction.key}_{DTYPES[plan.size]}{'_kahan' * kahan}{'_atomic' * atomic}"


def parameters(plan: Plan) -> tuple[Value | Array, ...]:
    """first and origin (the group and the edge that rows count from), SEGMENTS in a convolution, then the operands."""
    names = (*plan.direction.reads, *plan.direction.writes)
    operands = tuple(Array(name, DTYPES[plan.size]) for name in names)
    return (FIRST, ORIGIN, *(SEGMENTS.values() if plan.direction.by else ()), *operands)


def program(plan: Plan, kahan: bool = False, atomic: bool = False) -> st.Function:
    """The kernel of a direction; groups are edges, or segments of edges in a convolution.

    gy must hold zeros at the start.

    Parameters
    ----------
    plan : Plan
    kahan : bool
        Whether sums over a node's edges are compensated.
    atomic : bool
        Whether they are added to the node's row, which must hold zeros, by hardware and in any order.

    Raises
    ------
    UnsupportedError
        For both at once, or for compensated sums of slots that stay in shared memory.
    """
    if kahan and (atomic or not plan.direction.by):
        raise UnsupportedError("compensated sums are those of a deterministic convolution")
    if kahan and plan.resident:
        raise UnsupportedError("compensated sums on a GPU need output slots that one slot of x reaches, by uvu paths")
    k = Kernel(plan, kahan, atomic)
    edge, segment = _start(k)
    resident.begin(k, edge)
    for phase in plan.phases:
        slot = k.problem.irreps_in1[phase.i_in1]
        with k.b.block(f"x {slot}"):
            _phase(k, phase, slot.mul, edge, segment)
    resident.end(k, edge)
    _clear_unreached(k, edge)
    arrays = [st.DeclareArray(array) for array in (*k.tables.values(), *k.shared.values())]
    body = st.block(arrays, st.Let(k.lane, lane()), k.b.body)
    title = plan.problem.label or str(plan.problem)
    return st.Function(function_name(plan, kahan, atomic), parameters(plan), body, group=GROUP, title=title)


def _start(k: Kernel) -> tuple[Edge, tuple[Value, Value] | None]:
    """The group's edge, or its node and the places of its edges."""
    group = k.b.let("which", GROUP + FIRST)
    if not k.direction.by:
        return Edge(group, group, group, group, group), None
    begin, end, node, target = (k.b.let(name, SEGMENTS[name][group]) for name in ("begin", "end", "node", "target"))
    return Edge(GROUP, GROUP, node, target, GROUP), (begin, end)


@dataclass(frozen=True)
class _AtNode:
    """Registers that last for all edges of a node: slots of x, gx, and sums to slots of z with what they lost."""

    x: dict[str, Values]
    gx: Values
    sums: dict[int, Values]
    lost: dict[int, Values]


def _phase(k: Kernel, phase: Phase, mul: int, edge: Edge, segment: tuple[Value, Value] | None) -> None:
    if phase.blocks == 1:
        _block(k, _channels(k, phase, FIRST_CHANNEL, mul), edge, segment)
        return
    with k.b.loop("channel", mul, step=k.lanes * phase.channels) as channel:
        # The compiler would keep a pointer for every operand that moves along, and has too few registers for that.
        first = k.b.declare("c", channel)
        k.b.add(st.Fence((first,)))
        _block(k, _channels(k, phase, first, mul), edge, segment)


def _channels(k: Kernel, phase: Phase, first: Value, mul: int) -> Block:
    """The lanes' channels from a first one on."""
    local = [k.lane + q * k.lanes for q in range(phase.channels)]
    own = [k.b.let("own", n if first.op == "const" else first + n) for n in local]
    ends_within = phase.blocks * phase.channels * k.lanes > mul
    partial = [ends_within and (phase.blocks > 1 or (q + 1) * k.lanes > mul) for q in range(phase.channels)]
    valid = [lt(n, mul) if part else None for n, part in zip(own, partial)]
    channel = [k.b.let("u", minimum(n, mul - 1)) if part else n for n, part in zip(own, partial)]
    return Block(phase, first, mul, own, channel, valid)


def _block(k: Kernel, block: Block, edge: Edge, segment: tuple[Value, Value] | None) -> None:
    """All edges of a group for one block of channels."""
    by_receiver = k.direction.by == "receiver"
    x, gx = _load_x(k, block, edge, k.at_node)
    slots = [n for n in _slots(k, block.phase) if n not in k.plan.resident] if by_receiver else []
    dims = {n: k.problem.irreps_out[n].ir.dim for n in slots}
    sums = {n: k.registers("sum", block, dim) for n, dim in dims.items()}
    lost = {n: k.registers("lost", block, dim) for n, dim in dims.items() if k.kahan}
    at_node = _AtNode(x, gx, sums, lost)
    if segment is None:
        _edge(k, block, edge, at_node)
    else:
        begin, end = segment
        with k.b.loop("p", end, begin=begin) as p:
            number, far = k.b.let("edge", SEGMENTS["order"][p]), k.b.let("far_end", SEGMENTS["far"][p])
            _edge(k, block, replace(edge, number=number, place=p, far=far), at_node)
    if gx:
        memory.store(k, block, "gx", k.place("gx", block.phase.i_in1, edge), gx)
    for n, total in sums.items():
        # Apply the final compensation.
        rest = [[value - less for value, less in zip(*pair)] for pair in zip(total, lost.get(n, []))]
        memory.store(k, block, k.direction.output, k.place(k.direction.output, n, edge), rest or total)


def _slots(k: Kernel, phase: Phase) -> list[int]:
    """The slots of z that a phase reaches."""
    return list(dict.fromkeys(k.path(n).i_out for n in phase.paths))


def _load_x(k: Kernel, block: Block, edge: Edge, wanted: Callable[[str], bool]) -> tuple[dict[str, Values], Values]:
    """The phase's slot of the wanted operands of x, and registers for gx if it is wanted."""
    slot = block.phase.i_in1
    dim = k.problem.irreps_in1[slot].ir.dim
    names = [name for name in k.direction.reading("x") if wanted(name)]
    x = {name: memory.load(k, block, name, k.place(name, slot, edge), dim) for name in names}
    return x, k.registers("gx", block, dim) if k.direction.gradients and wanted("gx") else []


def _edge(k: Kernel, block: Block, edge: Edge, at_node: _AtNode) -> None:
    """All paths of a phase for one edge."""
    x, gx = _load_x(k, block, edge, lambda name: not k.at_node(name))
    if k.direction.by and k.direction.gradients:
        resident.load(k, [slot for slot in _slots(k, block.phase) if slot in k.plan.resident], edge)
    parts = phase_parts(k.problem, block.phase)
    single = next((part for part in parts if k.problem.irreps_in2[k.path(part[0]).i_in2].mul == 1), ())
    table, gradients = couplings(k.problem, single), k.direction.gradients
    if single:
        form_couplings(k, table, edge, FIRST_CHANNEL)
    for slot, numbers in groupby(block.phase.paths, key=lambda n: k.path(n).i_out):
        registers = _open_slot(k, block, edge, slot, at_node, {**at_node.x, **x}, gx or at_node.gx)
        for n in numbers:
            if n in single:
                write_path(k, block, edge, registers, n, table, FIRST_CHANNEL)
                continue
            own = couplings(k.problem, (n,))
            with k.b.loop("v", k.problem.irreps_in2[k.path(n).i_in2].mul) as v:
                # What the paths before have summed of gy is still to be added to memory.
                if single and gradients:
                    add_gy(k, table, edge, FIRST_CHANNEL)
                form_couplings(k, own, edge, v)
                write_path(k, block, edge, registers, n, own, v)
                if gradients:
                    add_gy(k, own, edge, v)
                if single:
                    form_couplings(k, table, edge, FIRST_CHANNEL)
        _close_slot(k, block, edge, slot, at_node, registers.output)
    if single and gradients:
        add_gy(k, table, edge, FIRST_CHANNEL)
    if gx:
        memory.store(k, block, "gx", k.place("gx", block.phase.i_in1, edge), gx)


def _open_slot(
    k: Kernel, block: Block, edge: Edge, slot: int, at_node: _AtNode, x: dict[str, Values], gx: Values
) -> Registers:
    """The registers of a slot of z: its gz, and sums of what this edge adds to it, or of the node."""
    dim, is_resident = k.problem.irreps_out[slot].ir.dim, slot in k.plan.resident
    gz, output = Values(), Values()
    modes = {k.path(n).connection_mode for n in block.phase.paths if k.path(n).i_out == slot}
    if k.direction.gradients and "uvu" in modes:
        if is_resident:
            kept = k.shared["gz_kept"]
            places = [resident.place(k, slot, u) for u in block.channel]
            gz = [[k.b.let("gz", kept[place + n]) for n in range(dim)] for place in places]
        else:
            gz = memory.load(k, block, "gz", k.place("gz", slot, edge), dim)
    if k.direction.output and not is_resident:
        own = k.direction.by != "receiver" or k.kahan
        output = k.registers("z", block, dim) if own else at_node.sums[slot]
    return Registers(x, gx, gz, output)


def _close_slot(k: Kernel, block: Block, edge: Edge, slot: int, at_node: _AtNode, output: Values) -> None:
    """Store what the edge adds to a slot of z, or add it to the node's sum."""
    if not output:
        return
    if k.kahan:
        _add_compensated(k, at_node.sums[slot], at_node.lost[slot], output)
    elif k.direction.by != "receiver":
        memory.store(k, block, k.direction.output, k.place(k.direction.output, slot, edge), output)


def _add_compensated(k: Kernel, sums: Values, losses: Values, terms: Values) -> None:
    """Add terms to sums; what an addition loses is subtracted from the next term (Kahan 1965)."""
    for row in zip(sums, losses, terms):
        for total, lost, term in zip(*row):
            part = k.b.let("part", term - lost)
            more = k.b.let("more", total + part)
            k.b.assign(lost, (more - total) - part)
            k.b.assign(total, more)


def _clear_unreached(k: Kernel, edge: Edge) -> None:
    """Set slots that no path reaches to zero."""
    reached = {"z": {k.path(n).i_out for phase in k.plan.phases for n in phase.paths}}
    reached["x"] = {phase.i_in1 for phase in k.plan.phases}
    irreps = {"z": k.problem.irreps_out, "x": k.problem.irreps_in1}
    for name in [n for n in k.direction.writes if n[-1] in "xz" and not k.atomic]:
        for number, slot in enumerate(irreps[name[-1]]):
            if number not in reached[name[-1]] and slot.dim:
                base = k.place(name, number, edge)
                with k.b.loop("n", slot.dim, step=k.lanes) as n:
                    k.b.store(k.array(name)[base + minimum(n + k.lane, slot.dim - 1)], k.zero)
