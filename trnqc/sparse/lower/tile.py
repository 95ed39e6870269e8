"""Sums of rows in registers: the terms that inner loops add to a part of a row are summed in vectors and added once.

The loops R of an assignment sum, and a last loop inside them is over all values of an index v that its target and some
of its operands store contiguously: target[.., v] += sum over R of scalar * row[v]. The loop over ranges of v is moved
outside R. If the next loop outside R is over all values of an index of the target, and R has the same iterations for
all of them, several rows are processed together, so that a vector is loaded once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import reduce
from operator import mul

from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen.build import Builder
from trnqc.gen.values import both, eq, fma, invert, lane, lt
from trnqc.sparse.lower.state import LoweringState, RowLoops, RowTile
from trnqc.sparse.lower.tensors import ProgramTensors
from trnqc.sparse.network.loops import NestLeaf, NestLoop, Node

# Rows of a block, vectors of each of its rows, and vectors of a single row. With the operands' vectors and the scalars,
# a block occupies at most three quarters of 32 vector registers.
ROWS, WIDE, LONG = 4, 4, 12

# Adds the loops R for a state with a tile; inside them it calls `add_products`.
Sums = Callable[[NestLoop, LoweringState], None]


def row_loops(tensors: ProgramTensors, node: NestLoop) -> RowLoops | None:
    """Return the loops from `node` on as `RowLoops`; None if they do not have the form that the module describes."""
    chain = [node]
    while len(chain[-1].body) == 1 and isinstance(chain[-1].body[0], NestLoop):
        chain.append(chain[-1].body[0])
    if len(node.members) > 1 or len(chain) < 2:
        return None
    member, v, inner = node.members[0], chain[-1].index, chain[:-1]
    target = tensors.target(member)
    order = tensors.order(target)
    if not tensors.is_array(target) or order[-1:] != (v,) or not _contiguous(tensors, member, v):
        return None
    if not any(loop.index in order for loop in inner):
        return RowLoops(member, v, None, node, _writes_all(tensors, node, {v}))
    row = inner[0].index
    alike = len(inner) > 1 and row in order and not any(loop.index in order for loop in inner[1:])
    if not alike or not _stored_alike(tensors, member, row):
        return None
    return RowLoops(member, v, row, chain[1], _writes_all(tensors, node, {v, row}))


def writes_all(tensors: ProgramTensors, node: Node) -> bool:
    """Whether these loops write every element of a workspace once in a turn, so that it need not be cleared."""
    loops = row_loops(tensors, node) if isinstance(node, NestLoop) else None
    return loops is not None and loops.once


def _writes_all(tensors: ProgramTensors, node: NestLoop, written: set[str]) -> bool:
    target = tensors.target(node.members[0])
    if target not in tensors.workspaces or node.depth != tensors.nest.fused(target) or not node.depth:
        return False
    return set(tensors.order(target)) == written


def _contiguous(tensors: ProgramTensors, member: int, v: str) -> bool:
    """Whether some operands have the index, and all of these store it contiguously."""
    rows = [t for t in tensors.nest.assignments[member].operands if v in tensors.order(t)]
    return v in tensors.extents.constants and bool(rows) and all(tensors.is_row(t, v) for t in rows)


def _stored_alike(tensors: ProgramTensors, member: int, row: str) -> bool:
    """Whether all operands with this index are arrays, so that sums have the same iterations for all its values."""
    operands = tensors.nest.assignments[member].operands
    return all(tensors.is_array(t) for t in operands if row in tensors.order(t))


def write_rows(b: Builder, tensors: ProgramTensors, loops: RowLoops, state: LoweringState, sums: Sums) -> None:
    """Add the loops over all ranges and rows, around those that `sums` adds."""
    for start, vectors, used in _ranges(b, tensors, loops.v, LONG if loops.row is None else WIDE):
        if loops.row is None:
            _write_tile(b, tensors, _tile(b, loops, start, vectors, used, 1), state, sums)
            continue
        row, end = Var(loops.row, "i64"), tensors.extents.value(loops.row)
        inner = state.bind(loops.row, row)
        whole = b.let(b.fresh("whole", "i64"), end // ROWS * ROWS)
        with b.loop(row, whole, step=ROWS):
            _write_tile(b, tensors, _tile(b, loops, start, vectors, used, ROWS), inner, sums)
        with b.loop(row, end, begin=whole):
            _write_tile(b, tensors, _tile(b, loops, start, vectors, used, 1), inner, sums)


def add_row(b: Builder, tensors: ProgramTensors, node: NestLoop, state: LoweringState) -> bool:
    """Add a single loop by vectors that adds to a row: target[.., v] += scalar * row[v]. Returns False for others.

    Rows are whole vectors, and not many of them: compilers do as well for the others.
    """
    member, v = node.members[0], node.index
    if len(node.members) > 1 or not isinstance(node.body[0], NestLeaf) or tensors.concurrent:
        return False
    target = tensors.target(member)
    counted = target in tensors.workspaces and tensors.workspaces[target].counted
    if counted or not tensors.is_array(target) or tensors.order(target)[-1:] != (v,):
        return False
    vectors, rest = divmod(tensors.extents.sizes[v], tensors.lanes)
    if rest or not 0 < vectors <= LONG or not _contiguous(tensors, member, v):
        return False
    loops = RowLoops(member, v, None, node, once=False)
    registers = b.array("held", "f64", (vectors,), lanes=True)
    tile = RowTile(loops, const(0, "i64"), vectors, tensors.lanes, 1, registers)
    array, order, zero = tensors.array(target), tensors.order(target), const(0, "i64")
    places = [tensors.extents.offset(order, _bound(tensors, tile, state, 0, n)) for n in range(vectors)]
    for n, at in enumerate(places):
        b.add(st.Unpack(registers, zero + n, array, at, 1, 1, tensors.lanes))
    add_products(b, tensors, tile, state)
    for n, at in enumerate(places):
        b.add(st.Pack(array, at, registers, zero + n, 1, 1, tensors.lanes))
    return True


def _ranges(b: Builder, tensors: ProgramTensors, v: str, most: int) -> Iterator[tuple[Value, int, int]]:
    """Yield (start, vectors, lanes used of the last) inside a loop over ranges of equal length, and for the rest."""
    extent, lanes = tensors.extents.sizes[v], tensors.lanes
    vectors = -(-extent // lanes)
    if not vectors:
        return
    each = -(-vectors // -(-vectors // most))
    width = each * lanes
    whole = extent // width * width
    if whole == width:
        yield const(0, "i64"), each, lanes
    elif whole:
        with b.loop("start", whole, step=width) as start:
            yield start, each, lanes
    if rest := extent - whole:
        yield const(whole, "i64"), -(-rest // lanes), (rest - 1) % lanes + 1


def _tile(b: Builder, loops: RowLoops, start: Value, vectors: int, used: int, rows: int) -> RowTile:
    """Return registers that are zero."""
    registers = b.array("held", "f64", (rows * vectors,), lanes=True)
    for n in range(rows * vectors):
        b.store(registers[n], 0.0)
    return RowTile(loops, start, vectors, used, rows, registers)


def _write_tile(b: Builder, tensors: ProgramTensors, tile: RowTile, state: LoweringState, sums: Sums) -> None:
    """Compute the sums of a tile, and add them to the target."""
    sums(tile.loops.sums, replace(state, tile=tile))
    target = tensors.target(tile.loops.member)
    array, registers = tensors.array(target), tile.registers
    for row in range(tile.rows):
        for vector in range(tile.vectors):
            n, lanes = row * tile.vectors + vector, tile.lanes(vector, tensors.lanes)
            at = tensors.extents.offset(tensors.order(target), _bound(tensors, tile, state, row, vector))
            if tensors.of_all_turns(target):
                where = None if lanes == tensors.lanes else lt(lane(), lanes)
                b.add(st.accumulate(array[at + lane()], registers[n], where))
                continue
            if not tile.loops.once:
                b.store(registers[n], registers[n] + _vector(b, f"old{target}", array, at, lanes))
            b.add(st.Pack(array, at, registers, const(n, "i64"), 1, 1, lanes))


def _bound(tensors: ProgramTensors, tile: RowTile, state: LoweringState, row: int, vector: int) -> Mapping[str, Value]:
    """Return the values of the indices at the first element of a vector."""
    bound = {**state.bound, tile.loops.v: tile.start + vector * tensors.lanes}
    if tile.loops.row is not None and row:
        bound[tile.loops.row] = bound[tile.loops.row] + row
    return bound


def _vector(b: Builder, stem: str, array: Array, at: Value, lanes: int) -> Value:
    """Load a vector, of which `lanes` lanes are used."""
    vector = b.array(stem, "f64", (1,), lanes=True)
    b.add(st.Unpack(vector, const(0, "i64"), array, at, 1, 1, lanes))
    return vector[0]


def add_products(b: Builder, tensors: ProgramTensors, tile: RowTile, state: LoweringState) -> None:
    """Add the statements inside the loops R: each vector of the range times the scalar of each row."""
    v, row = tile.loops.v, tile.loops.row
    operands = tensors.nest.assignments[tile.loops.member].operands
    vectors = [t for t in operands if v in tensors.order(t)]
    scalars = [t for t in operands if t not in vectors]
    common = [t for t in scalars if tile.rows == 1 or row not in tensors.order(t)]
    with ExitStack() as reads:
        values: list[Value] = []
        for t in common:
            if t in tensors.workspaces:
                values.append(reads.enter_context(tensors.workspaces[t].read(b, state, strict=False)))
            else:
                values += tensors.operands[t].factor(state)
        factors = [
            [*values, *(tensors.element(t, _bound(tensors, tile, state, n, 0)) for t in scalars if t not in common)]
            for n in range(tile.rows)
        ]
        _add_scaled(b, tensors, tile, state, vectors, factors)


def _add_scaled(
    b: Builder,
    tensors: ProgramTensors,
    tile: RowTile,
    state: LoweringState,
    vectors: Sequence[int],
    factors: Sequence[list[Value]],
) -> None:
    """Add the products of the operands `vectors` and the factors of each row to the registers."""
    scalars = [b.let(b.fresh("scale", "f64"), reduce(mul, values)) if values else const(1.0) for values in factors]
    if not all(factors) or not _mostly_zero(tensors, tile):
        _add_vectors(b, tensors, tile, state, vectors, scalars, factors)
        return
    with b.when(invert(reduce(both, [eq(scalar, 0.0) for scalar in scalars]))):
        _add_vectors(b, tensors, tile, state, vectors, scalars, factors)


def _add_vectors(
    b: Builder,
    tensors: ProgramTensors,
    tile: RowTile,
    state: LoweringState,
    vectors: Sequence[int],
    scalars: Sequence[Value],
    factors: Sequence[list[Value]],
) -> None:
    for vector in range(tile.vectors):
        loaded: dict[tuple[int, int], Value] = {}
        for row, scalar in enumerate(scalars):
            keys = [(t, row if tile.loops.row in tensors.order(t) else 0) for t in vectors]
            for t, own in keys:
                if (t, own) not in loaded:
                    array, at = _start(tensors, tile, state, t, own, vector)
                    loaded[t, own] = _vector(b, f"v{t}", array, at, tile.lanes(vector, tensors.lanes))
            product, total = reduce(mul, [loaded[key] for key in keys]), tile.registers[row * tile.vectors + vector]
            b.store(total, fma(product, scalar, total) if factors[row] else total + product)


def _start(
    tensors: ProgramTensors, tile: RowTile, state: LoweringState, tensor: int, row: int, vector: int
) -> tuple[Array, Value]:
    """Return where a vector of an operand begins. Positions in operands are positions for the first row of the tile."""
    if tile.rows > 1 and tile.loops.row in tensors.order(tensor):
        offset = tensors.extents.offset(tensors.order(tensor), _bound(tensors, tile, state, row, vector))
        return tensors.array(tensor), offset
    return tensors.row(tensor, tile.loops.v, tile.start + vector * tensors.lanes, state)


def _mostly_zero(tensors: ProgramTensors, tile: RowTile) -> bool:
    """Whether a scalar is read from a workspace, many elements of which may be zero."""
    return any(
        t in tensors.workspaces and tensors.order(t) and tile.loops.v not in tensors.order(t)
        for t in tensors.nest.assignments[tile.loops.member].operands
    )
