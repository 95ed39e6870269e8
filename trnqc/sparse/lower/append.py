"""A sparse result, appended to its levels in one pass.

The outer levels may be dense; all others are compressed. The entry of a level is written after the entries under it,
and only if there are any. Positions are stored as the number of entries under every parent, and summed at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from trnqc.gen import Array, Value, Var
from trnqc.gen.build import Builder
from trnqc.gen.values import cast, eq, invert, le, lt, select
from trnqc.sparse.lower.state import ONE, ZERO, Extents, LoweringState
from trnqc.sparse.lower.workspace import STATUS
from trnqc.sparse.network.nest import Format
from trnqc.sparse.network.network import Indices

CAPACITY = Var("capacity", "i64")
VALUES = Array("val_out", "f64")


@dataclass(frozen=True)
class Appended:
    """The levels of a sparse result in a program. Its dense levels are the outermost ones."""

    extents: Extents
    tensor: int
    format: Format

    @property
    def first(self) -> int:
        """The outermost compressed level."""
        return self.format.kinds.index("compressed")

    @property
    def last(self) -> int:
        """The innermost level."""
        return len(self.format.order) - 1

    @property
    def used(self) -> Array:
        """The array of the numbers of entries of all levels."""
        return Array("used_out", "i64")

    def coordinates(self, level: int) -> Array:
        """Return the array of the coordinates of a level."""
        index = self.format.order[level]
        return Array(f"idx_out_{index}", self.extents.coordinate_type(index))

    def counts(self, level: int) -> Array:
        """Return the array of the numbers of entries of a level under each parent. The outermost level has none."""
        return Array(f"cnt_out_{self.format.order[level]}", "i64")

    @property
    def of_entries(self) -> tuple[tuple[Array, int], ...]:
        """The arrays with an element for each entry of a level, and this level.

        These are coordinates, numbers of entries under each, and values.
        """
        compressed = range(self.first, self.last + 1)
        coordinates = tuple((self.coordinates(level), level) for level in compressed)
        return (*coordinates, *((self.counts(level), level - 1) for level in compressed[1:]), (VALUES, self.last))

    @property
    def arrays(self) -> tuple[Array, ...]:
        """All arrays that functions take."""
        levels = range(self.first, self.last + 1)
        counts = tuple(self.counts(level) for level in levels if level)
        return (self.used, *counts, *map(self.coordinates, levels), VALUES, STATUS)

    @contextmanager
    def around(self, b: Builder, index: str, state: LoweringState) -> Iterator[None]:
        """Add one turn of the loop over an index of the result, followed by its entry."""
        level = self.format.order.index(index)
        below = level + 1
        if level == self.last or below < self.first:
            yield
            return
        begin = b.let("begin", self.used[below])
        yield
        entries = self.used[below] - begin
        if level < self.first:
            b.store(self.counts(below)[self._parent(state)], entries)
            return
        with b.when(lt(begin, self.used[below])):
            self._write_coordinate(b, level, state)
            b.store(self.counts(below)[self.used[level]], entries)
            self._advance(b, level)

    def before_list(self, b: Builder, indices: Indices, state: LoweringState) -> LoweringState:
        """Return the state inside a loop over a sorted list of the last indices of the result."""
        listed = self.format.order.index(indices[0])
        levels = range(max(self.first, listed), self.last)
        bases = {level: b.let("base", self.used[level]) if state.bound else ZERO for level in levels}
        return replace(state, listed=listed, bases=bases)

    def add(self, b: Builder, state: LoweringState, value: Value) -> None:
        """Append an element at the present values of the indices."""
        with b.when(lt(self.used[self.last], CAPACITY)):
            new = b.declare("new", ZERO) if state.bases else ZERO
            for level in state.bases:
                self._open(b, level, state, new)
            self._write_coordinate(b, self.last, state)
            b.store(VALUES[self.used[self.last]], value)
            self._count(b, self.last, state)
            self._advance(b, self.last)
        with b.otherwise():
            b.store(STATUS[self.tensor], 1)

    def add_row(self, b: Builder, state: LoweringState, row: Array, start: Value, zeros: bool) -> None:
        """Append the elements of an array from `start` on, also `zeros` if wanted, to the last level under one parent.

        There must be memory for all of them, also for those that are left out. `state` is that outside the loop over
        the last index.
        """
        index, used = self.format.order[self.last], self.used[self.last]
        extent, coordinates = self.extents.value(index), self.coordinates(self.last)
        with b.when(le(used + extent, CAPACITY)):
            begin = b.let("first", used)
            end = b.declare("end", begin)
            with b.loop(Var(index, "i64"), extent) as x:
                place = begin + x if zeros else end
                value = b.let(b.fresh("element", "f64"), row[start + x])
                b.store(coordinates[place], cast(x, coordinates.dtype))
                b.store(VALUES[place], value)
                if not zeros:
                    b.assign(end, end + select(eq(value, 0.0), ZERO, ONE))
            b.store(used, begin + extent if zeros else end)
        with b.otherwise():
            b.store(STATUS[self.tensor], 1)

    def _open(self, b: Builder, level: int, state: LoweringState, new: Value) -> None:
        """Append an entry of a level if its coordinate, or one above it, differs from that of the element before."""
        if level == self.first and _in_list(level - 1, state):
            # The list also runs over dense levels, and the count is zero under a parent at which it has just arrived.
            with b.when(eq(self.counts(level)[self._parent(state)], 0)):
                b.assign(new, ONE)
        same = eq(self.coordinates(level)[self.used[level] - 1], self._coordinate(level, state))
        with b.when(eq(self.used[level], state.bases[level])):
            b.assign(new, ONE)
        with b.otherwise(), b.when(invert(same)):
            b.assign(new, ONE)
        with b.when(eq(new, ONE)):
            self._write_coordinate(b, level, state)
            b.store(self.counts(level + 1)[self.used[level]], 0)
            self._count(b, level, state)
            self._advance(b, level)

    def _count(self, b: Builder, level: int, state: LoweringState) -> None:
        """Count one more entry under the parent, if the entry of the parent is written first."""
        if level == self.first and _in_list(level - 1, state):
            b.accumulate(self.counts(level)[self._parent(state)], ONE)
        elif level - 1 in state.bases:
            b.accumulate(self.counts(level)[self.used[level - 1] - 1], ONE)

    def _parent(self, state: LoweringState) -> Value:
        return self.extents.offset(self.format.order[: self.first], state.bound)

    def _coordinate(self, level: int, state: LoweringState) -> Value:
        return cast(state.bound[self.format.order[level]], self.coordinates(level).dtype)

    def _write_coordinate(self, b: Builder, level: int, state: LoweringState) -> None:
        b.store(self.coordinates(level)[self.used[level]], self._coordinate(level, state))

    def _advance(self, b: Builder, level: int) -> None:
        # Lanes that are threads must all have read the number before one of them overwrites it.
        entries = b.let("entries", self.used[level])
        b.store(self.used[level], entries + 1)


def _in_list(level: int, state: LoweringState) -> bool:
    return level >= 0 and state.listed is not None and state.listed <= level
