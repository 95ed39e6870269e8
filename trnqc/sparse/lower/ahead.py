"""Rows of large factors that stored coordinates choose, asked for some turns before they are read.

A processor looks ahead of a load by as many instructions as it can hold. If the loops inside add to many elements, that
is less than one turn, and every row of a factor beyond the caches is waited for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod

from trnqc.gen import Value
from trnqc.gen.build import Builder
from trnqc.gen.values import cast, minimum
from trnqc.sparse.lower.coiterate import Driver
from trnqc.sparse.lower.state import ONE, ZERO, LoweringState, OperandArrays
from trnqc.sparse.lower.tensors import ProgramTensors

# Turns after which a row is read.
AHEAD = 16
# Elements of a factor from which its rows are asked for, 16 MiB, and of the longest such row; those of a cache line.
LEAST, LONGEST, LINE = 2**21, 64, 8


def ask_for_rows(
    b: Builder, tensors: ProgramTensors, members: Iterable[int], index: str, state: LoweringState, driver: Driver
) -> None:
    """Add the statements in a turn of a loop over the coordinates of `index` that the driver stores.

    members: the assignments inside the loop.
    """
    rows = [] if tensors.concurrent else list(_rows(tensors, members, index, state))
    if not rows:
        return
    operand, level = driver
    place = minimum(state.at[operand.number][1] + AHEAD, _stored(operand, level) - 1)
    x = b.let(b.fresh("ahead", "i64"), cast(operand.coordinates(level)[place], "i64"))
    for tensor, length in rows:
        order = tensors.order(tensor)
        within = order[: order.index(index)]
        bound = {**dict.fromkeys(order, ZERO), **{i: state.bound[i] for i in within}, index: x}
        start = b.let("row", tensors.extents.offset(order, bound))
        # Rows need not begin with a line.
        for element in (*range(0, length, LINE), length - 1):
            b.prefetch(tensors.array(tensor)[start + element])


def _rows(
    tensors: ProgramTensors, members: Iterable[int], index: str, state: LoweringState
) -> Iterator[tuple[int, int]]:
    """Yield (operand, length of a row) of factors of which a turn of the loop reads a row."""
    sizes = tensors.extents.sizes
    for tensor in sorted({t for k in members for t in tensors.nest.assignments[k].operands}):
        order = tensors.order(tensor) if tensor < len(tensors.operands) else ()
        if index not in order or not tensors.is_array(tensor) or prod(sizes[i] for i in order) < LEAST:
            continue
        outer, inner = order[: order.index(index)], order[order.index(index) + 1 :]
        length = prod(sizes[i] for i in inner)
        if inner and length <= LONGEST and set(outer) <= set(state.bound) and not set(inner) & set(state.bound):
            yield tensor, length


def _stored(operand: OperandArrays, level: int) -> Value:
    """Return the number of positions of a level."""
    count: Value = ONE
    for n in range(level + 1):
        dense = operand.format.kinds[n] == "dense"
        count = count * operand.extents.value(operand.format.order[n]) if dense else operand.positions(n)[count]
    return count
