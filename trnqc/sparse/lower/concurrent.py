"""The functions of a program as kernels whose blocks of lanes run at the same time, as on a GPU.

A block takes every n-th turn of the outermost loop, where n is the number of blocks, and has workspaces of its own.
Where the turns append to a sparse result, a block takes consecutive turns and appends to a part of the result that is
its own, so that the parts follow one another in the order of the CPU.

All lanes of a block run all statements: one of them adds to an element, and they wait for each other before each
statement that uses memory which a lane has written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from trnqc.errors import ProgramError
from trnqc.gen import Array, Value, Var
from trnqc.gen import statements as st
from trnqc.gen.build import Builder
from trnqc.gen.values import lt, walk
from trnqc.sparse.lower.append import CAPACITY
from trnqc.sparse.lower.pieces import Piece
from trnqc.sparse.lower.program import nest_program
from trnqc.sparse.lower.state import ONE
from trnqc.sparse.lower.tensors import ProgramTensors
from trnqc.sparse.lower.workspace import STATUS, WorkspaceArrays
from trnqc.sparse.network.nest import Nest

# The numbers of turns and of blocks, as arguments of a kernel, and the number of a block.
TURNS, BLOCKS, BLOCK = Var("turns", "i64"), Var("blocks", "i64"), Var("block", "i64")
# The entry of a sparse result at which the part of each block begins, and where the last one ends.
EDGES = Array("edges", "i64")


@dataclass(frozen=True)
class ConcurrentPiece:
    """A kernel, the function of a nest that it runs, and the workspaces of which each block has its own."""

    kernel: st.Function
    piece: Piece
    private: tuple[WorkspaceArrays, ...]


@dataclass(frozen=True)
class ConcurrentProgram:
    """The kernels of a nest in the order in which they run, and its tensors."""

    tensors: ProgramTensors
    pieces: tuple[ConcurrentPiece, ...]


def concurrent_program(nest: Nest, lanes: int) -> ConcurrentProgram:
    """Return the kernels of a nest.

    Parameters
    ----------
    nest
        The nest.
    lanes
        Number of lanes of a block.

    Raises
    ------
    ProgramError
        If the nest does not compute its network, or if a workspace is a hash table.
    """
    program = nest_program(nest, lanes, concurrent=True)
    tensors = program.tensors
    for w in tensors.workspaces.values():
        if w.hashed:
            raise ProgramError(
                f"kernels for GPUs have no workspace in a hash table, such as that of tensor {w.tensor} over "
                f"{','.join(w.spec.order)} in {nest.network}: choose another nest, or run it on the CPU"
            )
    return ConcurrentProgram(tensors, tuple(_kernel(tensors, piece) for piece in program.pieces))


def _kernel(tensors: ProgramTensors, piece: Piece) -> ConcurrentPiece:
    function = piece.function
    arrays = [p for p in function.params if isinstance(p, Array)]
    names = {a.name for a in arrays}
    private = tuple(
        w for w in tensors.workspaces.values() if not w.kept and names.intersection(a.name for a in w.arrays)
    )
    turn = function.group if function.group is not None else Var("once", "i64")
    body = replace(
        function,
        name=f"{function.name}_turn",
        params=(*function.params, turn),
        body=_with_barriers(function),
        group=None,
    )
    b = Builder()
    own: dict[str, Value | st.View] = {a.name: st.view(a[BLOCK * w.extent(a)]) for w in private for a in w.arrays}
    first, end, step = BLOCK, TURNS, BLOCKS
    if piece.appends:
        own |= _own_part(b, tensors)
        first, end, step = TURNS * BLOCK // BLOCKS, b.let("end", TURNS * (BLOCK + 1) // BLOCKS), ONE
    n = b.declare("turn", first)
    with b.loop_while(lt(n, end)):
        b.call(body, *(own.get(st.name_of(p), p) for p in function.params), n)
        b.assign(n, n + step)
    sizes = {s.attr: s for w in private for s in walk((w.size,)) if s.op == "var"}
    known = {st.name_of(p) for p in function.params}
    more = tuple(size for name, size in sizes.items() if name not in known)
    params = tuple(EDGES if p is CAPACITY else p for p in function.params)
    kernel = b.function(function.name, (*params, *more, TURNS, BLOCKS), group=BLOCK)
    return ConcurrentPiece(kernel, piece, private)


def _own_part(b: Builder, tensors: ProgramTensors) -> dict[str, Value | st.View]:
    """Return what a block passes by name for the arrays of a sparse result: its part of each, and the room in it.

    The counts under dense levels are those of all blocks.
    """
    appended = tensors.appended
    assert appended is not None
    begin = b.let("begin", EDGES[BLOCK])
    own: dict[str, Value | st.View] = {a.name: st.view(a[begin]) for a, _ in appended.of_entries}
    own[CAPACITY.attr] = b.let("room", EDGES[BLOCK + 1] - begin)
    own[appended.used.name] = st.view(appended.used[BLOCK * (appended.last + 1)])
    own[STATUS.name] = st.view(STATUS[BLOCK * (tensors.result + 1)])
    return own


def _with_barriers(function: st.Function) -> st.Block:
    """Return the body of a function with a barrier before each statement that uses memory which lanes share.

    This is memory that is read somewhere and written somewhere. What is only added to needs no order.
    """
    touched = [pair for s in st.statements(function.body) for pair in _uses(s)]
    read = {name for name, how in touched if how == "read"}
    written = {name for name, how in touched if how != "read"}
    shared = (read & written) | {name for name, how in touched if how == "write"}
    return _Barriers(frozenset(shared)).block(function.body)


def _uses(s: st.Statement) -> Iterator[tuple[str, str]]:
    """Yield the names of arrays in the memory of a block or of the device that a statement itself uses, and how."""
    for value in walk(st.values(s)):
        if value.op == "load" and _is_shared(value.attr):
            yield value.attr.name, "read"
    match s:
        case st.Store():
            if _is_shared(s.array):
                yield s.array.name, "write"
        case st.Accumulate():
            if _is_shared(s.array):
                yield s.array.name, "add"
        case st.Unpack():
            yield s.source.name, "read"
        case st.Pack():
            yield s.target.name, "write"
        case st.Call():
            for p, argument in zip(s.function.params, map(st.whole, s.arguments)):
                if isinstance(argument, Array):
                    yield argument.name, "read"
                    if st.name_of(p) in s.function.written:
                        yield argument.name, "write"
        case st.GatherRows() | st.ScatterRows():
            raise ProgramError(f"a function of a nest for GPUs has no {type(s).__name__}")


def _is_shared(array: Array) -> bool:
    return array.space != "local" and array.data is None


@dataclass(frozen=True)
class _Barriers:
    """Puts barriers before statements that use one of the arrays `shared`."""

    shared: frozenset[str]

    def block(self, block: st.Block, end: tuple[st.Statement, ...] = ()) -> st.Block:
        return replace(block, body=(*(part for s in block.body for part in self.around(s)), *end))

    def around(self, s: st.Statement) -> Iterator[st.Statement]:
        used = [(name, how) for name, how in _uses(s) if name in self.shared]
        both = {name for name, how in used if how == "read"} & {name for name, how in used if how == "write"}
        if both and not isinstance(s, st.Call):
            raise ProgramError(f"a statement of a nest for GPUs reads and writes {', '.join(sorted(both))}")
        if used:
            yield st.Barrier()
        match s:
            case st.Block():
                yield self.block(s)
            case st.For():
                yield replace(s, body=self.block(s.body))
            case st.While():
                # The condition is evaluated again after the body.
                yield replace(s, body=self.block(s.body, (st.Barrier(),) if used else ()))
            case st.If():
                yield replace(s, then=self.block(s.then), orelse=self.block(s.orelse))
            case st.Call():
                yield replace(s, function=replace(s.function, body=_with_barriers(s.function)))
            case _:
                yield s
