"""An innermost loop that sums products of contiguous operands: by vectors, whose lanes are added at its end.

The sums of a few vectors at a time do not wait for one another.
"""

from __future__ import annotations

from functools import reduce

from trnqc.gen import Array, Value, const
from trnqc.gen import statements as st
from trnqc.gen.values import fma
from trnqc.sparse.lower.positions import Body, Places, State
from trnqc.sparse.lower.workspace import Space
from trnqc.sparse.network.loops import Leaf, Loop

APART = 4


class Dots:
    """Recognises such loops and writes them. lanes: doubles of a vector."""

    def __init__(self, places: Places, spaces: dict[int, Space], lanes: int) -> None:
        self.places, self.spaces, self.lanes, self.nest = places, spaces, lanes, places.nest

    def factors(self, node: Loop) -> list[int] | None:
        """Operands that such a loop multiplies; None for any other loop."""
        index = node.index
        if not isinstance(node.body[0], Leaf) or len(node.body) > 1 or index not in self.places.constants:
            return None
        if self.places.extents[index] < self.lanes or index in self.nest.indices[self._target(node)]:
            return None
        found = [t for t in self.nest.assignments[node.members[0]].operands if index in self.nest.indices[t]]
        return found if all(self._contiguous(t, index) for t in found) else None

    def _target(self, node: Loop) -> int:
        return self.nest.assignments[node.members[0]].target

    def _contiguous(self, tensor: int, index: str) -> bool:
        if tensor in self.spaces:
            spec = self.spaces[tensor].spec
            return spec.space == "dense" and spec.order[-1] == index
        f = self.nest.formats[tensor]
        return f.order[-1] == index and f.kinds[-1] == "dense" and not f.ones

    def summed(self, node: Loop, factors: list[int], state: State) -> tuple[Body, Value]:
        """What computes the sum, and where it is then."""
        extent, stride = self.places.extents[node.index], APART * self.lanes
        held = Array(self.places.fresh("dot").attr, "f64", (APART,), "local", lanes=True)
        total = Array(self.places.fresh("total").attr, "f64", (1,), "shared")
        start, whole = self.places.fresh("start"), extent // stride * stride
        body: Body = [st.DeclareArray(held), *(st.store(held[n], 0.0) for n in range(APART))]
        if whole:
            turn = [
                self._added(node, factors, state, held[n], start + n * self.lanes, self.lanes) for n in range(APART)
            ]
            body.append(st.loop(start, whole, *turn, step=stride))
        for n, at in enumerate(range(whole, extent, self.lanes)):
            lanes = min(self.lanes, extent - at)
            body += self._added(node, factors, state, held[n], const(at, "i64"), lanes)
        together = (held[0] + held[1]) + (held[2] + held[3])
        return [*body, st.DeclareArray(total), st.store(total[0], 0.0), st.accumulate(total[0], together)], total[0]

    def _added(self, node: Loop, factors: list[int], state: State, held: Value, at: Value, lanes: int) -> Body:
        body: Body = []
        parts: list[Value] = []
        for t in factors:
            part = Array(self.places.fresh(f"v{t}").attr, "f64", (1,), "local", lanes=True)
            body += [
                st.DeclareArray(part),
                st.Unpack(part, const(0, "i64"), *self._row(t, node, state, at), 1, 1, lanes),
            ]
            parts.append(part[0])
        first = reduce(lambda a, b: a * b, parts[:-1]) if len(parts) > 1 else None
        return [*body, st.store(held, held + parts[-1] if first is None else fma(first, parts[-1], held))]

    def _row(self, tensor: int, node: Loop, state: State, at: Value) -> tuple[Array, Value]:
        """Where an operand's elements begin from `at` on."""
        if tensor in self.spaces:
            space = self.spaces[tensor]
            return space.array, self.places.offset(space.spec.order, {**state.bound, node.index: at})
        operand = self.places.operands[tensor]
        level, position = state.at[tensor]
        return operand.values, position * self.places.extent(node.index) + at if level else at
