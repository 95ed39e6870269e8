"""The variables known at one point of a program: values of indices, positions in operands, sums in progress.

They are immutable: a loop or a search returns a new `LoweringState` for the statements inside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property

from trnqc.gen import Array, Value, Var, const
from trnqc.gen.arrays import row_major
from trnqc.gen.build import Builder
from trnqc.gen.values import cast, eq, lt
from trnqc.sparse.network.loops import NestLoop
from trnqc.sparse.network.nest import Format
from trnqc.sparse.network.network import Indices

ZERO, ONE = const(0, "i64"), const(1, "i64")


@dataclass(frozen=True)
class Extents:
    """The extents of all indices in a program: numbers for the indices in `constants`, arguments for all others.

    One program then serves tensors of any size.
    """

    sizes: Mapping[str, int]
    constants: frozenset[str]

    def argument(self, index: str) -> str:
        """Return the name of the argument for the extent of an index."""
        return f"n_{index}"

    def value(self, index: str) -> Value:
        """Return the extent of an index, as a number or as an argument."""
        return const(self.sizes[index], "i64") if index in self.constants else Var(self.argument(index), "i64")

    def coordinate_type(self, index: str) -> str:
        """Return the type in which coordinates of an index are stored."""
        return "i32" if self.sizes[index] < 2**31 else "i64"

    def offset(self, order: Indices, bound: Mapping[str, Value]) -> Value:
        """Return the row-major position of an element in an array over `order`. bound: values of the indices."""
        return row_major([bound[i] for i in order], [self.value(i) for i in order[1:]]) if order else ZERO


@dataclass(frozen=True)
class OperandArrays:
    """The arrays of an operand in a program: positions and coordinates of compressed levels, and values."""

    number: int
    format: Format
    extents: Extents

    def positions(self, level: int) -> Array:
        return Array(f"pos{self.number}_{self.format.order[level]}", "i64")

    def coordinates(self, level: int) -> Array:
        index = self.format.order[level]
        return Array(f"idx{self.number}_{index}", self.extents.coordinate_type(index))

    @cached_property
    def values(self) -> Array:
        return Array(f"val{self.number}", "f64")

    @cached_property
    def level_names(self) -> tuple[tuple[str, str], ...]:
        """The names of the arrays of positions and coordinates of each level, which exist if it is compressed."""
        levels = range(len(self.format.order))
        return tuple((self.positions(level).name, self.coordinates(level).name) for level in levels)

    @property
    def arrays(self) -> tuple[Array, ...]:
        levels = (level for level, kind in enumerate(self.format.kinds) if kind == "compressed")
        return (*(array for n in levels for array in (self.positions(n), self.coordinates(n))), self.values)

    def segment(self, level: int, parent: Value) -> tuple[Value, Value]:
        """Return the first position under a parent, and the one after the last."""
        return self.positions(level)[parent], self.positions(level)[parent + 1]

    def factor(self, state: LoweringState) -> list[Value]:
        """Return the element at the present position as a list of factors, which is empty for a 0/1 map."""
        return [] if self.format.ones else [self.values[state.at[self.number][1]]]


@dataclass(frozen=True)
class RowLoops:
    """Loops over vectors of `v` whose sums are kept in registers, see tile.py; the summing loops begin with `sums`.

    Several values of `row` are processed at a time, or one if it is None. With `once`, these loops write every element
    of a workspace once, so that it need not be cleared before.
    """

    member: int
    v: str
    row: str | None
    sums: NestLoop
    once: bool


@dataclass(frozen=True)
class RowTile:
    """Registers, row by row, for a range of v from `start` on; `used` lanes of each row's last vector are used."""

    loops: RowLoops
    start: Value
    vectors: int
    used: int
    rows: int
    registers: Array

    def lanes(self, vector: int, lanes: int) -> int:
        """Return how many of `lanes` lanes of a vector are used."""
        return self.used if vector == self.vectors - 1 else lanes


@dataclass(frozen=True)
class LoweringState:
    """The variables known at one point of a program.

    Parameters
    ----------
    bound
        The values of the indices of the loops around this point.
    at
        For each operand, the number of its levels whose index has a value, and the position in the last of them.
    sums, seen
        For each target whose terms are summed in a variable: this variable, and one that is 1 if there was a term.
    entry
        For each workspace over whose list a loop runs: the slot of the present element.
    bases
        Inside a loop over a list of elements of a sparse result: the number of entries of each level before the list.
    listed
        The first level of the result that such a list runs over.
    tile
        The registers that the loops inside add to.
    """

    bound: Mapping[str, Value] = field(default_factory=dict)
    at: Mapping[int, tuple[int, Value]] = field(default_factory=dict)
    sums: Mapping[int, Value] = field(default_factory=dict)
    seen: Mapping[int, Value] = field(default_factory=dict)
    entry: Mapping[int, Value] = field(default_factory=dict)
    bases: Mapping[int, Value] = field(default_factory=dict)
    listed: int | None = None
    tile: RowTile | None = None

    def bind(self, index: str, value: Value) -> LoweringState:
        """Return the state in which an index has a value."""
        return replace(self, bound={**self.bound, index: value})

    def move(self, operand: int, depth: int, position: Value) -> LoweringState:
        """Return the state in which `depth` levels of an operand are resolved, to a position."""
        return replace(self, at={**self.at, operand: (depth, position)})

    def at_entry(self, tensor: int, place: Value) -> LoweringState:
        """Return the state in which the present element of a workspace is in a slot."""
        return replace(self, entry={**self.entry, tensor: place})

    def next_level(self, operand: OperandArrays, index: str) -> int | None:
        """Return the level of `index` in an operand if it is the next one to be resolved and is compressed."""
        level, _ = self.at[operand.number]
        f = operand.format
        return level if f.order[level : level + 1] == (index,) and f.kinds[level] == "compressed" else None


@contextmanager
def resolved(b: Builder, operands: Iterable[OperandArrays], state: LoweringState) -> Iterator[LoweringState]:
    """Resolve every level whose index, and those of the levels above it, have a value.

    A dense level is resolved by arithmetic. A compressed level is searched for the coordinate, and the block runs only
    if it is stored. The block gets the state with these positions.
    """
    with ExitStack() as searches:
        for operand in operands:
            level, at = state.at[operand.number]
            order = operand.format.order
            while level < len(order) and order[level] in state.bound:
                x = state.bound[order[level]]
                if operand.format.kinds[level] == "compressed":
                    at = searches.enter_context(_search(b, operand, level, at, x))
                else:
                    at = x if level == 0 else at * operand.extents.value(order[level]) + x
                level += 1
            state = state.move(operand.number, level, at)
        yield state


@contextmanager
def _search(b: Builder, operand: OperandArrays, level: int, parent: Value, x: Value) -> Iterator[Value]:
    """Find the position of a coordinate under a parent by bisection. The block runs only if it is stored."""
    number, stored = operand.number, operand.coordinates(level)
    begin, end = operand.segment(level, parent)
    last = b.let(f"end{number}", end)
    low, high = b.declare(f"p{number}", begin), b.declare(f"high{number}", last)
    with b.loop_while(lt(low, high)):
        middle = b.let(f"mid{number}", low + (high - low) // 2)
        with b.when(lt(cast(stored[middle], "i64"), x)):
            b.assign(low, middle + 1)
        with b.otherwise():
            b.assign(high, middle)
    with b.when(lt(low, last)), b.when(eq(cast(stored[low], "i64"), x)):
        yield low
