"""An innermost loop that sums products of contiguous operands by vectors, whose lanes are added after the loop.

Several vectors hold partial sums, so that consecutive additions do not depend on one another.
"""

from __future__ import annotations

from functools import reduce
from operator import mul

from trnqc.gen import Value, const
from trnqc.gen import statements as st
from trnqc.gen.build import Builder
from trnqc.gen.values import fma
from trnqc.sparse.lower.state import LoweringState
from trnqc.sparse.lower.tensors import ProgramTensors
from trnqc.sparse.network.loops import NestLeaf, NestLoop

# Number of vectors of partial sums.
SUMS = 4


def contiguous_factors(tensors: ProgramTensors, node: NestLoop) -> list[int] | None:
    """Return the operands that such a loop multiplies; None for any other loop."""
    index, nest = node.index, tensors.nest
    if not isinstance(node.body[0], NestLeaf) or len(node.body) > 1 or index not in tensors.extents.constants:
        return None
    if tensors.extents.sizes[index] < tensors.lanes or index in nest.indices[tensors.target(node.members[0])]:
        return None
    factors = [t for t in nest.assignments[node.members[0]].operands if index in nest.indices[t]]
    return factors if all(tensors.is_row(t, index) for t in factors) else None


def vector_sum(b: Builder, tensors: ProgramTensors, index: str, factors: list[int], state: LoweringState) -> Value:
    """Return the sum over an index of the product of contiguous operands, given by their numbers `factors`."""
    extent, lanes = tensors.extents.sizes[index], tensors.lanes
    stride = SUMS * lanes
    whole = extent // stride * stride
    sums = b.array("dot", "f64", (SUMS,), lanes=True)
    for n in range(SUMS):
        b.store(sums[n], 0.0)

    def add(n: int, at: Value, used: int) -> None:
        parts = []
        for t in factors:
            part = b.array(f"v{t}", "f64", (1,), lanes=True)
            b.add(st.Unpack(part, const(0, "i64"), *tensors.row(t, index, at, state), 1, 1, used))
            parts.append(part[0])
        *others, last = parts
        b.store(sums[n], fma(reduce(mul, others), last, sums[n]) if others else sums[n] + last)

    if whole:
        with b.loop("start", whole, step=stride) as start:
            for n in range(SUMS):
                add(n, start + n * lanes, lanes)
    for n, at in enumerate(range(whole, extent, lanes)):
        add(n, const(at, "i64"), min(lanes, extent - at))
    total = b.array("total", "f64", (1,), "shared")
    b.store(total[0], 0.0)
    b.accumulate(total[0], (sums[0] + sums[1]) + (sums[2] + sums[3]))
    return total[0]
