"""Loads and stores of slots between memory and the registers of the lanes, for one block of channels.

In the layout ir_mul, neighbouring lanes access neighbouring elements of one component. In the layout mul_ir, a slot is
copied through the array `stage` in shared memory, so that neighbouring lanes access neighbouring elements there too.
Lanes beyond the last channel repeat it: they store the same values at the same place.
"""

from __future__ import annotations

from trnqc.cg.cuda.kernel import ChannelBlock, KernelBuilder, Values
from trnqc.gen import Value
from trnqc.gen.values import lt, minimum, select


def load(k: KernelBuilder, block: ChannelBlock, name: str, base: Value, dim: int) -> Values:
    """Load the channels of a block of operand `name` from the slot at element `base`, `dim` components a channel."""
    b, array = k.b, k.array(name)
    if not _staged(k, dim):
        step = block.mul if dim > 1 else 0
        return [[b.let(name, array[base + (u + i * step)]) for i in range(dim)] for u in block.channel]
    stage = k.shared["stage"]
    for r, (_, place) in enumerate(_neighbours(k, block, dim)):
        b.store(stage[k.lane + r * k.lanes], array[base + place])
    b.barrier()
    rows = [u if block.first.op == "const" else u - block.first for u in block.channel]
    values = [[b.let(name, stage[row * dim + i]) for i in range(dim)] for row in rows]
    b.barrier()
    return values


def store(k: KernelBuilder, block: ChannelBlock, name: str, base: Value, values: Values) -> None:
    """Store the channels of a block; sums over the edges of a node are added atomically if the kernel is atomic."""
    b, array, dim = k.b, k.array(name), len(values[0])
    adds = k.atomic and k.at_node(name)
    if not _staged(k, dim):
        step = block.mul if dim > 1 else 0
        for u, valid, own in zip(block.channel, block.valid, values):
            for i, value in enumerate(own):
                _put(k, array[base + (u + i * step)], value, valid, adds)
        return
    stage = k.shared["stage"]
    for q, own in enumerate(values):
        for i, value in enumerate(own):
            b.store(stage[(k.lane + q * k.lanes) * dim + i], value)
    b.barrier()
    for r, (local, place) in enumerate(_neighbours(k, block, dim)):
        unclamped = k.lane + r * k.lanes + (0 if block.first.op == "const" else block.first * dim)
        _put(k, array[base + place], b.let("out", stage[local]), lt(unclamped, block.mul * dim), adds)
    b.barrier()


def _staged(k: KernelBuilder, dim: int) -> bool:
    """Whether a slot is copied through `stage`."""
    return k.problem.layout == "mul_ir" and dim > 1


def _neighbours(k: KernelBuilder, block: ChannelBlock, dim: int) -> list[tuple[Value, Value]]:
    """Return (position in `stage`, position in the slot) of a lane's elements if lanes access neighbouring elements."""
    places, phase, first = [], block.phase, block.first
    for r in range(phase.channels * dim):
        local = k.lane + r * k.lanes
        place = local if first.op == "const" else first * dim + local
        if phase.blocks * phase.channels * k.lanes > block.mul:
            place = k.b.let("clamped", minimum(place, block.mul * dim - 1))
            local = place if first.op == "const" else place - first * dim
        places.append((local, place))
    return places


def _put(k: KernelBuilder, element: Value, value: Value, valid: Value | None, adds: bool) -> None:
    if adds:
        k.b.accumulate(element, value if valid is None else select(valid, value, k.zero))
    else:
        k.b.store(element, value)
