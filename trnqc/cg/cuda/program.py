"""The program of a plan: a group of lanes computes an edge, or the edges of one node in order, phase by phase.

    for every phase: for every block of channels of its slot of x:
        load x, gx and z of the node into registers
        for every edge: load the other operands into registers, compute couplings and paths, add to gy
        store the results of the node

The operands of the node by which the edges of a convolution are sorted stay in registers, or in shared memory, for all
its edges. If the edges of a node are divided into several segments, each segment has a row of sums of its own, after
those of the nodes, and `sum_rows` adds these up in order.

Lanes beyond the last channel repeat it. They store the same values as another lane, and are masked in sums over lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import groupby

from trnqc.cg.cuda import memory, resident
from trnqc.cg.cuda.couplings import couplings
from trnqc.cg.cuda.kernel import DTYPES, FIRST, GROUP, SEGMENTS, ChannelBlock, Edge, KernelBuilder, Values
from trnqc.cg.cuda.lane_couplings import add_gy, form_couplings
from trnqc.cg.cuda.paths import PathWriter, Registers
from trnqc.cg.cuda.plan import KernelPlan, Phase, phase_parts
from trnqc.cg.problem.text import text_of
from trnqc.errors import UnsupportedError
from trnqc.gen import Array, Value, const
from trnqc.gen import statements as st
from trnqc.gen.values import lane, lt, minimum
from trnqc.jit import Recipe, Signature

FIRST_CHANNEL = const(0, "i64")


def function_name(plan: KernelPlan, kahan: bool = False, atomic: bool = False) -> str:
    """Return the name of a kernel, which depends on direction, precision and kind of sums, but not on the problem."""
    return f"cg_{plan.direction.key}_{DTYPES[plan.size]}{'_kahan' * kahan}{'_atomic' * atomic}"


def parameters(plan: KernelPlan) -> tuple[Value | Array, ...]:
    """Return the parameters of a kernel: FIRST, in a convolution SEGMENTS, and the operands."""
    operands = tuple(Array(name, DTYPES[plan.size]) for name in plan.direction.operands)
    return (FIRST, *(SEGMENTS.values() if plan.direction.by else ()), *operands)


def recipe(plan: KernelPlan, kahan: bool = False, atomic: bool = False) -> Recipe:
    """Return the recipe of `product_kernel`, which may raise UnsupportedError when it is generated."""
    name = function_name(plan, kahan, atomic)
    signature = Signature.declared(name, parameters(plan), plan.direction.writes)
    variant = f"{text_of(plan.problem)} {plan.lanes} {plan.phases} {plan.resident}"
    return Recipe(name, (signature,), lambda: (product_kernel(plan, kahan, atomic),), __name__, variant)


def product_kernel(plan: KernelPlan, kahan: bool = False, atomic: bool = False) -> st.Function:
    """Return the kernel of a direction, with one group for each edge or, in a convolution, for each segment of edges.

    The operand gy, and sums that use atomic additions, must be zero before the launch. Raises UnsupportedError for sums
    that are both compensated and atomic, or compensated sums of slots that stay in shared memory.
    """
    if kahan and (atomic or not plan.direction.by):
        raise UnsupportedError("expected kahan=True with a deterministic convolution only")
    if kahan and plan.resident:
        raise UnsupportedError("compensated sums on a GPU need output slots that one slot of x reaches, by uvu paths")
    k = KernelBuilder(plan, kahan, atomic)
    edge, segment = _start(k)
    resident.begin(k, edge)
    if k.sums_weights:
        _clear(k, "gw", k.row("gw", edge) * k.problem.weight_numel, k.problem.weight_numel)
        k.b.barrier()
    for phase in plan.phases:
        with k.b.block(f"x {k.problem.irreps_in1[phase.i_in1]}"):
            _phase(k, phase, edge, segment)
    resident.end(k, edge)
    _clear_unreached(k, edge)
    arrays = [st.DeclareArray(array) for array in (*k.tables.values(), *k.shared.values())]
    body = st.block(arrays, st.Let(k.lane, lane()), k.b.body)
    title = plan.problem.label or str(plan.problem)
    return st.Function(function_name(plan, kahan, atomic), parameters(plan), body, group=GROUP, title=title)


def _start(k: KernelBuilder) -> tuple[Edge, tuple[Value, Value] | None]:
    """Return the edge of a group or, in a convolution, its node and the range of its sorted edges."""
    group = k.b.let("which", GROUP + FIRST)
    if not k.direction.by:
        return Edge(group, group, group, group), None
    begin, end, node, target = (k.b.let(name, SEGMENTS[name][group]) for name in ("begin", "end", "node", "target"))
    return Edge(GROUP, node, target, GROUP), (begin, end)


@dataclass(frozen=True)
class _AtNode:
    """Registers that are used for all edges of a node.

    `x` and `gx` are empty if x belongs to the other end of the edges; `lost` has the rounding errors of compensated
    `sums`, by slot of z.
    """

    x: dict[str, Values]
    gx: Values
    sums: dict[int, Values]
    lost: dict[int, Values]


def _phase(k: KernelBuilder, phase: Phase, edge: Edge, segment: tuple[Value, Value] | None) -> None:
    if phase.blocks == 1:
        _block(k, _channels(k, phase, FIRST_CHANNEL), edge, segment)
        return
    with k.b.loop("channel", k.problem.irreps_in1[phase.i_in1].mul, step=k.lanes * phase.channels) as channel:
        # The fence keeps the compiler from advancing one pointer for each operand, which takes too many registers.
        first = k.b.declare("c", channel)
        k.b.add(st.Fence((first,)))
        _block(k, _channels(k, phase, first), edge, segment)


def _channels(k: KernelBuilder, phase: Phase, first: Value) -> ChannelBlock:
    """Return the block of channels that begins at `first`."""
    mul = k.problem.irreps_in1[phase.i_in1].mul
    local = [k.lane + q * k.lanes for q in range(phase.channels)]
    own = [k.b.let("own", n if first.op == "const" else first + n) for n in local]
    ends_within = phase.blocks * phase.channels * k.lanes > mul
    partial = [ends_within and (phase.blocks > 1 or (q + 1) * k.lanes > mul) for q in range(phase.channels)]
    valid = [lt(n, mul) if part else None for n, part in zip(own, partial)]
    channel = [k.b.let("u", minimum(n, mul - 1)) if part else n for n, part in zip(own, partial)]
    return ChannelBlock(phase, first, mul, own, channel, valid)


def _block(k: KernelBuilder, block: ChannelBlock, edge: Edge, segment: tuple[Value, Value] | None) -> None:
    """Write all edges of a group for one block of channels."""
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
            _edge(k, block, replace(edge, number=number, far=far), at_node)
    if gx:
        memory.store(k, block, "gx", k.place("gx", block.phase.i_in1, edge), gx)
    for n, total in sums.items():
        # Apply the final compensation.
        rest = [[value - less for value, less in zip(*pair)] for pair in zip(total, lost.get(n, []))]
        memory.store(k, block, k.direction.output, k.place(k.direction.output, n, edge), rest or total)


def _slots(k: KernelBuilder, phase: Phase) -> list[int]:
    """Return the slots of z to which the paths of a phase lead."""
    return list(dict.fromkeys(k.path(n).i_out for n in phase.paths))


def _load_x(
    k: KernelBuilder, block: ChannelBlock, edge: Edge, wanted: Callable[[str], bool]
) -> tuple[dict[str, Values], Values]:
    """Load the slot of x from all operands that are `wanted`, and return it with registers for gx if that is wanted."""
    slot = block.phase.i_in1
    dim = k.problem.irreps_in1[slot].ir.dim
    names = [name for name in k.direction.reading("x") if wanted(name)]
    x = {name: memory.load(k, block, name, k.place(name, slot, edge), dim) for name in names}
    return x, k.registers("gx", block, dim) if k.direction.gradients and wanted("gx") else []


def _edge(k: KernelBuilder, block: ChannelBlock, edge: Edge, at_node: _AtNode) -> None:
    """Write all paths of a phase for one edge."""
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
                PathWriter(k, block, edge, registers, n, table, FIRST_CHANNEL).write()
                continue
            own = couplings(k.problem, (n,))
            with k.b.loop("v", k.problem.irreps_in2[k.path(n).i_in2].mul) as v:
                # Add the sums of gy of the previous paths to memory before their couplings are overwritten.
                if single and gradients:
                    add_gy(k, table, edge, FIRST_CHANNEL)
                form_couplings(k, own, edge, v)
                PathWriter(k, block, edge, registers, n, own, v).write()
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
    k: KernelBuilder, block: ChannelBlock, edge: Edge, slot: int, at_node: _AtNode, x: dict[str, Values], gx: Values
) -> Registers:
    """Load gz of a slot of z, and return it with registers for the output of this edge or of the node."""
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


def _close_slot(k: KernelBuilder, block: ChannelBlock, edge: Edge, slot: int, at_node: _AtNode, output: Values) -> None:
    """Store the output of an edge, or add it to a compensated sum of the node."""
    if not output:
        return
    if k.kahan:
        _add_compensated(k, at_node.sums[slot], at_node.lost[slot], output)
    elif k.direction.by != "receiver":
        memory.store(k, block, k.direction.output, k.place(k.direction.output, slot, edge), output)


def _add_compensated(k: KernelBuilder, sums: Values, losses: Values, terms: Values) -> None:
    """Add terms to sums; the rounding error of an addition is subtracted from the next term (Kahan 1965)."""
    for row in zip(sums, losses, terms):
        for total, lost, term in zip(*row):
            part = k.b.let("part", term - lost)
            more = k.b.let("more", total + part)
            k.b.assign(lost, (more - total) - part)
            k.b.assign(total, more)


def _clear_unreached(k: KernelBuilder, edge: Edge) -> None:
    """Set the slots of z and gx that no path reaches to zero."""
    reached = {"z": {k.path(n).i_out for phase in k.plan.phases for n in phase.paths}}
    reached["x"] = {phase.i_in1 for phase in k.plan.phases}
    for name in [n for n in k.direction.writes if n[-1] in "xz" and not k.atomic]:
        for number, slot in enumerate(k.problem.irreps_of(name)):
            if number not in reached[name[-1]] and slot.dim:
                _clear(k, name, k.place(name, number, edge), slot.dim)


def _clear(k: KernelBuilder, name: str, base: Value, count: int) -> None:
    """Set elements of an operand to zero."""
    with k.b.loop("n", count, step=k.lanes) as n:
        k.b.store(k.array(name)[base + minimum(n + k.lane, count - 1)], k.zero)
