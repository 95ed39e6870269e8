"""A nest as a compiled function of packed operands.

nest -> program (lower) -> compiled library (jit) -> called with arrays of operands, workspaces and result -> tensor

The iterations of an outermost loop are divided among threads if they write to different elements. Each thread has its
own workspaces, and the parts of a sparse result are joined in order. A sum is never divided, so that the result has the
same bits for any number of threads.
"""

from __future__ import annotations

import math
import queue
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property

import numpy as np

from trnqc.errors import MemoryLimit
from trnqc.gen import Array
from trnqc.host.memory import require_memory
from trnqc.host.threads import in_parallel, parts_of
from trnqc.jit import NUMPY, Library, Recipe, find_compiler, library
from trnqc.jit.compile import Compilation, c_library
from trnqc.jit.load import CompiledFunction
from trnqc.sparse.lower.append import CAPACITY, Appended
from trnqc.sparse.lower.pieces import NestProgram, Piece
from trnqc.sparse.lower.program import nest_program
from trnqc.sparse.lower.tensors import OUT
from trnqc.sparse.lower.workspace import FREE, STATUS, WorkspaceArrays
from trnqc.sparse.network.nest import Nest
from trnqc.sparse.run.arguments import Arguments, arguments_of, turns_of
from trnqc.sparse.run.results import ResultPart, joined, most_elements, shares_of
from trnqc.sparse.tensors.storage import SparseTensor

# Slots of a hash table in the first call. If they are too few, the call is repeated with more.
FIRST_SLOTS = 2**12
# Most entries for which memory of a sparse result is reserved in the first call.
LARGEST_CAPACITY = 2**26
# Most entries that are reserved beyond the bound of a sparse result: a row is appended only if the whole of it fits,
# see `Appended.add_row`. Longer rows may have to be computed again.
LARGEST_SPARE = 2**16
# Factor by which hash tables and sparse results grow, and the number of elements beyond which they do not.
GROWTH, MOST = 4, 2**36

# Most entries of a sparse result for which its memory is bound to functions.
LARGEST_BOUND = 2**21


@dataclass(frozen=True)
class BoundNest:
    """The functions of a nest with all arguments that do not depend on values.

    Attributes
    ----------
    functions
        In order, with their arguments by name, except for arrays of values and those of this class.
    cleared
        Names, lengths and types of arrays that are zero when a call begins.
    appended, capacity
        The levels of a sparse result, and entries that are enough for it.
    """

    functions: tuple[tuple[CompiledFunction, Arguments], ...]
    cleared: tuple[tuple[str, int, str], ...]
    appended: Appended | None = None
    capacity: int = 0


@cache
def compiled(nest: Nest) -> NestKernel:
    """Return the kernel of a nest, one object in a process. It is compiled, or read from the cache, at its first call.

    Raises
    ------
    ProgramError
        If the nest does not compute its network.
    """
    return NestKernel(nest_program(nest, find_compiler().lanes()))


@dataclass(eq=False)
class NestKernel:
    """A program that can be called; `loaded` is its library if it was compiled together with others."""

    program: NestProgram
    loaded: Library | None = None
    _sizes: dict[int, int] = field(default_factory=dict)

    @cached_property
    def recipe(self) -> Recipe:
        return Recipe.of(*(piece.function for piece in self.program.pieces), name="sparse")

    @cached_property
    def source(self) -> str:
        """The C source for the vectors of this machine."""
        return Compilation(self.recipe, c_library()).text

    @cached_property
    def library(self) -> Library:
        return self.loaded or library(self.recipe)

    def __call__(self, operands: Sequence[SparseTensor], threads: int = 1) -> np.ndarray | SparseTensor:
        """Compute the nest from operands packed in its formats, with axes in the order of their subscripts.

        Returns an array in the order of the output if the format of the result is dense, else a tensor in this format.
        Raises OperandError for operands of other shapes or formats, MemoryLimit if a workspace or the result exceeds
        the memory.
        """
        arguments = arguments_of(self.program.tensors, operands)
        try:
            while True:
                call = _Call(self, operands, arguments, threads)
                if call.fits():
                    return call.result()
        except MemoryLimit:
            raise
        except MemoryError as error:
            raise MemoryLimit(f"{self.program.nest.network} does not fit in memory: {error}") from error

    def bound(self, operands: Sequence[SparseTensor]) -> BoundNest | None:
        """Bind all that does not depend on values, for operands packed in the formats of the nest.

        None is returned for nests with hash tables, with functions that run over lists, with large sparse results, and
        with sparse results to which several functions append.
        """
        nest, tensors, appended = self.program.nest, self.program.tensors, self.program.tensors.appended
        listed = any(piece.over == "list" for piece in self.program.pieces)
        if listed or any(w.hashed for w in tensors.workspaces.values()):
            return None
        call = _Call(self, operands, arguments_of(self.program.tensors, operands), threads=1)
        capacity = 0
        if appended:
            # The bound holds for all values. Rows are appended only if there is room for the whole of them.
            capacity = most_elements(nest, operands)[0] + call.shape[-1]
            if capacity > LARGEST_BOUND or sum(piece.appends for piece in self.program.pieces) != 1:
                return None
            parents = math.prod(call.shape[: appended.first])
            cleared = [
                (STATUS.name, tensors.result + 1, "int64"),
                (appended.counts(appended.first).name, parents, "int64"),
            ]
        else:
            cleared = [(OUT.name, math.prod(call.shape), NUMPY[OUT.dtype])]
        for w in tensors.workspaces.values():
            cleared += [(x.name, w.length(x), NUMPY[x.dtype]) for x in w.arrays]
        later = {name for name, *_ in cleared} | {operand.values.name for operand in tensors.operands}
        later |= {x.name for x in appended.arrays} if appended else set()
        functions = []
        for piece in self.program.pieces:
            function = getattr(self.library, piece.function.name)
            own = call.common | {"groups_begin": 0, "groups_end": call.groups(piece), CAPACITY.attr: capacity}
            functions.append((function, {x: own[x] for x in function.signature.names if x not in later}))
        return BoundNest(tuple(functions), tuple(cleared), appended, capacity)

    def size(self, tensor: int, first: int) -> int:
        """Return the size of a hash table in elements, or the factor of that of a sparse result; `first` at first."""
        return self._sizes.setdefault(tensor, first)

    def grow(self, tensor: int) -> None:
        """Increase what `size` returns. Raises MemoryLimit beyond MOST."""
        size = self._sizes[tensor] = GROWTH * self._sizes[tensor]
        if size > MOST:
            raise MemoryLimit(
                f"the memory for tensor {tensor} of {self.program.nest.network} cannot grow any more: choose another "
                "tree or other loops"
            )


class _Call:
    """One call of a kernel: its workspaces, and the parts of the result."""

    def __init__(
        self, kernel: NestKernel, operands: Sequence[SparseTensor], arguments: Arguments, threads: int
    ) -> None:
        self.kernel, self.operands, self.threads = kernel, operands, threads
        self.program, self.nest, self.tensors = kernel.program, kernel.program.nest, kernel.program.tensors
        self.shape = self.nest.network.shape(self.nest.formats[-1].order)
        self.common = dict(arguments)
        for workspace in self.tensors.workspaces.values():
            self.common |= self._workspace(workspace) if workspace.kept else {}
        self.parts: list[ResultPart] = []
        self.small: set[int] = set()
        if self.tensors.appended is None:
            require_memory(8 * math.prod(self.shape), f"the dense result of {self.nest.network}")
            self.common[OUT.name] = np.zeros(math.prod(self.shape))

    def fits(self) -> bool:
        """Run all functions; False if a hash table or the result was too small, which grows for the next call."""
        for piece in self.program.pieces:
            self._run(piece)
            for tensor in sorted(self.small):
                self.kernel.grow(tensor)
            if self.small:
                return False
        return True

    def result(self) -> np.ndarray | SparseTensor:
        order, output = self.nest.formats[-1].order, self.nest.network.output
        if self.tensors.appended is None:
            return self.common[OUT.name].reshape(self.shape).transpose([order.index(x) for x in output])
        modes = tuple(output.index(x) for x in order)
        tensor = joined(self.nest.network.shape(output), modes, self.parts)
        return tensor.repack(modes, self.nest.formats[-1].kinds)

    def _run(self, piece: Piece) -> None:
        groups = self.groups(piece)
        count = parts_of(groups, 1, self.threads) if piece.divisible else 1
        function = getattr(self.kernel.library, piece.function.name)
        bounds = [groups * n // count for n in range(count + 1)]
        results = self._result_parts(piece, bounds) if piece.appends else []
        private = [w for w in self.tensors.workspaces.values() if not w.kept and _uses(piece, w)]
        spare: queue.SimpleQueue[Arguments] = queue.SimpleQueue()

        def run_part(n: int) -> None:
            try:
                arguments = spare.get_nowait()
            except queue.Empty:
                arguments = self.common | {STATUS.name: np.zeros(self.tensors.result + 1, np.int64)}
                for workspace in private:
                    arguments |= self._workspace(workspace)
            own = arguments | (results[n].arguments if results else {})
            own |= {"groups_begin": bounds[n], "groups_end": bounds[n + 1]}
            function(**{name: own[name] for name in function.signature.names})
            self.small.update(np.nonzero(own[STATUS.name])[0].tolist())
            spare.put(arguments)

        in_parallel(run_part, count, self.threads)
        self.parts += results

    def groups(self, piece: Piece) -> int:
        """Return the number of groups of a function. If they are the entries of a list, the list is sorted first."""
        if piece.over != "list":
            return turns_of(piece, self.nest.network, self.operands)
        workspace = self.tensors.workspaces[int(piece.of)]
        touched = self.common[workspace.touched.name][: int(self.common[workspace.counts.name][0])]
        keys = self.common.get(workspace.keys.name)
        touched[:] = touched[np.argsort(touched if keys is None else keys[touched])]
        return len(touched)

    def _result_parts(self, piece: Piece, edges: Sequence[int]) -> list[ResultPart]:
        """Reserve memory of a sparse result for ranges of groups, in proportion to the elements of operands in each."""
        appended = self.tensors.appended
        assert appended is not None
        bound, shares = shares_of(self.nest, self.operands, piece, np.array(edges))
        factor = self.kernel.size(self.tensors.result, 1)
        capacity = max(1, min(bound, LARGEST_CAPACITY)) * factor
        prefix = self.common.setdefault("prefix", np.zeros(math.prod(self.shape[: appended.first]), np.int64))
        spare = min(self.shape[-1], LARGEST_SPARE)
        # The memory of a range without elements grows as well: dense rows of the result may have zeros there.
        sizes = [max(factor, math.ceil(capacity * share)) + spare for share in shares]
        return ResultPart.empty(appended, sizes, prefix)

    def _workspace(self, workspace: WorkspaceArrays) -> Arguments:
        slots = self.kernel.size(workspace.tensor, FIRST_SLOTS) if workspace.hashed else 0
        size = slots or workspace.elements
        require_memory(8 * size, f"the workspace of tensor {workspace.tensor} over {workspace.spec.order}")
        arguments: Arguments = {workspace.room.attr: slots}
        for array in workspace.arrays:
            length = slots if slots and array != workspace.counts else workspace.length(array)
            arguments[array.name] = np.zeros(length, NUMPY[array.dtype])
        if workspace.hashed:
            arguments[workspace.keys.name][:] = FREE
        return arguments


def _uses(piece: Piece, workspace: WorkspaceArrays) -> bool:
    names = {p.name for p in piece.function.params if isinstance(p, Array)}
    return any(array.name in names for array in workspace.arrays)
