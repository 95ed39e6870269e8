"""The memory of an intermediate in a program: a variable, an array, an array with the elements that were written as a
list or as bits, or a hash table.

A list or a hash table is read in the order in which entries were written, unless they are sorted by coordinates first.
Bits are read in the order of elements. Only entries are cleared after a turn, so that the cost of a turn hardly depends
on the extents.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property, reduce
from math import prod

from trnqc.gen import Array, Value, Var, const
from trnqc.gen.build import Builder
from trnqc.gen.values import both, cast, eq, invert, lowest_bit, lt, with_bit, without_lowest_bit
from trnqc.sparse.lower.sorting import sort_list
from trnqc.sparse.lower.state import ONE, ZERO, Extents, LoweringState
from trnqc.sparse.network.nest import Workspace

# One number for every tensor: 1 if its hash table, or the memory of the result, was too small.
STATUS = Array("status", "i64")
# The key of a free slot of a hash table.
FREE = -1
# Fibonacci hashing of numbers below RANGE, so that products of 64 bits do not overflow: the low digits of a key are
# multiplied by RANGE times the fractional part of the golden ratio, and the high digits by another odd number.
RANGE, MIX, MIX_HIGH = 2**31, 1327217885, 1103515245
# If more than one element in CROWDED was written, reading all marks is faster than sorting the list.
CROWDED = 32
# Elements have a bit each in words of WORD bits, which have one each in other words, and so on, until the words that
# each turn looks through are at most this many.
WORD, MOST_WORDS = 64, 4


@dataclass(frozen=True)
class WorkspaceArrays:
    """The arrays and variables of the workspace of a tensor.

    A `kept` workspace is used by several functions of the program, not during one turn of shared loops only. If turns
    that run at the same time write to it (`concurrent`), they only mark elements, and the caller makes the sorted list
    of marked elements before another function reads it. Elements of a workspace that is read `in_order` are read once
    in each turn, and their bits say which were written.
    """

    extents: Extents
    tensor: int
    spec: Workspace
    kept: bool
    concurrent: bool = False
    in_order: bool = False

    @property
    def counted(self) -> bool:
        """Whether the elements that were written are counted, and listed if there are several."""
        return self.spec.space != "dense"

    @property
    def hashed(self) -> bool:
        """Whether the workspace is a hash table."""
        return self.spec.space == "hashed" and bool(self.spec.order)

    @property
    def listed_later(self) -> bool:
        """Whether the caller makes the list of the elements that were written."""
        return self.concurrent and self.kept and self.counted and bool(self.spec.order)

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
        """The list: positions in `array` of the elements that were written."""
        return Array(f"list{self.tensor}", "i64")

    @cached_property
    def bits(self) -> dict[Array, int]:
        """The bits of elements, those of words of these bits that are not 0, and so on, with their numbers of words."""
        words = [-(-self.elements // WORD)]
        while words[-1] > MOST_WORDS:
            words.append(-(-words[-1] // WORD))
        return {Array(f"bits{self.tensor}_{level}", "i64"): size for level, size in enumerate(words)}

    @cached_property
    def room(self) -> Value:
        """Number of slots of a hash table, at most half of which are used."""
        return Var(f"room{self.tensor}", "i64")

    @cached_property
    def arrays(self) -> tuple[Array, ...]:
        """All arrays that functions take."""
        if not self.spec.order:
            return (self.array, self.counts) if self.kept else ()
        if self.in_order:
            return (self.array, *self.bits)
        listed = (self.touched, self.keys if self.hashed else self.mark) if self.counted else ()
        return (self.array, *listed, *((self.counts,) if self.kept and self.counted else ()))

    @cached_property
    def counts(self) -> Array:
        """The array of one element with the number of elements that were written to a kept workspace."""
        return Array(f"count{self.tensor}", "i64")

    @property
    def count(self) -> Value:
        """The number of elements that were written."""
        return self.counts[0] if self.kept else Var(f"count{self.tensor}", "i64")

    @property
    def scalar(self) -> Value:
        return self.array[0] if self.kept else Var(f"w{self.tensor}")

    @property
    def elements(self) -> int:
        """Number of elements of an array for all values of the indices; an empty one has one."""
        return max(1, prod(self.extents.sizes[index] for index in self.spec.order))

    def length(self, array: Array) -> int:
        """Number of elements of one of its arrays. Those of a hash table grow."""
        return 1 if array == self.counts else self.bits.get(array, self.elements)

    def extent(self, array: Array) -> Value:
        """Number of elements of one of its arrays in a program."""
        return const(self.length(array), "i64") if array in self.bits else self.size

    @property
    def size(self) -> Value:
        return reduce(lambda a, b: a * b, map(self.extents.value, self.spec.order))

    def clear(self, b: Builder) -> None:
        """Add the statements at the beginning of a turn."""
        if self.in_order:
            return
        if not self.spec.order:
            b.declare(self.scalar, const(0.0))
        if self.counted:
            b.declare(self.count, ZERO)
        elif self.spec.order:
            with b.loop("j", self.size) as j:
                b.store(self.array[j], 0.0)

    def finish(self, b: Builder) -> None:
        """Add the statements at the end of a turn, which clear the elements of a list."""
        if not self.counted or not self.spec.order or self.kept or self.in_order:
            return
        with b.loop("e", self.count) as e:
            place = b.let("place", self.touched[e])
            b.store(self.array[place], 0.0)
            b.store(self.keys[place] if self.hashed else self.mark[place], FREE if self.hashed else 0)

    def add(self, b: Builder, state: LoweringState, value: Value) -> None:
        """Add a value to the element at the present values of the indices."""
        if not self.spec.order:
            if self.kept:
                b.accumulate(self.scalar, value)
            else:
                b.assign(self.scalar, self.scalar + value)
            if self.counted:
                _set(b, self.count, ONE)
            return
        offset = self.extents.offset(self.spec.order, state.bound)
        if self.hashed:
            self._add_to_table(b, offset, value)
        elif self.in_order:
            place = b.let(b.fresh("place", "i64"), offset)
            number = place
            for bits in self.bits:
                # Lanes that are threads must all have read the word before one of them overwrites it.
                word = b.let("word", with_bit(bits[number // WORD], number))
                b.store(bits[number // WORD], word)
                number = number // WORD
            b.accumulate(self.array[place], value)
        elif self.listed_later:
            place = b.let(b.fresh("place", "i64"), offset)
            b.store(self.mark[place], 1)
            b.accumulate(self.array[place], value)
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
    def read(self, b: Builder, state: LoweringState, strict: bool) -> Iterator[Value]:
        """Read the element at the present values of the indices.

        strict: the block does not run if nothing was added to the element.
        """
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
    def over(self, b: Builder, state: LoweringState, sort: bool) -> Iterator[LoweringState]:
        """Add a loop over the entries of the list, inside which all indices of the workspace have a value.

        sort: whether the list is sorted before.
        """
        if self.in_order:
            with self._over_bits(b) as place:
                yield self._at_place(b, place, place, state)
                b.store(self.array[place], 0.0)
            return
        if sort and not self.listed_later:
            self._sort(b)
        with b.loop("e", self.count) as e:
            yield self.at_entry(b, e, state)

    @contextmanager
    def _over_bits(self, b: Builder) -> Iterator[Value]:
        """Add a loop over the elements whose bits are set, which it clears."""
        with ExitStack() as loops:
            arrays = tuple(self.bits)
            number = loops.enter_context(b.loop("q", self.bits[arrays[-1]]))
            for bits in reversed(arrays):
                word = b.declare("word", bits[number])
                b.store(bits[number], 0)
                loops.enter_context(b.loop_while(invert(eq(word, 0))))
                number = b.let("number", number * WORD + lowest_bit(word))
                b.assign(word, without_lowest_bit(word))
            yield number

    def _sort(self, b: Builder) -> None:
        """Sort the list by coordinates."""
        if self.hashed:
            b.call(sort_list(by_key=True), self.touched, self.keys, self.count)
            return
        with b.when(lt(self.size, self.count * CROWDED)):
            # Each position is stored, and the next one overwrites it unless it is marked.
            n = b.declare("n", ZERO)
            with b.loop("j", self.size) as j:
                b.store(self.touched[n], j)
                b.assign(n, n + cast(self.mark[j], "i64"))
        with b.otherwise():
            b.call(sort_list(by_key=False), self.touched, self.count)

    def at_entry(self, b: Builder, entry: Value, state: LoweringState) -> LoweringState:
        """Return the state in which the indices have the values of an entry of the list."""
        place = b.let("place", self.touched[entry])
        return self._at_place(b, place, self.keys[place] if self.hashed else place, state)

    def _at_place(self, b: Builder, place: Value, key: Value, state: LoweringState) -> LoweringState:
        for index in self.spec.order[:0:-1]:
            extent = self.extents.value(index)
            x = b.let(Var(index, "i64"), key % extent)
            key, state = b.let("key", key // extent), state.bind(index, x)
        first = b.let(Var(self.spec.order[0], "i64"), key)
        return state.bind(self.spec.order[0], first).at_entry(self.tensor, place)

    def _probe(self, b: Builder, key: Value) -> Value:
        """Return the slot of a key, or the free slot in which it would be stored."""
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
    """Assign to a variable, or store to an element of an array."""
    if place.op == "var":
        b.assign(place, value)
    else:
        b.store(place, value)
