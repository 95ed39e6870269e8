"""Sums of a block of threads in shared memory, from which each element of J and K is added to memory once.

All rows of a launch have ket pairs of one range, and a and b are the same for a row. So threads meet the same elements
of K whenever they meet the same c or d, and rows of a block the same elements of J of the ket pairs. The tile holds

  from 0         J of the bra pair, `tile_ab` elements at a time
  from at_c      K of a and b with the first `slots_c` of the shells c that the range has, `step_c` elements for each,
  from at_d      and of the shells d; where c and d are alike, they share these slots
  from at_j      J of the first `tile_pairs` ket pairs of the range

K is added to memory at the end of a row, J of the ket pairs at the end of the block. What has no place in the tile is
added to memory at once. The host decides what has a place (launches.py), from the numbers of shells and densities.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trnqc.eri.classes import QuartetClass
from trnqc.eri.jk.batch import NUMBERS, PLACE_A, PLACE_B, Batch, G, N, bra_elements, bra_start
from trnqc.eri.jk.digest import BLOCKS, block_sizes
from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen.values import both, cast, eq, invert, lane, le, lt, minimum, select

# The numbers of a launch that say what is where in the tile; `shells_c` and `shells_d` are where the shells of the
# slots begin in `slot_shells`.
PLACES = {
    name: Var(name, "i64")
    for name in (
        *("tile_ab", "slots_c", "slots_d", "at_c", "at_d", "step_c", "step_d", "shells_c", "shells_d"),
        *("tile_pairs", "at_j"),
    )
}
# The slots of c and d of each ket pair, and the shells of all slots, as positions among the shells of their l.
KET_SLOTS, SLOT_SHELLS = Array("ket_slots", "i64", (None, 2)), Array("slot_shells", "i64")
LAUNCHED: tuple[Value | Array, ...] = (*PLACES.values(), KET_SLOTS, SLOT_SHELLS)

_KET_BEGIN = Var("ket_begin", "i64")


def share_slots(cls: QuartetClass) -> bool:
    """Return whether a shell has the same slot as c and as d, which takes as many elements for both."""
    return cls.lc == cls.ld and not cls.general


def numbers_of(task_numbers: Array, row: Value, *names: str) -> list[st.Statement]:
    """Define variables for some of the numbers of a task."""
    return [st.Let(N[name], task_numbers[row, NUMBERS.index(name)]) for name in names]


@dataclass(frozen=True)
class Indices:
    """A density, and a pair of contractions of the bra and of the kets."""

    s: Value
    ab: Value
    cd: Value


@dataclass(frozen=True)
class TileSums:
    """Sums of a driver in a tile of so many elements; without any, all that is summed is added to memory at once."""

    batch: Batch
    elements: int

    @property
    def tile(self) -> Array:
        """The array in shared memory."""
        return Array("tile", "f64", (self.elements,), "shared")

    @property
    def parameters(self) -> tuple[Value | Array, ...]:
        """What the functions of a row need beside the arrays of the driver."""
        return (_KET_BEGIN, *LAUNCHED, self.tile) if self.elements else ()

    def zeroed(self) -> list[st.Statement]:
        """Clear the tile; variables for LANES stand before it."""
        q = Var("q", "i64")

        def clear(own: Value) -> list[st.Statement]:
            return [st.store(self.tile[q], 0.0, where=own)]

        return [*_by_lanes(const(self.elements, "i64"), q, clear), st.Barrier()]

    def vector(self, at: Value, position: Value, end: Value) -> list[st.Statement]:
        """Find the slots of each lane.

        at: its ket pair. position: the position of that in the queue; lanes at or behind `end` add nothing.
        """
        live = Var("live", "bool")
        statements: list[st.Statement] = [st.Let(live, lt(position, end))]
        places = [(x, KET_SLOTS[at, n], PLACES[f"slots_{x}"]) for n, x in enumerate("cd") if self.batch.with_k]
        places += [("j", at - _KET_BEGIN, PLACES["tile_pairs"])] * self.batch.with_j
        for x, slot, slots in places if self.elements else ():
            own = Var(f"slot_{x}", "i64")
            statements += [
                st.Let(own, slot),
                st.Let(Var(f"inside_{x}", "bool"), both(live, lt(own, slots))),
                st.Let(Var(f"outside_{x}", "bool"), both(live, le(slots, own))),
            ]
        return statements

    def placed(self, block: str, indices: Indices) -> list[st.Statement]:
        """Find where in the tile a block of K, or the block "cd" of J, begins on each lane."""
        if not self.elements:
            return []
        if block == "cd":
            pair = (indices.s * PLACES["tile_pairs"] + Var("slot_j", "i64")) * self._n_cd + indices.cd
            place = PLACES["at_j"] + pair * self._size(block)
        else:
            row, column = self._contraction(block[0], indices.ab), self._contraction(block[1], indices.cd)
            slot = self._slot(block, Var(f"slot_{block[1]}", "i64"))
            place = slot + self._within(block, indices.s, row, column)
        return [st.Let(Var(f"place_{block}", "i32"), cast(place, "i32"))]

    def added(self, block: str, source: Array, memory: Array, start: Value, shift: Value | int) -> list[st.Statement]:
        """Add a part of a block on each lane.

        start: where the block begins in memory. shift: how far behind that the part begins.
        """
        i, slot = Var("i", "i64"), "j" if block == "cd" else block[1]
        if not self.elements:
            return [
                st.loop(
                    i, source.size or 0, st.accumulate(memory[start + shift + i], source[i], where=Var("live", "bool"))
                )
            ]
        element = self.tile[cast(Var(f"place_{block}", "i32"), "i64") + shift + i]
        to_tile = st.accumulate(element, source[i], where=Var(f"inside_{slot}", "bool"))
        to_memory = st.accumulate(memory[start + shift + i], source[i], where=Var(f"outside_{slot}", "bool"))
        return [st.loop(i, source.size or 0, to_tile, to_memory)]

    def row(self) -> list[st.Statement]:
        """Add K of the row to memory, then J of its bra pair."""
        if not self.elements:
            return self._bra_lanes() if self.batch.with_j else []
        exchange = [st.Barrier(), *(self._flushed(block) for block in self._blocks)] * self.batch.with_k
        return [*exchange, *(self._bra_pieces() if self.batch.with_j else [st.Barrier()])]

    def ket(self) -> list[st.Statement]:
        """Add J of the ket pairs to memory; variables for KET_NUMBERS stand before it."""
        s, size = Var("s", "i64"), self._n_cd * self._size("cd")
        count = PLACES["tile_pairs"] * size
        start = s * N["pair_elements"] + N["ket_at"] + _KET_BEGIN * size

        def places(q: Value) -> tuple[Value, Value]:
            return PLACES["at_j"] + s * count + q, self.batch.arrays["vj"][start + q]

        return [st.loop(s, N["densities"], self._to_memory(count, places))]

    @property
    def _blocks(self) -> tuple[str, ...]:
        """The blocks of K that have slots of their own."""
        return tuple(block for block in BLOCKS if block[1] == "c") if share_slots(self.batch.cls) else BLOCKS

    @property
    def _n_cd(self) -> Value | int:
        return N["n_cd"] if self.batch.cls.general else 1

    def _size(self, block: str) -> int:
        return block_sizes(self.batch.cls)[block]

    def _count(self, shell: str) -> Value | int:
        """Return the contractions of a shell."""
        if not self.batch.cls.general:
            return 1
        pairs, second = ("n_ab", "n_b") if shell in "ab" else ("n_cd", "n_d")
        return N[second] if shell in "bd" else N[pairs] // N[second]

    def _contraction(self, shell: str, pair: Value) -> Value | int:
        """Return the contraction of a shell in a pair of contractions."""
        if not self.batch.cls.general:
            return 0
        second = N["n_b" if shell in "ab" else "n_d"]
        return pair % second if shell in "bd" else pair // second

    def _slot(self, block: str, slot: Value) -> Value:
        return PLACES[f"at_{block[1]}"] + slot * PLACES[f"step_{block[1]}"]

    def _within(self, block: str, s: Value, row: Value | int, column: Value | int) -> Value:
        """Return where a block of two contractions begins in its slot: first come all of a, then all of b."""
        columns = self._count(block[1])
        place = ((s * self._count(block[0]) + row) * columns + column) * self._size(block)
        if block[0] == "a":
            return place
        return place + N["densities"] * self._count("a") * columns * self._size(f"a{block[1]}")

    def _flushed(self, block: str) -> st.Statement:
        """Add the slots' part of one kind of blocks to K."""
        s, row, column, size = Var("s", "i64"), Var("row", "i64"), Var("column", "i64"), self._size(block)
        general, arrays = self.batch.cls.general, self.batch.arrays
        shell = arrays["bra_places"][G, PLACE_A if block[0] == "a" else PLACE_B]

        def places(q: Value) -> tuple[Value, Value]:
            slot, own = q // size, q % size
            at = self._slot(block, slot) + self._within(block, s, row if general else 0, column if general else 0)
            other = SLOT_SHELLS[PLACES[f"shells_{block[1]}"] + slot]
            first, second = (shell + row, other + column) if general else (shell, other)
            blocks = first * N[f"row_{block}"] + second
            return at + own, arrays["vk"][s * N["elements"] + N[f"at_{block}"] + blocks * size + own]

        inner: list[st.Statement] = self._to_memory(PLACES[f"slots_{block[1]}"] * size, places)
        if general:
            inner = [st.loop(row, self._count(block[0]), st.loop(column, self._count(block[1]), inner))]
        return st.loop(s, N["densities"], inner)

    def _bra_pieces(self) -> list[st.Statement]:
        """Add J of the bra pair to memory, as many elements at a time as have a place in the tile."""
        size, most, piece, i = bra_elements(self.batch), PLACES["tile_ab"], Var("piece", "i64"), Var("i", "i64")
        total, count, arrays = N["densities"] * size, Var("in_piece", "i64"), self.batch.arrays

        def places(q: Value) -> tuple[Value, Value]:
            element = piece * most + q
            return q, arrays["vj"][bra_start(self.batch, element // size) + element % size]

        summed = st.accumulate(self.tile[i], arrays["j_ab"][piece * most + i])
        return [
            st.loop(
                piece,
                (total + most - 1) // most,
                st.Let(count, minimum(most, total - piece * most)),
                st.loop(i, count, summed),
                st.Barrier(),
                self._to_memory(count, places),
                st.Barrier(),
            )
        ]

    def _bra_lanes(self) -> list[st.Statement]:
        """Add J of the bra pair to memory, as sums of warps."""
        s, i, size, arrays = Var("s", "i64"), Var("i", "i64"), bra_elements(self.batch), self.batch.arrays
        summed = st.accumulate(arrays["vj"][bra_start(self.batch, s) + i], arrays["j_ab"][s * size + i])
        return [st.loop(s, N["densities"], st.loop(i, size, summed))]

    def _to_memory(self, count: Value, places: Callable[[Value], tuple[Value, Value]]) -> list[st.Statement]:
        """Add `count` elements of the tile to memory and clear them; places(q): those of element q in both.

        Only elements that are not 0 are added: slots that no quartet of the row met cost nothing.
        """
        q, x = Var("q", "i64"), Var("x")
        place, target = places(q)

        def move(own: Value) -> list[st.Statement]:
            return [
                st.Let(x, select(own, self.tile[place], 0.0)),
                st.store(self.tile[place], 0.0, where=own),
                st.accumulate(target, x, where=invert(eq(x, 0.0))),
            ]

        return _by_lanes(count, q, move)


# What `TileSums.zeroed` and `ket` need of a task's numbers.
LANES, KET_NUMBERS = ("lanes",), ("lanes", "densities", "n_cd", "pair_elements", "ket_at")


def _by_lanes(count: Value, q: Value, statements: Callable[[Value], list[st.Statement]]) -> list[st.Statement]:
    """Run statements for q in 0 .. count, one q on each lane; lanes without one get the last, and own is false."""
    turn, own, lanes = Var("turn", "i64"), Var("own", "bool"), N["lanes"]
    index = turn * lanes + lane()
    return [
        st.loop(
            turn,
            (count + lanes - 1) // lanes,
            st.Let(own, lt(index, count)),
            st.Let(q, minimum(index, count - 1)),
            statements(own),
        )
    ]
