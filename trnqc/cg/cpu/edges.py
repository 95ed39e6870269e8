"""The uvu paths of one edge: slots of x loaded to scratch, then for every slot of z its paths' functions.

Programs over a batch and over a graph are made of these pieces; they differ in the rows that an edge has and in what
stays in scratch from one edge to the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trnqc.cg.cpu.modes import uvu
from trnqc.cg.cpu.slots import Path, Paths, Slots, index, memory
from trnqc.cg.programs.directions import Direction
from trnqc.gen import Array, Value, const
from trnqc.gen import statements as st
from trnqc.gen.build import Builder


@dataclass(frozen=True)
class Row:
    """A row of an array in memory, from the element `start` on."""

    array: Array
    start: Value

    def __getitem__(self, offset: int) -> st.View:
        return st.View(self.array, self.start + offset)

    def element(self, offset: Value | int) -> Value:
        return self.array[self.start + offset]


Rows = Mapping[str, Row]
Scratch = dict[str, Array]


def rows_of(paths: Paths, direction: Direction, numbers: Mapping[str, Value], share: Value) -> dict[str, Row]:
    """The rows of a direction's operands, whose numbers are told by kind.

    Shared weights are row 0, and their gradient is row `share`.
    """
    rows = {}
    for name in (*direction.reads, *direction.writes):
        number = numbers[name[-1]]
        if name[-1] == "w" and paths.problem.shared_weights:
            number = share if name == "gw" else index(0)
        rows[name] = Row(memory(name, paths.dtype), number * paths.problem.row_length(name))
    return rows


def scratch_of(b: Builder, paths: Paths, direction: Direction) -> Scratch:
    """Scratch for the slots of x and ggx, for one slot of gz, and for gy as a sum for every lane."""
    widest = max((slot.size for slot in paths.slots3.channels.values()), default=0)
    sizes = dict.fromkeys(direction.reading("x"), paths.slots1.size) | dict.fromkeys(direction.reading("z"), widest)
    sizes |= {"gy": paths.problem.dims[1]} if direction.gradients else {}
    return {name: vectors_of(b, paths, f"{name}s", size) for name, size in sizes.items()}


def vectors_of(b: Builder, paths: Paths, name: str, size: int) -> Array:
    """An array of vectors in scratch."""
    return b.array(name, paths.dtype, (max(1, size),), lanes=True)


def clear_unreached(b: Builder, row: Row, slots: Slots, parts: tuple[slice, ...]) -> None:
    """Set to zero the slots of a row in memory that no path leads to."""
    for number, part in enumerate(parts):
        if number not in slots.channels and part.stop > part.start:
            with b.loop("at", part.stop, begin=part.start) as at:
                b.store(row.element(at), 0)


def load_x(b: Builder, paths: Paths, names: Iterable[str], rows: Rows, scratch: Scratch) -> None:
    """Load the slots of x, ggx from memory into scratch."""
    slots = paths.slots1
    for name in names:
        for n, channels in slots.channels.items():
            b.call(uvu.load(channels), rows[name][slots.start[n]], view(scratch[name], slots.place[n]))


def store_slots(b: Builder, slots: Slots, source: Array, to: Row) -> None:
    """Store slots from scratch into memory."""
    for n, channels in slots.channels.items():
        b.call(uvu.store(channels), to[slots.start[n]], view(source, slots.place[n]))


def call_paths(
    b: Builder, paths: Paths, direction: Direction, slot: int, rows: Rows, scratch: Scratch, z: st.View | None
) -> None:
    """All paths to one slot of z, whose gz is loaded first; z: where the slot's output is added, or written."""
    if "gz" in direction.reads:
        b.call(uvu.load(paths.slots3.channels[slot]), rows["gz"][paths.slots3.start[slot]], view(scratch["gz"]))
    adds = z is not None and z.array.space == "local"

    def argument(path: Path, name: str) -> st.View:
        if name == direction.output:
            assert z is not None
            return z
        if name[-1] == "w":
            return rows[name][path.w]
        if name == "gy":
            return view(scratch["gy"], path.y)
        if name[-1] == "y":
            return rows[name][path.y]
        return view(scratch[name], 0 if name == "gz" else paths.slots1.place[path.i_in1])

    for path in paths.to(slot):
        arguments = (argument(path, name) for name in uvu.parameters(path.shape, direction, adds))
        b.call(uvu.function(path.shape, direction.of_edge, adds), const(path.path_weight, paths.dtype), *arguments)


def store_gy(b: Builder, paths: Paths, gy: Array, to: Row) -> None:
    """gy in memory = the sums over the lanes of gy in scratch."""
    for j in range(paths.problem.dims[1]):
        b.store(to.element(j), 0)
        b.accumulate(to.element(j), gy[j])


def view(array: Array, place: int = 0) -> st.View:
    """An array in scratch from a place on."""
    return st.View(array, index(place))
