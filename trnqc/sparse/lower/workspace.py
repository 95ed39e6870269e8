"""What holds an intermediate in a program: a variable, an array, an array with a list of what was touched, a table.

A list or a table is read in the order of its entries; `sort` brings them into the order of their coordinates first. It
is left as clean as it was found, so that a turn costs what it touched and not the extents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen.values import both, cast, eq, invert, lt
from trnqc.sparse.lower.positions import ONE, ZERO, Body, Places, State
from trnqc.sparse.network.nest import Workspace

STATUS = Array("status", "i64")  # of every tensor: 1 when the table or the result was too small
FREE = -1
# Fibonacci hashing on numbers below 2**31, whose products stay in range: the golden ratio's part, and an odd number.
RANGE, MIX, MIX_HIGH = 2**31, 1327217885, 1103515245
# Where more than one place in so many is touched, all marks are looked at sooner than the list is sorted.
CROWDED = 32


@dataclass(frozen=True)
class Space:
    """The workspace of a tensor. kept: it lives through the whole program, not through one turn of shared loops."""

    places: Places
    tensor: int
    spec: Workspace
    kept: bool

    @property
    def counted(self) -> bool:
        return self.spec.space != "dense"

    @property
    def hashed(self) -> bool:
        return self.spec.space == "hashed" and bool(self.spec.order)

    @property
    def array(self) -> Array:
        return Array(f"w{self.tensor}", "f64")

    @property
    def mark(self) -> Array:
        return Array(f"mark{self.tensor}", "i32")

    @property
    def keys(self) -> Array:
        return Array(f"key{self.tensor}", "i64")

    @property
    def touched(self) -> Array:
        """Places of the touched elements in `array`."""
        return Array(f"list{self.tensor}", "i64")

    @property
    def room(self) -> Value:
        """Places of a table, at most half of which are taken."""
        return Var(f"room{self.tensor}", "i64")

    @property
    def arrays(self) -> tuple[Array, ...]:
        if not self.spec.order:
            return (self.array, self._counts) if self.kept else ()
        listed = (self.touched, self.keys if self.hashed else self.mark) if self.counted else ()
        return (self.array, *listed, *((self._counts,) if self.kept and self.counted else ()))

    @property
    def _counts(self) -> Array:
        return Array(f"count{self.tensor}", "i64")

    @property
    def count(self) -> Value:
        """How many elements were touched."""
        return self._counts[0] if self.kept else Var(f"count{self.tensor}", "i64")

    @property
    def scalar(self) -> Value:
        return self.array[0] if self.kept else Var(f"w{self.tensor}")

    @property
    def _size(self) -> Value:
        return reduce(lambda a, b: a * b, map(self.places.extent, self.spec.order))

    def _put(self, place: Value, value: Value) -> st.Statement:
        return st.Assign(place, value) if place.op == "var" else st.store(place, value)

    def clear(self) -> Body:
        """At the begin of a turn."""
        made: Body = [st.Declare(self.count, ZERO)] if self.counted else []
        if not self.spec.order:
            return [st.Declare(self.scalar, const(0.0)), *made]
        if self.counted:
            return made
        j = self.places.fresh("j")
        return [st.loop(j, self._size, st.store(self.array[j], 0.0))]

    def finish(self) -> Body:
        """At the end of a turn."""
        if not self.counted or not self.spec.order or self.kept:
            return []
        e, place = self.places.fresh("e"), self.places.fresh("place")
        unmark = st.store(self.keys[place], FREE) if self.hashed else st.store(self.mark[place], 0)
        return [st.loop(e, self.count, st.Let(place, self.touched[e]), st.store(self.array[place], 0.0), unmark)]

    def add(self, state: State, value: Value) -> Body:
        if not self.spec.order:
            return [self._put(self.scalar, self.scalar + value), *([self._put(self.count, ONE)] * self.counted)]
        offset = self.places.offset(self.spec.order, state.bound)
        if not self.counted:
            return [st.accumulate(self.array[offset], value)]
        if self.hashed:
            return self._add_to_table(offset, value)
        place = self.places.fresh("place")
        touch = [st.store(self.mark[place], 1), *self._enter(place)]
        return [
            st.Let(place, offset),
            st.If(eq(self.mark[place], 0), st.block(touch)),
            st.accumulate(self.array[place], value),
        ]

    def _enter(self, place: Value) -> Body:
        return [st.store(self.touched[self.count], place), self._put(self.count, self.count + 1)]

    def read(self, state: State, then: Callable[[Value], Body], strict: bool) -> Body:
        """`then` with the value at the bound coordinates. strict: not where nothing was added."""
        if self.tensor in state.entry:
            return then(self.array[state.entry[self.tensor]])
        if not self.spec.order:
            inner = then(self.scalar)
            return [st.If(eq(self.count, 1), st.block(inner))] if self.counted else inner
        offset = self.places.offset(self.spec.order, state.bound)
        if self.hashed:
            key, place = self.places.fresh("key"), self.places.fresh("place")
            found = eq(self.keys[place], key)
            return [st.Let(key, offset), *self._probe(key, place), st.If(found, st.block(then(self.array[place])))]
        inner = then(self.array[offset])
        return [st.If(eq(self.mark[offset], 1), st.block(inner))] if strict and self.counted else inner

    def over(self, state: State, sort: bool, then: Callable[[State], Body]) -> Body:
        """`then` for every entry, with all indices of the workspace bound."""
        e = self.places.fresh("e")
        return [*self.sorted(sort), st.loop(e, self.count, self.at_entry(e, state, then))]

    def sorted(self, sort: bool) -> Body:
        if not sort:
            return []
        arguments = (self.touched, *((self.keys,) if self.hashed else ()), self.count)
        heap = st.Call(heapsort(self.hashed), arguments)
        if self.hashed:
            return [heap]
        j, n = self.places.fresh("j"), self.places.fresh("n")
        # Every place is written down and kept by the next one only if it is marked.
        marked = st.loop(j, self._size, st.store(self.touched[n], j), st.Assign(n, n + cast(self.mark[j], "i64")))
        crowded = lt(self._size, self.count * CROWDED)
        return [st.If(crowded, st.block(st.Declare(n, ZERO), marked), st.block(heap))]

    def at_entry(self, entry: Value, state: State, then: Callable[[State], Body]) -> Body:
        place = self.places.fresh("place")
        body: Body = [st.Let(place, self.touched[entry])]
        key = self.keys[place] if self.hashed else place
        for index in self.spec.order[:0:-1]:
            x, rest = Var(index, "i64"), self.places.fresh("key")
            extent = self.places.extent(index)
            body += [st.Let(x, key % extent), st.Let(rest, key // extent)]
            key, state = rest, state.bind(index, x)
        first = Var(self.spec.order[0], "i64")
        state = state.bind(self.spec.order[0], first).listed(self.tensor, place)
        return [*body, st.Let(first, key), *then(state)]

    def _probe(self, key: Value, place: Value) -> Body:
        """Declares the place that holds the key, or the free one where it would stand."""
        taken = both(invert(eq(self.keys[place], key)), invert(eq(self.keys[place], FREE)))
        mixed = (key % RANGE * MIX + key // RANGE * MIX_HIGH) % RANGE
        wrap = st.If(eq(place, self.room), st.block(st.Assign(place, ZERO)))
        return [
            st.Declare(place, mixed * self.room // RANGE),
            st.While(taken, st.block(st.Assign(place, place + 1), wrap)),
        ]

    def _add_to_table(self, offset: Value, value: Value) -> Body:
        key, place = self.places.fresh("key"), self.places.fresh("place")
        enter = st.If(lt(self.count + self.count, self.room), st.block(st.store(self.keys[place], key),
                      self._enter(place)), st.block(st.store(STATUS[self.tensor], 1)))  # fmt: skip
        return [
            st.Let(key, offset),
            *self._probe(key, place),
            st.If(eq(self.keys[place], FREE), st.block(enter)),
            st.If(eq(self.keys[place], key), st.block(st.accumulate(self.array[place], value))),
        ]


def heapsort(by_key: bool) -> st.Function:
    """Sorts list[0 .. n) upwards, by the numbers themselves or by what `key` holds at those places."""
    items, keys, n = Array("list", "i64"), Array("key", "i64"), Var("n", "i64")
    start, end, top, child, held = (Var(name, "i64") for name in ("start", "end", "top", "child", "held"))

    def key(item: Value) -> Value:
        return keys[item] if by_key else item

    larger = st.If(lt(child + 1, end), st.block(
        st.If(lt(key(items[child]), key(items[child + 1])), st.block(st.Assign(child, child + 1)))))  # fmt: skip
    sink = st.If(lt(key(held), key(items[child])), st.block(
        st.store(items[top], items[child]), st.Assign(top, child), st.Assign(child, child * 2 + 1),
    ), st.block(st.Assign(child, end)))  # fmt: skip
    take = st.If(lt(ZERO, start), st.block(st.Assign(start, start - 1), st.Assign(held, items[start])), st.block(
        st.Assign(end, end - 1), st.Assign(held, items[end]), st.store(items[end], items[0]),
    ))  # fmt: skip
    turn = [
        st.Declare(held, ZERO),
        take,
        st.Declare(top, start),
        st.Declare(child, start * 2 + 1),
        st.While(lt(child, end), st.block(larger, sink)),
        st.store(items[top], held),
    ]
    body = [st.Declare(start, n // 2), st.Declare(end, n), st.While(lt(ONE, end), st.block(turn))]
    params: Sequence[Value | Array] = (items, *((keys,) if by_key else ()), n)
    title = "the list in order, through a heap"
    return st.Function(f"sort_list{'_by_key' * by_key}", tuple(params), st.block(body), title=title)
