"""Slots of x and z between rows of memory, in either layout, and vectors of channels.

A staged slot lies as [component, vector of channels], with zeros past the last channel.
"""

from __future__ import annotations

from dataclasses import dataclass

from trnqc.cg.mixing import fill, vectors
from trnqc.gen import Array, Value, Var
from trnqc.gen import statements as st
from trnqc.gen.values import const


@dataclass(frozen=True)
class Slot:
    """mul channels of dim components at `start` of a row of memory; staged from vector `place` on."""

    mul: int
    dim: int
    start: int
    place: int
    lanes: int
    dtype: str
    layout: str

    @property
    def vectors(self) -> tuple[int, ...]:
        """Channels in every vector of a component."""
        return fill(self.mul, self.lanes)

    @property
    def size(self) -> int:
        """Vectors of the staged slot."""
        return self.dim * len(self.vectors)

    @property
    def pieces(self) -> tuple[tuple[int, int, int, int, int], ...]:
        """(place in a row, vectors in a piece, first of them in each component, channel, channels used) of what moves.

        Interleaved components move together; others one by one.
        """
        found = []
        for b, used in enumerate(self.vectors):
            u = b * self.lanes
            if self.layout == "mul_ir":
                found.append((self.start + u * self.dim, self.dim, 0, b, used))
            else:
                found += [(self.start + k * self.mul + u, 1, k, b, used) for k in range(self.dim)]
        return tuple(found)


def stage(slot: Slot, source: Array, row: Value, to: Array, shift: Value) -> list[st.Statement]:
    """to, from vector `shift` on, = the slot of the row of memory that begins at `row`."""
    made: list[st.Statement] = []
    for begin, count, first, b, used in slot.pieces:
        name = f"{source.name}{begin}"
        turned = vectors(name, count, slot.dtype)
        made += [st.DeclareArray(turned), st.Unpack(turned, const(0, "i64"), source, row + begin, count, count, used)]
        for k in range(count):
            made.append(st.store(to[shift + _vector(slot, first + k, b)], turned[k]))
    return made


def emit(slot: Slot, source: Array, shift: Value, to: Array, row: Value) -> list[st.Statement]:
    """The slot of the row of memory that begins at `row` += source from vector `shift` on."""
    made: list[st.Statement] = []
    for begin, count, first, b, used in slot.pieces:
        name = f"{to.name}{begin}"
        turned = vectors(name, count, slot.dtype)
        made += [st.DeclareArray(turned), st.Unpack(turned, const(0, "i64"), to, row + begin, count, count, used)]
        for k in range(count):
            made.append(st.accumulate(turned[k], source[shift + _vector(slot, first + k, b)]))
        made.append(st.Pack(to, row + begin, turned, const(0, "i64"), count, count, used))
    return made


def _vector(slot: Slot, k: int, b: int) -> int:
    return slot.place + k * len(slot.vectors) + b


def clear(array: Array) -> st.Statement:
    """All of an array of lanes = 0."""
    at = Var("at", "i64")
    return st.loop(at, array.size or 0, st.store(array[at], 0.0))
