"""Programs of the driver as values: kernel calls, their operands, and the memory that these need.

Operands are named. A name is that of a constant, of a buffer, of a count, or of an array of the structure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from trnqc.jit import CompiledFunction
from trnqc.jit.signature import GROUPS

# Version of the encoding, in program.h too.
VERSION = 3
# Numbers that are known when a structure is: atoms with their copies, atoms that receive, edges, blocks of atoms,
# threads, atoms for each thread, and vectors of edges. In the order of program.h.
COUNTS = ("one", "atoms", "receiving", "edges", "block_count", "threads", "atoms_by_thread", "edge_vectors")
# Arrays of the structure in the order of program.h. structure.h describes them. Those from "row_count" on belong
# to a range of atoms, and rows.h describes them.
ARRAYS = (
    "starts",
    "senders",
    "receivers",
    "elements",
    "vectors",
    "blocks",
    "block_starts",
    "block_elements",
    "nodes",
    "shares",
    "row_count",
    "row_edges",
    "edge_list",
    "edge_rows",
    "runs",
    "block_runs",
)
KERNEL, EXCHANGE, EXCHANGE_REVERSE = range(3)
CONSTANT, BUFFER, COUNT, ARRAY, NUMBER = range(5)
# What is passed for parameters of a kernel by their names: a name, or an integer.
Operands = dict[str, str | int]


@dataclass(frozen=True)
class Buffer:
    """Memory of an evaluation: the sum of the bytes for each of some counts.

    Buffers that are not needed at the same time share it; `cleared` buffers are cleared before their first use.
    """

    size: dict[str, int]
    cleared: bool = False

    def with_room_for(self, other: Buffer) -> Buffer:
        """A buffer that can take the place of both."""
        size = {name: max(self.size.get(name, 0), other.size.get(name, 0)) for name in {**self.size, **other.size}}
        return Buffer(size, self.cleared or other.cleared)


@dataclass(frozen=True)
class DriverStep:
    """A call of a kernel, for all groups of a count.

    Threads share the groups. A parameter that `operands` lacks is passed by the name of the parameter.
    """

    function: CompiledFunction
    groups: str
    operands: Operands = field(default_factory=dict)

    @property
    def values(self) -> tuple[str | int, ...]:
        """The operands of the parameters, in the order of the parameters."""
        names = self.function.signature.names[: -len(GROUPS)]
        return tuple(self.operands.get(name, name) for name in names)


@dataclass(frozen=True)
class AtomPass:
    """Steps that each thread runs for one range of its atoms after another.

    The groups of a step are the threads or the blocks of atoms. Buffers with a row for each receiver, if only the steps
    of one pass use them, have room for the atoms of a range.
    """

    steps: tuple[DriverStep, ...]


@dataclass(frozen=True)
class RowExchange:
    """An exchange of the rows of a buffer with the copies of atoms that other processes compute.

    If `reverse`, the rows of copies are added to those of their atoms, instead of being written.
    """

    buffer: str
    row_bytes: int
    reverse: bool


@dataclass(frozen=True, eq=False)
class DriverProgram:
    """What the driver does for a structure.

    `numbers` are the atomic numbers of the model's elements, 0 for elements that the program does not cover; `cutoff`
    is in Angstrom. An element of the features has `item_bytes` bytes, a vector of edges has `lanes` edges, a block has
    at most `block` atoms, and `row_block` rows of weights are computed at a time. With `paired`, both edges of a pair
    of atoms have the same weights. All evaluations read the arrays `constants`. Among the buffers are ``energies``,
    float64 [atoms], and ``g_vectors``, the gradient of the energy with respect to the vectors, float64 [edges, 3].
    """

    numbers: tuple[int, ...]
    cutoff: float
    item_bytes: int
    block: int
    lanes: int
    row_block: int
    paired: bool
    constants: dict[str, np.ndarray]
    buffers: dict[str, Buffer]
    steps: tuple[DriverStep | AtomPass | RowExchange, ...]

    @property
    def functions(self) -> list[CompiledFunction]:
        """The functions of the steps in their order."""
        return [step.function for step, _ in self._flat() if isinstance(step, DriverStep)]

    def words(self) -> np.ndarray:
        """The program as program.h reads it, int64; functions and constants are numbered in their order."""
        places = [*self.buffers]
        cutoff = int(np.float64(self.cutoff).view(np.int64))
        head = [VERSION, self.item_bytes, self.block, self.lanes, self.row_block, self.paired, cutoff]
        head += [len(self.numbers), *self.numbers, places.index("energies"), places.index("g_vectors"), len(places)]
        sizes = [[buffer.cleared, *(buffer.size.get(name, 0) for name in COUNTS)] for buffer in self.buffers.values()]
        steps = [word for step in self._steps() for word in step]
        return np.array([*head, *(word for size in sizes for word in size), len([*self._flat()]), *steps], np.int64)

    def _flat(self) -> Iterator[tuple[DriverStep | RowExchange, int]]:
        """All steps, and the number of their pass, 0 outside of passes."""
        for number, step in enumerate(self.steps, 1):
            if isinstance(step, AtomPass):
                yield from ((inner, number) for inner in step.steps)
            else:
                yield step, 0

    def _steps(self) -> Iterator[list[int]]:
        """The words of each step."""
        known = {name: (BUFFER, n) for n, name in enumerate(self.buffers)}
        known |= {name: (CONSTANT, n) for n, name in enumerate(self.constants)}
        known |= {name: (COUNT, n) for n, name in enumerate(COUNTS)} | {
            name: (ARRAY, n) for n, name in enumerate(ARRAYS)
        }
        number = 0
        for step, of_pass in self._flat():
            if isinstance(step, RowExchange):
                kind = EXCHANGE_REVERSE if step.reverse else EXCHANGE
                yield [kind, known[step.buffer][1], of_pass, 0, 1, NUMBER, step.row_bytes]
                continue
            operands = [(NUMBER, value) if isinstance(value, int) else known[value] for value in step.values]
            yield [
                KERNEL,
                number,
                of_pass,
                COUNTS.index(step.groups),
                len(operands),
                *(word for pair in operands for word in pair),
            ]
            number += 1
