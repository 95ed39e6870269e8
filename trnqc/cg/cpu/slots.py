"""Slots of x, y and z on a CPU: their layout in memory and in vectors, and functions that move them between the two.

In scratch a slot is an array [block, component] of vectors. A block has one channel for each lane of a vector; the last
block of a slot may be partly filled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from trnqc.cg.cpu.vectors import ZERO, memory, vectors
from trnqc.gen import Array, Value
from trnqc.gen import statements as st
from trnqc.gen.build import Builder


@dataclass(frozen=True)
class Channels:
    """Channels of a slot: mul * dim elements in memory, and the vectors that hold them.

    `slot_mul` is the number of channels of the whole slot if these channels are a part of one, otherwise 0.
    """

    mul: int
    dim: int
    layout: str
    dtype: str
    lanes: int
    slot_mul: int = 0

    @property
    def name(self) -> str:
        part = f"_of{self.slot_mul}" * (self.slot_mul > 0 and self.layout == "ir_mul")
        return f"{self.mul}_{self.dim}{'_i' * (self.layout == 'ir_mul')}{part}"

    @property
    def blocks(self) -> int:
        return -(-self.mul // self.lanes)

    @property
    def size(self) -> int:
        """Number of vectors in scratch."""
        return self.blocks * self.dim

    def unpack(self, b: Builder, to: Array, place: Value, source: Array, block: Value, rows: int) -> None:
        """Load one block of `rows` channels from memory into the vectors of `to` from `place` on."""
        for at, i, stride, n in self._moves(block):
            b.add(st.Unpack(to, place + i, source, at, stride, n, rows))

    def pack(self, b: Builder, to: Array, block: Value, source: Array, place: Value, rows: int) -> None:
        """Store one block of `rows` channels in memory, from the vectors of `source` from `place` on."""
        for at, i, stride, n in self._moves(block):
            b.add(st.Pack(to, at, source, place + i, stride, n, rows))

    def _moves(self, block: Value) -> Iterator[tuple[Value, int, int, int]]:
        """Yield (place in memory, first component, stride, number of components) of each statement that moves data."""
        if self.layout == "mul_ir":
            yield block * (self.lanes * self.dim), 0, self.dim, self.dim
        else:
            for i in range(self.dim):
                yield block * self.lanes + i * (self.slot_mul or self.mul), i, 1, 1

    def each(self, b: Builder) -> Iterator[tuple[Value, int]]:
        """Loop over the full blocks, then over the partly filled one; yields a block and its number of channels."""
        full, rest = divmod(self.mul, self.lanes)
        if full:
            with b.loop("b", full) as block:
                yield block, self.lanes
        if rest:
            with b.loop("b", full + 1, begin=full) as block:
                yield block, rest


@dataclass(frozen=True)
class PathSlots:
    """The slots of x or z that some paths use.

    `start` is in elements of a row of memory, `place` and `size` in vectors of scratch. With several edges, a slot is
    stored for all edges before the next slot.
    """

    channels: dict[int, Channels]
    start: dict[int, int]
    place: dict[int, int]
    size: int


@cache
def load(channels: Channels) -> st.Function:
    """Return the function that loads a slot from memory into scratch."""
    b, m, t = _arguments(channels)
    for block, n in channels.each(b):
        channels.unpack(b, t, block * channels.dim, m, block, n)
    return b.function(f"load_{channels.name}", (m, t))


@cache
def store(channels: Channels) -> st.Function:
    """Return the function that stores a slot from scratch in memory."""
    b, m, t = _arguments(channels)
    for block, n in channels.each(b):
        channels.pack(b, m, block, t, block * channels.dim, n)
    return b.function(f"store_{channels.name}", (m, t))


@cache
def add(channels: Channels) -> st.Function:
    """Return the function that adds a slot in scratch to the slot in memory."""
    b, m, t = _arguments(channels)
    for block, n in channels.each(b):
        sums = b.array("sums", channels.dtype, (channels.dim,), lanes=True)
        channels.unpack(b, sums, ZERO, m, block, n)
        for k in range(channels.dim):
            b.accumulate(sums[k], t[block * channels.dim + k])
        channels.pack(b, m, block, sums, ZERO, n)
    return b.function(f"add_{channels.name}", (m, t))


def _arguments(channels: Channels) -> tuple[Builder, Array, Array]:
    return Builder(), memory("m", channels.dtype), vectors("t", channels.size, channels.dtype)
