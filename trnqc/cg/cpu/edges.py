"""The uvu paths of one edge: slots of x are loaded into scratch, then all paths to each slot of z are computed.

Programs over a batch and over a graph are built from these parts. They differ in the rows that belong to an edge, and
in what stays in scratch from one edge to the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trnqc.cg.cpu.modes import uvu
from trnqc.cg.cpu.slots import load, store
from trnqc.cg.cpu.target import ChannelPath, ProductTarget
from trnqc.cg.cpu.vectors import declare_vectors, index, memory, view
from trnqc.cg.programs.directions import Direction
from trnqc.gen import Array, Value, const
from trnqc.gen import statements as st
from trnqc.gen.build import Builder


@dataclass(frozen=True)
class ArrayRow:
    """A row of an array in memory that begins at the element `start`."""

    array: Array
    start: Value

    def __getitem__(self, offset: int) -> st.View:
        return st.View(self.array, self.start + offset)


@dataclass(frozen=True)
class EdgeWriter:
    """Writes the statements of one edge.

    Parameters
    ----------
    b : Builder
    target : ProductTarget
    direction : Direction
    rows : mapping of str to ArrayRow
        The edge's row of each operand in memory.
    scratch : dict of str to Array
        Vectors: all slots of x, ggx and gx; one slot of gz; gy as one sum for each lane.
    """

    b: Builder
    target: ProductTarget
    direction: Direction
    rows: Mapping[str, ArrayRow]
    scratch: dict[str, Array]

    def load_x(self) -> None:
        """Load the slots of x and ggx from memory into scratch."""
        slots = self.target.uvu_slots["x"]
        for name in self.direction.reading("x"):
            for n, channels in slots.channels.items():
                self.b.call(load(channels), self.rows[name][slots.start[n]], view(self.scratch[name], slots.place[n]))

    def call_paths(self, slot: int, z: st.View | None) -> None:
        """Call the functions of all paths to one slot of z; paths write their output to `z`, or add it in scratch."""
        b, direction, slots = self.b, self.direction, self.target.uvu_slots["z"]
        if "gz" in direction.reads:
            b.call(load(slots.channels[slot]), self.rows["gz"][slots.start[slot]], view(self.scratch["gz"]))
        adds = z is not None and z.array.space == "local"
        for path in self.target.uvu_paths_to(slot):
            names = uvu.parameters(path.shape, direction, adds)
            arguments = (self._argument(path, name, z) for name in names)
            weight = const(path.path_weight, self.target.dtype)
            b.call(uvu.function(path.shape, direction.of_edge, adds), weight, *arguments)

    def _argument(self, path: ChannelPath, name: str, z: st.View | None) -> st.View:
        if name == self.direction.output and z is not None:
            return z
        if name == "gy":
            return view(self.scratch["gy"], path.y)
        if name[-1] in "wy":
            return self.rows[name][path.w if name[-1] == "w" else path.y]
        return view(self.scratch[name], 0 if name == "gz" else self.target.uvu_slots["x"].place[path.i_in1])

    def store_slots(self, name: str, source: Array) -> None:
        """Store all slots of z or gx from scratch in memory; slots that no path reaches are set to zero."""
        slots = self.target.uvu_slots[name[-1]]
        for n, channels in slots.channels.items():
            self.b.call(store(channels), self.rows[name][slots.start[n]], view(source, slots.place[n]))
        self.clear_unreached(name)

    def clear_unreached(self, name: str) -> None:
        """Set the slots of z or gx in memory that no path reaches to zero."""
        row, slots = self.rows[name], self.target.uvu_slots[name[-1]]
        for number, part in enumerate(self.target.problem.irreps_of(name).slices):
            if number not in slots.channels and part.stop > part.start:
                with self.b.loop("at", part.stop, begin=part.start) as at:
                    self.b.store(row.array[row.start + at], 0)

    def store_gy(self) -> None:
        """Store the sums of gy over the lanes in memory."""
        row = self.rows["gy"]
        for j in range(self.target.problem.dims[1]):
            self.b.store(row.array[row.start + j], 0)
            self.b.accumulate(row.array[row.start + j], self.scratch["gy"][j])


def edge_writer(
    b: Builder, target: ProductTarget, direction: Direction, numbers: Mapping[str, Value], share: Value
) -> EdgeWriter:
    """Return the writer of an edge, and declare its scratch except that of gx.

    `numbers` has the row of the edge in the operands of each kind, which is 0 for shared weights; gradients of shared
    weights are added to row `share`.
    """
    rows = {}
    for name in direction.operands:
        number = numbers[name[-1]]
        if name[-1] == "w" and target.problem.shared_weights:
            number = share if name == "gw" else index(0)
        rows[name] = ArrayRow(memory(name, target.dtype), number * target.problem.row_length(name))
    widest = max((slot.size for slot in target.uvu_slots["z"].channels.values()), default=0)
    sizes = dict.fromkeys(direction.reading("x"), target.uvu_slots["x"].size)
    sizes |= dict.fromkeys(direction.reading("z"), widest)
    sizes |= {"gy": target.problem.dims[1]} if direction.gradients else {}
    scratch = {name: declare_vectors(b, f"{name}s", size, target.dtype) for name, size in sizes.items()}
    return EdgeWriter(b, target, direction, rows, scratch)
