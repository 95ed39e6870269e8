"""Slots of z that stay in shared memory during all phases of a kernel, as [channel, component] arrays.

The number of channels is padded to a multiple of the number of lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from trnqc.cg.cuda.kernel import Edge, KernelBuilder
from trnqc.gen import Value, const
from trnqc.gen.values import lt, minimum, select


def place(k: KernelBuilder, slot: int, channel: Value) -> Value:
    """Return the element at which a channel of a slot begins in shared memory."""
    irreps = k.problem.irreps_out
    before = sum(k.plan.padded(n) * irreps[n].ir.dim for n in k.plan.resident if n < slot)
    return k.b.let("kept", channel * irreps[slot].ir.dim + before)


def begin(k: KernelBuilder, edge: Edge) -> None:
    """Set the slots of the output to zero and, in a batch, load the slots of gz."""
    out = f"{k.direction.output}_kept"
    if out in k.shared:
        size = k.plan.shared[out]
        with k.b.loop("n", size, step=k.lanes) as n:
            k.b.store(k.shared[out][minimum(n + k.lane, size - 1)], k.zero)
        k.b.barrier()
    if not k.direction.by and "gz" in k.direction.reads:
        load(k, k.plan.resident, edge)


def load(k: KernelBuilder, slots: Iterable[int], edge: Edge) -> None:
    """Load slots of gz from memory into shared memory."""
    slots = list(slots)
    if slots:
        k.b.barrier()
    for slot in slots:
        _each(k, slot, "gz", edge, lambda element, kept: k.b.store(kept, element))
    if slots:
        k.b.barrier()


def end(k: KernelBuilder, edge: Edge) -> None:
    """Store the slots of the output in memory, or add them atomically."""
    out = k.direction.output
    if f"{out}_kept" not in k.shared:
        return
    put = k.b.accumulate if k.atomic and k.at_node(out) else k.b.store
    k.b.barrier()
    for slot in k.plan.resident:
        _each(k, slot, out, edge, put)


def _each(k: KernelBuilder, slot: int, name: str, edge: Edge, do: Callable[[Value, Value], None]) -> None:
    """Call `do(element in memory, element in shared memory)` in a loop over the elements of a slot."""
    mul, d = k.problem.irreps_out[slot].mul, k.problem.irreps_out[slot].ir.dim
    base, start = k.place(name, slot, edge), place(k, slot, const(0, "i64"))
    kept, size = k.shared[f"{name}_kept"], mul * d
    with k.b.loop("n", size, step=k.lanes) as n:
        at = k.b.let("at", minimum(n + k.lane, size - 1))
        inside = at if k.problem.layout == "mul_ir" or d == 1 else at % mul * d + at // mul
        value = kept[start + inside]
        if k.atomic and name == k.direction.output:
            value = select(lt(n + k.lane, size), value, k.zero)
        do(k.array(name)[base + at], value)
