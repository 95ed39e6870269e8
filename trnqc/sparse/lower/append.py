"""A sparse result, appended to its levels in one pass.

Outer levels may be dense, all others are compressed. A level's entry is written after what stands under it, and only
if something does. Positions are kept as counts: of the entries under every parent, which are summed when all is done.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trnqc.gen import Array, Value, Var
from trnqc.gen import statements as st
from trnqc.gen.values import cast, eq, invert, lt
from trnqc.sparse.lower.positions import ONE, ZERO, Body, Places, State, coordinate_type
from trnqc.sparse.lower.workspace import STATUS
from trnqc.sparse.network.nest import Format

CAPACITY = Var("capacity", "i64")
VALUES = Array("val_out", "f64")


@dataclass
class Appended:
    """The levels of a result in a program. format: its dense levels stand outermost.

    listed: the level from which on the innermost loop runs over a sorted list. bases: entries that its levels, but the
    last, had before.
    """

    places: Places
    tensor: int
    format: Format
    listed: int | None = None
    bases: dict[int, Value] = field(default_factory=dict)

    @property
    def first(self) -> int:
        """The outermost compressed level."""
        return self.format.kinds.index("compressed")

    @property
    def last(self) -> int:
        return len(self.format.order) - 1

    @property
    def used(self) -> Array:
        """Entries of every level."""
        return Array("used_out", "i64")

    def coordinates(self, level: int) -> Array:
        index = self.format.order[level]
        return Array(f"idx_out_{index}", coordinate_type(self.places.extents[index]))

    def counts(self, level: int) -> Array:
        """Entries of a level under every parent; there is none for an outermost one."""
        return Array(f"cnt_out_{self.format.order[level]}", "i64")

    @property
    def arrays(self) -> tuple[Array, ...]:
        levels = range(self.first, self.last + 1)
        counts = tuple(self.counts(level) for level in levels if level)
        return (self.used, *counts, *map(self.coordinates, levels), VALUES, STATUS)

    def around(self, index: str, state: State, body: Body) -> Body:
        """One turn of the loop over an index of the result, followed by its entry."""
        level = self.format.order.index(index)
        below = level + 1
        if level == self.last or below < self.first:
            return body
        begin = self.places.fresh("begin")
        made = self.used[below] - begin
        if level < self.first:
            close: st.Statement = st.store(self.counts(below)[self._parent(state)], made)
        else:
            entry = [*self._coordinate(level, state), st.store(self.counts(below)[self.used[level]], made)]
            close = st.If(lt(begin, self.used[below]), st.block(entry, self._taken(level)))
        return [st.Let(begin, self.used[below]), *body, close]

    def before_list(self, indices: tuple[str, ...], state: State) -> Body:
        """Before a loop over a sorted list of the last indices of the result; of all of them, the levels are empty."""
        self.listed = self.format.order.index(indices[0])
        levels = range(max(self.first, self.listed), self.last)
        if not state.bound:
            self.bases = dict.fromkeys(levels, ZERO)
            return []
        self.bases = {level: self.places.fresh("base") for level in levels}
        return [st.Let(base, self.used[level]) for level, base in self.bases.items()]

    def add(self, state: State, value: Value) -> Body:
        """One element, at the bound coordinates."""
        opened: Body = []
        new = self.places.fresh("new")
        for level in self.bases:
            none = eq(self.used[level], self.bases[level])
            same = eq(self.coordinates(level)[self.used[level] - 1], self._stored(level, state))
            fresh = st.Assign(new, ONE)
            opened += [] if opened else [st.Declare(new, ZERO)]
            opened += self._prefix_is_new(level, new, state)
            opened.append(st.If(none, st.block(fresh), st.block(st.If(invert(same), st.block(fresh)))))
            entry = [*self._coordinate(level, state), st.store(self.counts(level + 1)[self.used[level]], 0)]
            opened.append(st.If(eq(new, ONE), st.block(entry, self._counted(level, state), self._taken(level))))
        store = [*self._coordinate(self.last, state), st.store(VALUES[self.used[self.last]], value)]
        entered = [*opened, *store, *self._counted(self.last, state), self._taken(self.last)]
        full = st.store(STATUS[self.tensor], 1)
        return [st.If(lt(self.used[self.last], CAPACITY), st.block(entered), st.block(full))]

    def _prefix_is_new(self, level: int, new: Value, state: State) -> Body:
        """A list that runs over dense levels as well changes to another prefix where nothing is counted yet."""
        if level != self.first or not self._in_list(level - 1):
            return []
        return [st.If(eq(self.counts(level)[self._parent(state)], 0), st.block(st.Assign(new, ONE)))]

    def _in_list(self, level: int) -> bool:
        return level >= 0 and self.listed is not None and self.listed <= level

    def _counted(self, level: int, state: State) -> Body:
        """One more under the parent, where the parent's entry is open."""
        if level == self.first and self._in_list(level - 1):
            return [st.accumulate(self.counts(level)[self._parent(state)], ONE)]
        if level - 1 in self.bases:
            return [st.accumulate(self.counts(level)[self.used[level - 1] - 1], ONE)]
        return []

    def _parent(self, state: State) -> Value:
        return self.places.offset(self.format.order[: self.first], state.bound)

    def _stored(self, level: int, state: State) -> Value:
        return cast(state.bound[self.format.order[level]], self.coordinates(level).dtype)

    def _coordinate(self, level: int, state: State) -> Body:
        return [st.store(self.coordinates(level)[self.used[level]], self._stored(level, state))]

    def _taken(self, level: int) -> st.Statement:
        return st.store(self.used[level], self.used[level] + 1)
