"""Where a program stands in its tensors: which indices have a value, and how far down the levels of each operand.

An operand's level is resolved as soon as its index and all levels above have been: a dense one by arithmetic, a
compressed one by the loop that runs over it or, in any other loop, by a search, without which nothing is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen.values import cast, eq, lt
from trnqc.sparse.network.nest import Format, Nest

if TYPE_CHECKING:
    from trnqc.sparse.lower.tile import Tile

Body = list[st.Statement]
ZERO = const(0, "i64")
ONE = const(1, "i64")


def coordinate_type(extent: int) -> str:
    """Type of stored coordinates below this extent."""
    return "i32" if extent < 2**31 else "i64"


@dataclass(frozen=True)
class Operand:
    """The arrays of a stored tensor in a program."""

    number: int
    format: Format
    extents: Mapping[str, int]

    def positions(self, level: int) -> Array:
        return Array(f"pos{self.number}_{self.format.order[level]}", "i64")

    def coordinates(self, level: int) -> Array:
        index = self.format.order[level]
        return Array(f"idx{self.number}_{index}", coordinate_type(self.extents[index]))

    @property
    def values(self) -> Array:
        return Array(f"val{self.number}", "f64")

    def segment(self, level: int, parent: Value) -> tuple[Value, Value]:
        """Begin and end of a parent's positions."""
        return self.positions(level)[parent], self.positions(level)[parent + 1]


@dataclass(frozen=True)
class State:
    """bound: values of the indices of the loops around. at: levels resolved and the position there, by operand.

    sums: variables that gather what is added to a target, by tensor; seen: whether anything was. entry: of the list
    that a loop around runs over, by the tensor whose list it is: where its value lies. tile: the stretch of a row that
    the loops inside add to.
    """

    bound: Mapping[str, Value] = field(default_factory=dict)
    at: Mapping[int, tuple[int, Value]] = field(default_factory=dict)
    sums: Mapping[int, Value] = field(default_factory=dict)
    seen: Mapping[int, Value] = field(default_factory=dict)
    entry: Mapping[int, Value] = field(default_factory=dict)
    tile: Tile | None = None

    def bind(self, index: str, value: Value) -> State:
        return replace(self, bound={**self.bound, index: value})

    def move(self, tensor: int, depth: int, position: Value) -> State:
        return replace(self, at={**self.at, tensor: (depth, position)})

    def summed(self, tensor: int, variable: Value) -> State:
        return replace(self, sums={**self.sums, tensor: variable})

    def tiled(self, tile: Tile) -> State:
        return replace(self, tile=tile)

    def listed(self, tensor: int, place: Value) -> State:
        return replace(self, entry={**self.entry, tensor: place})


class Places:
    """Names, extents and operands of one program.

    constants: indices whose extents stand in the text as numbers; the others are arguments, so that one text serves
    tensors of any size.
    """

    def __init__(self, nest: Nest, constants: frozenset[str]) -> None:
        self.nest, self.extents, self.constants = nest, nest.network.extents, constants
        self.count = len(nest.network.inputs)
        self.operands = [Operand(t, f, self.extents) for t, f in enumerate(nest.formats[:-1])]
        self._numbers: dict[str, int] = {}

    def fresh(self, stem: str, dtype: str = "i64") -> Value:
        """A variable with a name of its own."""
        number = self._numbers[stem] = self._numbers.get(stem, 0) + 1
        return Var(f"{stem}_{number}", dtype)

    def extent(self, index: str) -> Value:
        return const(self.extents[index], "i64") if index in self.constants else Var(f"n_{index}", "i64")

    def offset(self, order: tuple[str, ...], bound: Mapping[str, Value]) -> Value:
        """The row-major place of the bound coordinates in an array over `order`."""
        place = ZERO
        for level, index in enumerate(order):
            place = place * self.extent(index) + bound[index] if level else bound[index]
        return place

    def start(self) -> State:
        return State(at=dict.fromkeys(range(self.count), (0, ZERO)))

    def next_level(self, tensor: int, state: State, index: str) -> int | None:
        """The level of `index` in an operand if it is the next to be resolved and compressed."""
        level, _ = state.at[tensor]
        f = self.operands[tensor].format
        return level if f.order[level : level + 1] == (index,) and f.kinds[level] == "compressed" else None

    def advance(self, tensors: list[int], state: State, then: Callable[[State], Body]) -> Body:
        """`then` where all levels that can be are resolved; nothing where a coordinate is not stored."""
        for position, tensor in enumerate(tensors):
            operand = self.operands[tensor]
            level, at = state.at[tensor]
            order = operand.format.order
            while level < len(order) and order[level] in state.bound:
                x = state.bound[order[level]]
                if operand.format.kinds[level] == "compressed":
                    found = partial(self._go_on, tensors[position:], state, level + 1, then)
                    return self._found(operand, level, at, x, found)
                at = x if level == 0 else at * self.extent(order[level]) + x
                level += 1
            state = state.move(tensor, level, at)
        return then(state)

    def _go_on(self, tensors: list[int], state: State, depth: int, then: Callable[[State], Body], found: Value) -> Body:
        return self.advance(tensors, state.move(tensors[0], depth, found), then)

    def _found(self, operand: Operand, level: int, parent: Value, x: Value, then: Callable[[Value], Body]) -> Body:
        """A search in a parent's coordinates by halves."""
        begin, end = operand.segment(level, parent)
        low, high, last, middle = (self.fresh(f"{stem}{operand.number}") for stem in ("p", "high", "end", "mid"))
        stored = operand.coordinates(level)
        halve = st.If(lt(cast(stored[middle], "i64"), x), st.block(st.Assign(low, middle + 1)),
                      st.block(st.Assign(high, middle)))  # fmt: skip
        return [
            st.Let(last, end),
            st.Declare(low, begin),
            st.Declare(high, last),
            st.While(lt(low, high), st.block(st.Let(middle, low + (high - low) // 2), halve)),
            st.If(lt(low, last), st.block(st.If(eq(cast(stored[low], "i64"), x), st.block(then(low))))),
        ]
