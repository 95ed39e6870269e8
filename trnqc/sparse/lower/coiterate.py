"""A loop over an index: all of its values, those that one operand stores, or those that several store in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from trnqc.gen import Value, Var
from trnqc.gen import statements as st
from trnqc.gen.values import both, cast, eq, lt, maximum, minimum
from trnqc.sparse.lower.positions import ONE, ZERO, Body, Operand, Places, State

Then = Callable[[State], Body]
Driver = tuple[int, int]  # an operand and its level


def over(places: Places, index: str, state: State, drivers: Sequence[Driver], then: Then) -> Body:
    """`then` for every value of the index that all drivers store under their present positions."""
    if len(drivers) > 1:
        return _common(places, index, state, drivers, then)
    if drivers:
        tensor, level = drivers[0]
        p = places.fresh(f"p{tensor}")
        begin, end = places.operands[tensor].segment(level, state.at[tensor][1])
        return [st.loop(p, end, at_position(places, index, state, drivers[0], p, then), begin=begin)]
    x = Var(index, "i64")
    return [st.loop(x, places.extent(index), then(state.bind(index, x)))]


def at_position(places: Places, index: str, state: State, driver: Driver, position: Value, then: Then) -> Body:
    """`then` for the one value of the index that an operand stores at a position of its level."""
    tensor, level = driver
    x = Var(index, "i64")
    stored = places.operands[tensor].coordinates(level)[position]
    return [st.Let(x, cast(stored, "i64")), *then(state.bind(index, x).move(tensor, level + 1, position))]


def _common(places: Places, index: str, state: State, drivers: Sequence[Driver], then: Then) -> Body:
    """All drivers go up together; one that lies behind the largest coordinate skips to it in growing strides."""
    x = Var(index, "i64")
    begins: Body = []
    cursors: list[tuple[Operand, int, Value, Value, Value]] = []
    inner = state.bind(index, x)
    for tensor, level in drivers:
        operand = places.operands[tensor]
        p, last, c = (places.fresh(f"{stem}{tensor}") for stem in ("p", "end", "c"))
        begin, end = operand.segment(level, state.at[tensor][1])
        begins += [st.Declare(p, begin), st.Let(last, end)]
        cursors.append((operand, level, p, last, c))
        inner = inner.move(tensor, level + 1, p)
    read = [st.Let(c, cast(o.coordinates(level)[p], "i64")) for o, level, p, _, c in cursors]
    largest = reduce(maximum, [c for *_, c in cursors])
    meet = reduce(both, [eq(c, x) for *_, c in cursors])
    step = [st.Assign(p, p + 1) for _, _, p, _, _ in cursors]
    behind = [
        st.If(lt(c, x), st.block(_skipped(places, operand, level, p, last, x)))
        for operand, level, p, last, c in cursors
    ]
    going = reduce(both, [lt(p, last) for _, _, p, last, _ in cursors])
    body = st.block(read, st.Let(x, largest), st.If(meet, st.block(then(inner), step), st.block(behind)))
    return [*begins, st.While(going, body)]


def _skipped(places: Places, operand: Operand, level: int, p: Value, last: Value, x: Value) -> Body:
    """To the first position whose coordinate is not below x; the present one's is."""
    step = places.fresh("step")
    stored = operand.coordinates(level)

    def below(place: Value) -> Value:
        return both(lt(place, last), lt(cast(stored[minimum(place, last - 1)], "i64"), x))

    grow = st.While(below(p + step), st.block(st.Assign(p, p + step), st.Assign(step, step + step)))
    halve = [st.If(below(p + step), st.block(st.Assign(p, p + step))), st.Assign(step, step // 2)]
    far = [st.Declare(step, ONE), grow, st.While(lt(ZERO, step), st.block(halve)), st.Assign(p, p + 1)]
    return [st.Assign(p, p + 1), st.If(below(p), st.block(far))]
