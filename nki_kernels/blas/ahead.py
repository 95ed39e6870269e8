"""Items of triangular systems, whose operands are loaded one item ahead.

An item multiplies ``panel`` rows of both operands for a block of any number of columns. Both operands lie on chip in
two chunks, the first and the last rows. A block that does not fit PSUM is computed in rounds, which share the left
operand:

    round 1:  products of the first rows, products of the last rows, tiles of the result
    round 2:  products of the first rows, load of the next item's first rows,
              products of the last rows, load of the next item's last rows, tiles of the result

The loads of the next item stand before the last stores of this item, so that they need not wait for these. The next
item must therefore not read what this item stores (``solve_plan``). Where the work list cannot be ordered like that,
an item begins with its own loads.

The right operand is loaded in fp32 and split into its parts on chip, because the results that it consists of would
otherwise have to be stored twice, as the result and as parts. GpSimd, which has nothing else to do, subtracts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nki_kernels.blas.blocks import BANKS, FACTORS, RUN, P, finish, load, load_previous, multiply, round_to_parts
from nki_kernels.lang import nisa, nl

CHUNKS = 2  # chunks into which the rows of an item are divided


@dataclass
class Item(nl.NKIObject):
    """What the items of one loop have in common."""

    kind: Any  # the `Kind` of the blocks
    rounds: Any  # tiles of each round, at most as many as there are PSUM banks
    chunks: Any  # (turn, first block of 128 rows, end in rows) of each chunk
    moving: Any  # tiles of the right operand, as ``operand_tiles`` returns them
    splits: bool  # whether these are parts
    ahead: bool  # whether operands are loaded one item ahead


def chunk_blocks(rows: int) -> int:
    """Blocks of 128 rows in a chunk of an item of so many rows."""
    return (rows // P + CHUNKS - 1) // CHUNKS


def item_of(kind, moving, splits: bool, ahead: bool):
    """The `Item` of blocks of a kind, whose rows are a multiple of 128."""
    tiles = []
    for b0 in range(0, kind.n, RUN):
        for a0 in range(0, kind.m, P):
            tiles.append((a0, P, b0, min(RUN, kind.n - b0)))
    rounds = []
    for first in range(0, len(tiles), BANKS):
        rounds.append(tiles[first : first + BANKS])
    blocks = kind.k // P
    each = chunk_blocks(kind.k)
    chunks = []
    for k0 in range(0, blocks, each):
        chunks.append((len(chunks), k0, min(kind.k, (k0 + each) * P)))
    return Item(kind=kind, rounds=rounds, chunks=chunks, moving=moving, splits=splits, ahead=ahead)


def operand_tiles(right, parts: int, dtype):
    """Tiles from which the right operand is multiplied: those of its loads if it is fp32, else tiles of its parts."""
    if dtype == nl.float32:
        return right.tiles
    shape = right.tiles[0][0].shape
    turns = []
    for _ in range(CHUNKS):
        tiles = []
        for _ in range(parts):
            tiles.append(nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf))
        turns.append(tiles)
    return turns


def _load(operand, chunk, at, width: int):
    turn, k0, end = chunk
    load(operand, turn, at, k0, end, width)


def _split(mem, one, chunk):
    """The parts of a chunk of the right operand."""
    turn, k0, end = chunk
    if one.splits:
        for x in range(end // P - k0):
            parts = []
            for tile in one.moving[turn]:
                parts.append(tile[:, x, 0 : one.kind.n])
            round_to_parts(parts, mem.right.tiles[turn][0][:, x, 0 : one.kind.n], nisa.engine.gpsimd)


def _row(mem, it):
    """Registers with the places of the left and right operand, and of the result, of a row of the work list."""
    nisa.dma_copy(dst=mem.fields, src=mem.items.ap(pattern=[[3, 1], [1, 3]], scalar_offset=it, indirect_dim=0))
    places = []
    for f in range(3):
        register = nisa.register_alloc()
        nisa.register_load(register, mem.fields[0:1, f : f + 1])
        places.append(register)
    return places


def _load_first(mem, one, left, right):
    """Both operands of an item, from the places in two registers."""
    for chunk in one.chunks:
        _load(mem.left, chunk, left, one.kind.m)
        _load(mem.right, chunk, right, one.kind.n)
    for chunk in one.chunks:
        _split(mem, one, chunk)


def _item(mem, one, it):
    """Item number ``it``; its row has the places of the operands of the next item if these are loaded ahead."""
    left, right, out = _row(mem, it)
    if not one.ahead:
        _load_first(mem, one, left, right)
    first = 0
    last = len(one.rounds) - 1
    for r in range(len(one.rounds)):
        tiles = one.rounds[r]
        if r == 0:
            factors = mem.factors.ap(pattern=[[0, P], [1, FACTORS]], scalar_offset=it, indirect_dim=0)
            nisa.dma_copy(dst=mem.factor[0], src=factors)
        load_previous(mem, tiles, out)
        for chunk in one.chunks:
            turn, k0, end = chunk
            if r == last and one.splits and one.ahead:
                _load(mem.right, chunk, right, one.kind.n)
            for x in range(len(tiles)):
                multiply(mem, mem.banks[x], mem.left.tiles[turn], one.moving[turn], tiles[x], k0, end)
            if one.ahead and r == last:
                _load(mem.left, chunk, left, one.kind.m)
                if not one.splits:
                    _load(mem.right, chunk, right, one.kind.n)
                if end < one.kind.k:
                    _split(mem, one, chunk)
        for x in range(len(tiles)):
            finish(mem, x, tiles[x], mem.factor[0], out, one.kind, mem.sums[first + x])
        first = first + len(tiles)
    if one.ahead:
        _split(mem, one, one.chunks[len(one.chunks) - 1])


def loop_ahead(mem, one, begin: int, end: int, left: int, right: int):
    """The device loop over items begin .. end; left, right: places of the operands of the first item."""
    if one.ahead:
        _load_first(mem, one, nisa.register_alloc(left), nisa.register_alloc(right))

    def body(it):
        _item(mem, one, it)

    nl.fori_loop(begin, end, body)
