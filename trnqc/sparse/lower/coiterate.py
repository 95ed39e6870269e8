"""Loops over an index: over all of its values, the values that one operand stores, or those that several store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce

from trnqc.gen import Value, Var
from trnqc.gen.build import Builder
from trnqc.gen.values import both, cast, eq, lt, maximum, minimum, select
from trnqc.sparse.lower.state import ONE, ZERO, Extents, LoweringState, OperandArrays

# An operand and the number of one of its levels, over whose coordinates a loop runs.
Driver = tuple[OperandArrays, int]

# Positions beyond which a cursor that is behind searches for its place instead of taking single steps.
NEAR = 8


@contextmanager
def over(
    b: Builder, extents: Extents, index: str, state: LoweringState, drivers: Sequence[Driver]
) -> Iterator[LoweringState]:
    """Add a loop over the values of an index that all drivers store under their present positions.

    Drivers are compressed levels over the index; without any, the loop is over all values. The block gets the state
    inside.
    """
    if len(drivers) > 1:
        with _common(b, index, state, drivers) as inner:
            yield inner
    elif drivers:
        operand, level = drivers[0]
        begin, end = operand.segment(level, state.at[operand.number][1])
        with b.loop(f"p{operand.number}", end, begin=begin) as p:
            yield at_position(b, index, state, drivers[0], p)
    else:
        with b.loop(Var(index, "i64"), extents.value(index)) as x:
            yield state.bind(index, x)


def at_position(b: Builder, index: str, state: LoweringState, driver: Driver, position: Value) -> LoweringState:
    """Return the state in which the index has the value that an operand stores at a position of its level."""
    operand, level = driver
    x = b.let(Var(index, "i64"), cast(operand.coordinates(level)[position], "i64"))
    return state.bind(index, x).move(operand.number, level + 1, position)


@contextmanager
def _common(b: Builder, index: str, state: LoweringState, drivers: Sequence[Driver]) -> Iterator[LoweringState]:
    """Add a merge of sorted coordinates: a driver far behind the largest coordinate skips to it in growing strides."""
    x = Var(index, "i64")
    cursors: list[tuple[OperandArrays, int, Value, Value]] = []
    inner = state.bind(index, x)
    for operand, level in drivers:
        begin, end = operand.segment(level, state.at[operand.number][1])
        p = b.declare(f"p{operand.number}", begin)
        cursors.append((operand, level, p, b.let(f"end{operand.number}", end)))
        inner = inner.move(operand.number, level + 1, p)
    with b.loop_while(reduce(both, [lt(p, last) for *_, p, last in cursors])):
        coordinates = [
            b.let(f"c{operand.number}", cast(operand.coordinates(level)[p], "i64")) for operand, level, p, _ in cursors
        ]
        b.let(x, reduce(maximum, coordinates))
        with b.when(reduce(both, [eq(c, x) for c in coordinates])):
            yield inner
            for *_, p, _ in cursors:
                b.assign(p, p + 1)
        with b.otherwise():
            for (operand, level, p, last), c in zip(cursors, coordinates):
                _advance(b, operand, level, (p, last), c, x)


def _advance(b: Builder, operand: OperandArrays, level: int, segment: tuple[Value, Value], c: Value, x: Value) -> None:
    """Move a cursor towards x: by one position if its coordinate c is smaller, further if x is more than NEAR away.

    Most steps are short, and choosing them without a branch is faster than predicting which cursor moves.
    """
    (p, last), stored = segment, operand.coordinates(level)

    def below(place: Value) -> Value:
        return both(lt(place, last), lt(cast(stored[minimum(place, last - 1)], "i64"), x))

    with b.when(below(p + NEAR)):
        b.assign(p, p + NEAR)
        step = b.declare("step", ONE)
        with b.loop_while(below(p + step)):
            b.assign(p, p + step)
            b.assign(step, step + step)
        with b.loop_while(lt(ZERO, step)):
            with b.when(below(p + step)):
                b.assign(p, p + step)
            b.assign(step, step // 2)
        b.assign(p, p + 1)
    with b.otherwise():
        b.assign(p, p + select(lt(c, x), ONE, ZERO))
