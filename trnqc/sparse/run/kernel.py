"""A nest as a compiled function of packed operands.

nest -> program (lower.py) -> C -> library -> arrays of operands, workspaces and result handed over -> tensor

Turns of an outermost loop that write to places of their own are divided among threads in parts, each with its own
workspaces; parts of a sparse result are joined in order. A sum is never divided, so the result has the same bits
whatever the number of threads.
"""

from __future__ import annotations

import math
import queue
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np

from trnqc.errors import MemoryLimit, OperandError
from trnqc.gen import Array, emit_c
from trnqc.gen import statements as st
from trnqc.host.memory import require_memory
from trnqc.host.threads import in_parallel, parts_of
from trnqc.jit import NUMPY, Library, Recipe, find_compiler, library
from trnqc.sparse.lower.program import Piece, Program, program
from trnqc.sparse.lower.workspace import FREE, Space
from trnqc.sparse.network.nest import Format, Nest
from trnqc.sparse.network.network import Indices
from trnqc.sparse.run.results import Result, joined
from trnqc.sparse.tensors.storage import Compressed, SparseTensor

# Places of a table to begin with, and the most entries of a sparse result; either grows when it was too small.
FIRST_ROOM = 2**12
LARGEST_CAPACITY = 2**26
# How much at a time, and elements that either may grow to.
GROWTH, MOST = 4, 2**36

Arguments = dict[str, Any]


@cache
def compiled(nest: Nest) -> Kernel:
    """The kernel of a nest, made once a process. Compiled at its first call, or taken from the cache of libraries.

    Errors: ProgramError for a nest that means nothing.
    """
    return Kernel(program(nest, find_compiler().lanes()))


@dataclass(eq=False)
class Kernel:
    """`kernel(operands, threads)` computes the nest; `source` is its text. loaded: functions compiled elsewhere."""

    program: Program
    loaded: Library | None = None
    _sizes: dict[int, int] = field(default_factory=dict)

    @cached_property
    def source(self) -> str:
        """C for this machine's vectors."""
        return emit_c(*(piece.function for piece in self.program.pieces), lanes=find_compiler().lanes())

    @cached_property
    def library(self) -> Library:
        functions = [piece.function for piece in self.program.pieces]
        return self.loaded or library(Recipe.of(*functions, name="sparse"))

    def __call__(self, operands: Sequence[SparseTensor], threads: int = 1) -> np.ndarray | SparseTensor:
        """The result: an array with axes as the network's output where its format is dense, else packed in it.

        operands: packed in the formats of the nest, axes in the order of their subscripts. Errors: OperandError for
        operands in other formats, MemoryLimit where a workspace or the result does not fit.
        """
        given = self._operands(operands)
        try:
            while True:
                run = _Run(self, operands, given, threads)
                if run.fits():
                    return run.result()
        except MemoryLimit:
            raise
        except MemoryError as error:
            raise MemoryLimit(f"{self.program.nest.network} does not fit in memory: {error}") from error

    def _operands(self, operands: Sequence[SparseTensor]) -> Arguments:
        network, formats = self.program.nest.network, self.program.nest.formats[:-1]
        if len(operands) != len(formats):
            raise OperandError(f"{network} has {len(formats)} operands; found {len(operands)}")
        arguments: Arguments = {f"n_{index}": extent for index, extent in network.sizes}
        for t, (tensor, wanted) in enumerate(zip(operands, formats)):
            _check(t, tensor, wanted, network.inputs[t], network.shape(network.inputs[t]))
            for index, level in zip(wanted.order, tensor.levels):
                if isinstance(level, Compressed):
                    arguments[f"pos{t}_{index}"] = level.positions
                    arguments[f"idx{t}_{index}"] = level.coordinates
            if tensor.values is not None:
                arguments[f"val{t}"] = tensor.values
        return arguments

    def size(self, tensor: int, first: int) -> int:
        """Elements of a table or of a sparse result, which grow."""
        return self._sizes.setdefault(tensor, first)

    def grow(self, tensor: int) -> None:
        size = self._sizes[tensor] = GROWTH * self._sizes[tensor]
        if size > MOST:
            raise MemoryLimit(
                f"tensor {tensor} of {self.program.nest.network} needs more than {size // GROWTH} elements, the most "
                "that are tried: choose another tree or other loops"
            )


def _check(t: int, tensor: SparseTensor, wanted: Format, labels: tuple[str, ...], shape: tuple[int, ...]) -> None:
    order = tuple(labels[mode] for mode in tensor.order)
    if tensor.shape != shape:
        raise OperandError(f"operand {t} ({''.join(labels)}) must have the shape {shape}; found {tensor.shape}")
    if order != wanted.order or tensor.kinds != wanted.kinds:
        found = Format(order, tensor.kinds)
        raise OperandError(f"operand {t} must be packed as {wanted}; found {found}: repack it")
    if tensor.values is None and not wanted.ones:
        raise OperandError(f"operand {t} needs values; found a 0/1 map")


class _Run:
    """One call: its workspaces and what it has made."""

    def __init__(self, kernel: Kernel, operands: Sequence[SparseTensor], given: Arguments, threads: int) -> None:
        self.kernel, self.program, self.operands, self.threads = kernel, kernel.program, operands, threads
        nest = self.program.nest
        self.shape = nest.network.shape(nest.formats[-1].order)
        self.common = dict(given)
        for space in self.program.spaces:
            self.common |= self._workspace(space) if space.kept else {}
        self.parts: list[Result] = []
        self.small: set[int] = set()
        if self.program.appended is None:
            require_memory(8 * math.prod(self.shape), f"the dense result of {nest.network}")
            self.common["out"] = np.zeros(math.prod(self.shape))

    def fits(self) -> bool:
        """Runs all pieces; False where a table or the result was too small, which the next run's are not."""
        for piece in self.program.pieces:
            self._run(piece)
            for tensor in sorted(self.small):
                self.kernel.grow(tensor)
            if self.small:
                return False
        return True

    def result(self) -> np.ndarray | SparseTensor:
        nest = self.program.nest
        order, output = nest.formats[-1].order, nest.network.output
        if self.program.appended is None:
            return self.common["out"].reshape(self.shape).transpose([order.index(x) for x in output])
        modes = tuple(output.index(x) for x in order)
        tensor = joined(nest.network.shape(output), modes, self.program.stored, self.parts)
        return tensor.repack(modes, nest.formats[-1].kinds)

    def _run(self, piece: Piece) -> None:
        groups = self._groups(piece)
        count = parts_of(groups, 1, self.threads) if piece.divisible else 1
        function = getattr(self.kernel.library, piece.function.name)
        bounds = [groups * n // count for n in range(count + 1)]
        results = self._parts_of_result(piece, bounds) if piece.appends else []
        private = [space for space in self.program.spaces if not space.kept and _uses(piece, space)]
        spare: queue.SimpleQueue[Arguments] = queue.SimpleQueue()

        def part(n: int) -> None:
            try:
                arguments = spare.get_nowait()
            except queue.Empty:
                arguments = self.common | {"status": np.zeros(self.program.tensors, np.int64)}
                for space in private:
                    arguments |= self._workspace(space)
            own = arguments | (results[n].arguments if results else {})
            tail = [] if piece.function.group is None else [bounds[n], bounds[n + 1]]
            function(*(own[st.name_of(p)] for p in piece.function.params), *tail)
            self.small.update(np.nonzero(own["status"])[0].tolist())
            spare.put(arguments)

        in_parallel(part, count, self.threads)
        self.parts += results

    def _groups(self, piece: Piece) -> int:
        if piece.over == "once":
            return 1
        if piece.over == "index":
            return self.program.nest.network.extents[str(piece.of)]
        if piece.over == "level":
            order = self.program.nest.formats[int(piece.of)].order
            return len(self.common[f"idx{piece.of}_{order[0]}"])
        count = int(self.common[f"count{piece.of}"][0])
        touched = self.common[f"list{piece.of}"][:count]
        keys = self.common.get(f"key{piece.of}")
        touched[:] = touched[np.argsort(touched if keys is None else keys[touched])]
        return count

    def _parts_of_result(self, piece: Piece, edges: Sequence[int]) -> list[Result]:
        """Room for ranges of groups, by what operands allow in each."""
        appended = self.program.appended
        assert appended is not None
        bound, leading = self._bound()
        capacity = self.kernel.size(self.program.tensors - 1, max(1, min(bound, LARGEST_CAPACITY)))
        under = np.array(edges) if leading is None or piece.over != "index" else self._under(*leading, np.array(edges))
        shares = np.diff(under) / max(1, under[-1] - under[0])
        prefix = self.common.setdefault("prefix", np.zeros(math.prod(self.shape[: appended.first]), np.int64))
        return Result.empty(appended, [max(1, math.ceil(capacity * share)) for share in shares], prefix)

    def _bound(self) -> tuple[int, tuple[int, int] | None]:
        """Elements that the result cannot exceed: what operands store over some of its indices, times other extents.

        The second is the operand that bounds the outermost index, and how many of its levels were taken.
        """
        network, formats = self.program.nest.network, self.program.nest.formats
        bound, left, leading = 1, set(network.output), None
        covers: list[tuple[Indices, int, int]] = [((x,), network.extents[x], -1) for x in network.output]
        for t, (f, tensor) in enumerate(zip(formats, self.operands)):
            covers += [(f.order[: level + 1], size, t) for level, size in enumerate(tensor.sizes)]
        for order, size, t in sorted(covers, key=lambda c: c[1] / max(1, math.prod(network.shape(c[0])))):
            if set(order) <= left:
                bound, left = bound * size, left - set(order)
                leading = (t, len(order)) if t >= 0 and self._leads(t) else leading
        return bound, leading

    def _leads(self, tensor: int) -> bool:
        f = self.program.nest.formats[tensor]
        return f.order[0] == self.program.stored.order[0] and f.kinds[0] == "dense"

    def _under(self, tensor: int, levels: int, edges: np.ndarray) -> np.ndarray:
        """Positions of an operand's level where those under coordinates `edges` of its first, dense level begin."""
        for level in self.operands[tensor].levels[1:levels]:
            edges = level.positions[edges] if isinstance(level, Compressed) else edges * level.size
        return edges

    def _workspace(self, space: Space) -> Arguments:
        room = self.kernel.size(space.tensor, FIRST_ROOM) if space.hashed else 0
        size = room or max(1, math.prod(self.program.nest.network.shape(space.spec.order)))
        require_memory(8 * size, f"the workspace of tensor {space.tensor} over {space.spec.order}")
        made: Arguments = {f"room{space.tensor}": room}
        for array in space.arrays:
            made[array.name] = np.zeros(1 if array.name.startswith("count") else size, NUMPY[array.dtype])
        if space.hashed:
            made[space.keys.name][:] = FREE
        return made


def _uses(piece: Piece, space: Space) -> bool:
    names = {p.name for p in piece.function.params if isinstance(p, Array)}
    return any(array.name in names for array in space.arrays)
