"""What holds an intermediate in a program: a variable, an array, an array with a list of what was touched, or a table.

A list or a table is read in the order of its entries, unless they are sorted by their coordinates first. It is left as
clean as it was found, so that a turn costs what it touched and not the extents.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, reduce

from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen.build import Builder
from trnqc.gen.values import both, cast, eq, invert, lt
from trnqc.sparse.lower.state import ONE, ZERO, Extents, State
from trnqc.sparse.network.nest import Workspace

# One number for every tensor: 1 when its table, or the result, was too small.
STATUS = Array("status", "i64")
# The key of a free place of a table.
FREE = -1
# Fibonacci hashing of numbers below 2^31, so that products stay in range: 2^31 times the fractional part of the golden
# ratio for the low digits of a key, and another odd number for the high ones.
RANGE, MIX, MIX_HIGH = 2**31, 1327217885, 1103515245
# If more than one place in so many is touched, looking at all marks is faster than sorting the list.
CROWDED = 32


@dataclass(frozen=True)
class WorkspaceArrays:
    """The arrays and variables of the workspace of a tensor.

    Parameters
    ----------
    extents
        Of all indices.
    tensor
        Its number.
    spec
        Its indices and kind.
    kept
        Whether it lives through the whole program, and not through one turn of shared loops only.
    """

    extents: Extents
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

    @cached_property
    def room(self) -> Value:
        """Number of places of a table, at most half of which are taken."""
        return Var(f"room{self.tensor}", "i64")

    @cached_property
    def arrays(self) -> tuple[Array, ...]:
        if not self.spec.order:
            return (self.array, self.counts) if self.kept else ()
        listed = (self.touched, self.keys if self.hashed else self.mark) if self.counted else ()
        return (self.array, *listed, *((self.counts,) if self.kept and self.counted else ()))

    @cached_property
    def counts(self) -> Array:
        """Where a kept workspace has its number of touched elements."""
        return Array(f"count{self.tensor}", "i64")

    @property
    def count(self) -> Value:
        """How many elements were touched."""
        return self.counts[0] if self.kept else Var(f"count{self.tensor}", "i64")

    @property
    def scalar(self) -> Value:
        return self.array[0] if self.kept else Var(f"w{self.tensor}")

    @property
    def _size(self) -> Value:
        return reduce(lambda a, b: a * b, map(self.extents.value, self.spec.order))

    def clear(self, b: Builder) -> None:
        """At the beginning of a turn."""
        if not self.spec.order:
            b.declare(self.scalar, const(0.0))
        if self.counted:
            b.declare(self.count, ZERO)
        elif self.spec.order:
            with b.loop("j", self._size) as j:
                b.store(self.array[j], 0.0)

    def finish(self, b: Builder) -> None:
        """At the end of a turn."""
        if not self.counted or not self.spec.order or self.kept:
            return
        with b.loop("e", self.count) as e:
            place = b.let("place", self.touched[e])
            b.store(self.array[place], 0.0)
            b.store(self.keys[place] if self.hashed else self.mark[place], FREE if self.hashed else 0)

    def add(self, b: Builder, state: State, value: Value) -> None:
        """Adds to the element at the coordinates that have a value."""
        if not self.spec.order:
            _set(b, self.scalar, self.scalar + value)
            if self.counted:
                _set(b, self.count, ONE)
            return
        offset = self.extents.offset(self.spec.order, state.bound)
        if self.hashed:
            self._add_to_table(b, offset, value)
        elif self.counted:
            place = b.let(b.fresh("place", "i64"), offset)
            with b.when(eq(self.mark[place], 0)):
                b.store(self.mark[place], 1)
                self._enter(b, place)
            b.accumulate(self.array[place], value)
        else:
            b.accumulate(self.array[offset], value)

    def _enter(self, b: Builder, place: Value) -> None:
        b.store(self.touched[self.count], place)
        _set(b, self.count, self.count + 1)

    @contextmanager
    def read(self, b: Builder, state: State, strict: bool) -> Iterator[Value]:
        """The element at the coordinates that have a value. strict: nothing runs inside if none was added there."""
        offset = self.extents.offset(self.spec.order, state.bound)
        if self.tensor in state.entry:
            yield self.array[state.entry[self.tensor]]
        elif self.hashed:
            key = b.let(b.fresh("key", "i64"), offset)
            place = self._probe(b, key)
            with b.when(eq(self.keys[place], key)):
                yield self.array[place]
        elif self.counted and (strict or not self.spec.order):
            with b.when(eq(self.mark[offset], 1) if self.spec.order else eq(self.count, 1)):
                yield self.array[offset] if self.spec.order else self.scalar
        else:
            yield self.array[offset] if self.spec.order else self.scalar

    @contextmanager
    def over(self, b: Builder, state: State, sort: bool) -> Iterator[State]:
        """A loop over the entries, in which all indices of the workspace have a value."""
        if sort:
            self._sort(b)
        with b.loop("e", self.count) as e:
            yield self.at_entry(b, e, state)

    def _sort(self, b: Builder) -> None:
        """Brings the list into the order of its coordinates."""
        if self.hashed:
            b.call(heapsort(by_key=True), self.touched, self.keys, self.count)
            return
        with b.when(lt(self._size, self.count * CROWDED)):
            # Every place is written down, and the next one overwrites it unless it is marked.
            n = b.declare("n", ZERO)
            with b.loop("j", self._size) as j:
                b.store(self.touched[n], j)
                b.assign(n, n + cast(self.mark[j], "i64"))
        with b.otherwise():
            b.call(heapsort(by_key=False), self.touched, self.count)

    def at_entry(self, b: Builder, entry: Value, state: State) -> State:
        """The indices of the workspace take the values of an entry of its list."""
        place = b.let("place", self.touched[entry])
        key = self.keys[place] if self.hashed else place
        for index in self.spec.order[:0:-1]:
            extent = self.extents.value(index)
            x = b.let(Var(index, "i64"), key % extent)
            key, state = b.let("key", key // extent), state.bind(index, x)
        first = b.let(Var(self.spec.order[0], "i64"), key)
        return state.bind(self.spec.order[0], first).at_entry(self.tensor, place)

    def _probe(self, b: Builder, key: Value) -> Value:
        """The place that holds the key, or the free one where it would stand."""
        mixed = (key % RANGE * MIX + key // RANGE * MIX_HIGH) % RANGE
        place = b.declare("place", mixed * self.room // RANGE)
        with b.loop_while(both(invert(eq(self.keys[place], key)), invert(eq(self.keys[place], FREE)))):
            b.assign(place, place + 1)
            with b.when(eq(place, self.room)):
                b.assign(place, ZERO)
        return place

    def _add_to_table(self, b: Builder, offset: Value, value: Value) -> None:
        key = b.let(b.fresh("key", "i64"), offset)
        place = self._probe(b, key)
        with b.when(eq(self.keys[place], FREE)):
            with b.when(lt(self.count + self.count, self.room)):
                b.store(self.keys[place], key)
                self._enter(b, place)
            with b.otherwise():
                b.store(STATUS[self.tensor], 1)
        with b.when(eq(self.keys[place], key)):
            b.accumulate(self.array[place], value)


def _set(b: Builder, place: Value, value: Value) -> None:
    """Assigns to a variable or stores to an element."""
    if place.op == "var":
        b.assign(place, value)
    else:
        b.store(place, value)


def heapsort(by_key: bool) -> st.Function:
    """Sorts list[0 .. n) upwards, by the numbers themselves or by what `key` holds at those places."""
    items, keys, n = Array("list", "i64"), Array("key", "i64"), Var("n", "i64")
    b = Builder()

    def key(item: Value) -> Value:
        return keys[item] if by_key else item

    start, end = b.declare(Var("start", "i64"), n // 2), b.declare(Var("end", "i64"), n)
    with b.loop_while(lt(ONE, end)):
        held = b.declare(Var("held", "i64"), ZERO)
        # First the heap is built from its last parent up, then its largest number goes behind it again and again.
        with b.when(lt(ZERO, start)):
            b.assign(start, start - 1)
            b.assign(held, items[start])
        with b.otherwise():
            b.assign(end, end - 1)
            b.assign(held, items[end])
            b.store(items[end], items[0])
        top, child = b.declare(Var("top", "i64"), start), b.declare(Var("child", "i64"), start * 2 + 1)
        with b.loop_while(lt(child, end)):
            with b.when(lt(child + 1, end)), b.when(lt(key(items[child]), key(items[child + 1]))):
                b.assign(child, child + 1)
            with b.when(lt(key(held), key(items[child]))):
                b.store(items[top], items[child])
                b.assign(top, child)
                b.assign(child, child * 2 + 1)
            with b.otherwise():
                b.assign(child, end)
        b.store(items[top], held)
    name, title = f"sort_list{'_by_key' * by_key}", "the list in order, through a heap"
    return b.function(name, (items, *((keys,) if by_key else ()), n), title=title)
