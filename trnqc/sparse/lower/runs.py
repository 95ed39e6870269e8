"""Innermost loops over the elements that one operand stores under a parent.

If their coordinates are consecutive, which shows by the first and the last of them, the loop is over a range, so that
all tensors are read and written by vectors. Long sums over other coordinates are added up in several variables, so that
one addition does not wait for the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from operator import add, mul

from trnqc.gen import Array, Value, const
from trnqc.gen import statements as st
from trnqc.gen.build import Builder
from trnqc.gen.values import cast, eq, fma, le, lt
from trnqc.sparse.lower.coiterate import Driver, at_position
from trnqc.sparse.lower.state import LoweringState, OperandArrays
from trnqc.sparse.lower.tensors import ProgramTensors
from trnqc.sparse.network.loops import NestLeaf, NestLoop

# Vectors of partial sums over a range, and variables of partial sums over other coordinates.
VECTORS, PARTS = 4, 4
# Terms from which on they are added to several variables.
LONG = 32

# Adds one turn of the loop, and the product of all operands where that of some is known.
Turn = Callable[[NestLoop, LoweringState], None]
Product = Callable[[NestLeaf, LoweringState, Value, Sequence[int]], None]


def is_row_target(tensors: ProgramTensors, node: NestLoop) -> bool:
    """Whether the loop adds to consecutive elements of an array, if the coordinates are consecutive."""
    target = tensors.target(node.members[0])
    return tensors.is_array(target) and tensors.order(target)[-1:] == (node.index,)


def contiguous(tensors: ProgramTensors, node: NestLoop, driver: Driver) -> list[int] | None:
    """Return the operands that have the index, if all are contiguous where the driver's coordinates are consecutive."""
    operand, level = driver
    if level + 1 < len(operand.format.order) or not isinstance(node.body[0], NestLeaf) or len(node.members) > 1:
        return None
    having = [t for t in tensors.nest.assignments[node.members[0]].operands if node.index in tensors.order(t)]
    if operand.format.ones or not all(t == operand.number or tensors.is_row(t, node.index) for t in having):
        return None
    return having


def over_row(
    b: Builder, tensors: ProgramTensors, node: NestLoop, state: LoweringState, driver: Driver, turn: Turn
) -> None:
    """Add a loop that adds to elements of a row: over a range, or over the stored coordinates."""
    operand, level = driver
    begin, end, first, consecutive = _range(b, operand, level, state)
    with b.when(lt(begin, end)):
        with b.when(consecutive()):
            start = b.let("first", first())
            with b.loop("e", end - begin) as e:
                x = b.let(b.fresh(node.index, "i64"), start + e)
                turn(node, state.bind(node.index, x).move(operand.number, level + 1, begin + e))
        with b.otherwise(), b.loop(f"p{operand.number}", end, begin=begin) as p:
            turn(node, at_position(b, node.index, state, driver, p))


def summed(
    b: Builder,
    tensors: ProgramTensors,
    node: NestLoop,
    state: LoweringState,
    driver: Driver,
    target: int,
    turn: Turn,
    product: Product,
) -> None:
    """Add a loop that adds to the variable `state.sums[target]`."""
    operand, level = driver
    factors = contiguous(tensors, node, driver)
    begin, end, first, consecutive = _range(b, operand, level, state)
    # Most rows of sparse matrices are short. One loop is then the fastest: its end is all that has to be predicted.
    rest, length = b.declare("rest", begin), b.let("length", end - begin)
    if factors is not None:
        with b.when(le(tensors.lanes, length)), b.when(consecutive()):
            start = b.let("first", first())
            total = _range_sum(b, tensors, node.index, state, driver, factors, (start, begin, length))
            product(NestLeaf(node.members[0]), state, total, factors)
            b.assign(rest, end)
    with b.when(le(LONG, end - rest)):
        _in_parts(b, node, state, driver, target, turn, rest, length)
    with b.loop(f"p{operand.number}", end, begin=rest) as p:
        turn(node, at_position(b, node.index, state, driver, p))


def _range(
    b: Builder, operand: OperandArrays, level: int, state: LoweringState
) -> tuple[Value, Value, Callable[[], Value], Callable[[], Value]]:
    """Return the first position, the one after the last, the first coordinate, and whether they are consecutive."""
    begin, end = (b.let("bound", x) for x in operand.segment(level, state.at[operand.number][1]))
    stored = operand.coordinates(level)

    def first() -> Value:
        return cast(stored[begin], "i64")

    return begin, end, first, lambda: eq(cast(stored[end - 1], "i64") - first(), end - begin - 1)


def _range_sum(
    b: Builder,
    tensors: ProgramTensors,
    index: str,
    state: LoweringState,
    driver: Driver,
    factors: Sequence[int],
    of: tuple[Value, Value, Value],
) -> Value:
    """Return the sum of products of contiguous operands over a range.

    of: the first coordinate, the position of its element in the driver, and the length of the range.
    """
    (first, begin, length), lanes = of, tensors.lanes
    sums = b.array("dot", "f64", (VECTORS,), lanes=True)
    for n in range(VECTORS):
        b.store(sums[n], 0.0)

    def rows(e: Value) -> list[tuple[Array, Value]]:
        own = {driver[0].number: (driver[0].values, begin + e)}
        return [own.get(t) or tensors.row(t, index, first + e, state) for t in factors]

    def add_vector(n: int, e: Value) -> None:
        parts = []
        for t, (array, at) in zip(factors, rows(e)):
            part = b.array(f"v{t}", "f64", (1,), lanes=True)
            b.add(st.Unpack(part, const(0, "i64"), array, at, 1, 1, lanes))
            parts.append(part[0])
        *others, last = parts
        b.store(sums[n], fma(reduce(mul, others), last, sums[n]) if others else sums[n] + last)

    several, single = (b.let("whole", length // width * width) for width in (VECTORS * lanes, lanes))
    with b.loop("e", several, step=VECTORS * lanes) as e:
        for n in range(VECTORS):
            add_vector(n, e + n * lanes)
    with b.loop("e", single, begin=several, step=lanes) as e:
        add_vector(0, e)
    shared = b.array("total", "f64", (1,), "shared")
    b.store(shared[0], 0.0)
    b.accumulate(shared[0], (sums[0] + sums[1]) + (sums[2] + sums[3]))
    total = b.declare("sum", shared[0])
    with b.loop("e", length, begin=single) as e:
        b.assign(total, total + reduce(mul, [array[at] for array, at in rows(e)]))
    return total


def _in_parts(
    b: Builder,
    node: NestLoop,
    state: LoweringState,
    driver: Driver,
    target: int,
    turn: Turn,
    begin: Value,
    length: Value,
) -> None:
    """Add a loop from a position on, with consecutive terms in different variables, and move it behind the last term.

    Fewer than `PARTS` terms are left.
    """
    (operand, level), total = driver, state.sums[target]
    whole = b.let("whole", begin + length // PARTS * PARTS)
    parts = [b.declare("part", const(0.0)) for _ in range(PARTS)]
    with b.loop(f"p{operand.number}", whole, begin=begin, step=PARTS) as p:
        for n, part in enumerate(parts):
            place = b.let("place", p + n) if n else p
            x = b.let(b.fresh(node.index, "i64"), cast(operand.coordinates(level)[place], "i64"))
            inner = replace(state, sums={**state.sums, target: part}).bind(node.index, x)
            turn(node, inner.move(operand.number, level + 1, place))
    b.assign(total, total + reduce(add, parts))
    b.assign(begin, whole)
