"""Items of a work list: products of blocks of two matrices, added up and stored.

    left [K, M], right [K, N] in HBM  --items-->  alpha sum(left.T @ right) + beta c  in HBM

An item multiplies ``k`` rows of both matrices for one block [m, n] of the result. Its row of the work list has the
offsets of its operands and its result in elements; its row of ``factors`` has three numbers,

    total = keep * total + left.T @ right        (in SBUF; 0 for the first item of a block, then 1)
    out   = alpha * total + beta * c

so that a block of any K is a number of items. The program depends on the sizes of a block and of the remainders, and
not on M, N, K or the number of products.

All plain functions in this module are inlined when a kernel is compiled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nki_kernels.cores import range_of_core
from nki_kernels.lang import nisa, nl
from nki_kernels.precision.splits import products_of

P = 128  # partitions: rows of the contraction index in one matmul, and columns of the stationary operand
RUN = 512  # columns of the moving operand; one PSUM bank of fp32
BANKS = 8  # PSUM banks, all of which a block may use
CHUNK = 4  # contraction blocks of 128 in one load
STAGES = 4  # tiles of the result on their way to HBM
FACTORS = 3  # numbers in a row of factors: keep, alpha, beta


@dataclass
class Matrix(nl.NKIObject):
    """One operand in HBM."""

    data: Any  # a column of elements, part after part
    size: int  # elements of one part
    stride: int  # elements from row to row of the contraction index
    tiles: Any  # two chunks in turn, each a list over parts of [128, CHUNK, columns]


@dataclass
class Work(nl.NKIObject):
    """Arguments in HBM and the tiles on chip that all loops share."""

    left: Any
    right: Any
    products: Any  # (part of left, part of right) of each product
    c: Any  # a column of elements
    out: Any  # likewise
    stride: int  # elements from row to row of c and out
    items: Any  # [n, 3] int32: offsets into left, right and out
    factors: Any  # [n, FACTORS] fp32
    fields: Any
    factor: Any  # factors of an item on every partition, two in turn
    sums: Any
    previous: Any  # tiles of c
    stage: Any
    banks: Any
    copies: Any  # empty, or one Matrix that gets the parts of the result as well, and tiles for them in turn


@dataclass
class Kind(nl.NKIObject):
    """What the items of one loop have in common."""

    m: int  # rows of a block
    n: int  # columns of a block
    k: int  # rows of the contraction index
    diagonal: int  # column of a block at which its row 0 meets the diagonal of the result, right of which nothing is
    # computed; -1 where all of the block is. At 0, left and right are the same columns of one matrix.
    summed: bool  # whether a block has several items
    update: bool  # whether c is read


def _tiles(count: int, shape, dtype, buffer):
    tiles = []
    for _ in range(count):
        tiles.append(nl.ndarray(shape, dtype=dtype, buffer=buffer))
    return tiles


def matrix(operand, width: int, chunk: int = CHUNK):
    """The `Matrix` of an operand [parts, ..., columns]; a chunk has ``width`` columns and ``chunk`` blocks of rows."""
    parts, columns = operand.shape[0], operand.shape[len(operand.shape) - 1]
    size = 1
    for extent in operand.shape[1:]:
        size = size * extent
    tiles = [_tiles(parts, (P, chunk, width), operand.dtype, nl.sbuf)]
    tiles.append(_tiles(parts, (P, chunk, width), operand.dtype, nl.sbuf))
    return Matrix(data=operand.reshape((parts * size, 1)), size=size, stride=columns, tiles=tiles)


def work(left, right, parts: int, c, out, stride: int, items, factors, rows: int, cols: int, rounds: int = 1):
    """The `Work` of blocks of at most rows x cols elements, with newly allocated tiles; c and out are columns.

    A block that does not fit PSUM is multiplied in so many rounds.
    """
    count = ((rows + P - 1) // P) * ((cols + RUN - 1) // RUN)
    assert count <= BANKS * rounds, "a block must fit PSUM"
    sums = _tiles(count, (P, RUN), nl.float32, nl.sbuf)
    count = min(count, BANKS)
    for tile in sums:
        nisa.memset(dst=tile, value=0.0)
    return Work(
        left=left,
        right=right,
        products=products_of(parts, parts),
        c=c,
        out=out,
        stride=stride,
        items=items,
        factors=factors,
        fields=nl.ndarray((1, 3), dtype=nl.int32, buffer=nl.sbuf),
        factor=_tiles(2, (P, FACTORS), nl.float32, nl.sbuf),
        sums=sums,
        previous=_tiles(count, (P, RUN), nl.float32, nl.sbuf),
        stage=_tiles(STAGES, (P, RUN), nl.float32, nl.sbuf),
        banks=_tiles(count, (P, RUN), nl.float32, nl.psum),
        copies=[],
    )


def keep_parts(mem, operand):
    """Let results also go, in parts, to an operand with the elements of ``out``, from which later items read them."""
    turns = []
    for _ in range(2):
        turns.append(_tiles(len(operand.tiles[0]), (P, RUN), operand.data.dtype, nl.sbuf))
    mem.copies = [operand, turns]


def round_to_parts(parts, data, engine=nisa.engine.vector):
    """Tiles of the parts of data in fp32, each the rounded remainder of those before; data may become a remainder.

    engine: the one that subtracts.
    """
    nisa.activation(dst=parts[0], op=nl.copy, data=data)
    for x in range(1, len(parts)):
        if x + 1 < len(parts):
            nisa.tensor_tensor(dst=data, data1=data, data2=parts[x - 1], op=nl.subtract, engine=engine)
            nisa.activation(dst=parts[x], op=nl.copy, data=data)
        else:
            nisa.tensor_tensor(dst=parts[x], data1=data, data2=parts[x - 1], op=nl.subtract, engine=engine)


def _store_parts(mem, stage, x: int, tile, at):
    """The parts of a tile of the result to the operand that keeps them."""
    operand, turns = mem.copies
    _, m, _, n = tile
    slices = []
    for part in turns[x % 2]:
        slices.append(part[0:m, 0:n])
    round_to_parts(slices, stage)
    for p in range(len(slices)):
        nisa.dma_copy(dst=_place(mem, operand.data, tile, at, p * operand.size), src=slices[p])


def load(operand, turn: int, at, k0: int, k: int, width: int):
    """One chunk of an item's k rows, from block k0 on, into SBUF, every part; the last rows at their true height."""
    whole = min(k, (k0 + CHUNK) * P) // P - k0
    rest = min(k, (k0 + CHUNK) * P) - (k0 + whole) * P
    stride = operand.stride
    for p in range(len(operand.tiles[turn])):
        tile = operand.tiles[turn][p]
        base = p * operand.size + k0 * P * stride
        if whole > 0:
            pattern = [[stride, P], [P * stride, whole], [1, width]]
            source = operand.data.ap(pattern=pattern, offset=base, scalar_offset=at, indirect_dim=0)
            nisa.dma_copy(dst=tile[0:P, 0:whole, 0:width], src=source)
        if rest > 0:
            source = operand.data.ap(
                pattern=[[stride, rest], [1, width]],
                offset=base + whole * P * stride,
                scalar_offset=at,
                indirect_dim=0,
            )
            nisa.dma_copy(dst=tile[0:rest, whole, 0:width], src=source)


def tile_list(kind):
    """Tiles (first row, rows, first column, columns) of a block: row tiles of 128, runs of at most 512 columns."""
    tiles = []
    for a0 in range(0, kind.m, P):
        rows = min(P, kind.m - a0)
        end = kind.n if kind.diagonal < 0 else min(kind.n, kind.diagonal + a0 + rows)
        for b0 in range(0, end, RUN):
            tiles.append((a0, rows, b0, min(RUN, end - b0)))
    return tiles


def multiply(mem, bank, left, right, tile, k0: int, k: int):
    """bank[rows, columns] (+)= left.T @ right over one chunk, all products of a split in one bank."""
    a0, m, b0, n = tile
    for x in range((min(k, (k0 + CHUNK) * P) - k0 * P + P - 1) // P):
        height = min(P, k - (k0 + x) * P)
        for y in range(len(mem.products)):
            p, q = mem.products[y]
            nisa.nc_matmul(
                dst=bank[0:m, 0:n],
                stationary=left[p][0:height, x, a0 : a0 + m],
                moving=right[q][0:height, x, b0 : b0 + n],
                accumulate=(k0 + x + y > 0),
            )


def _place(mem, column, tile, at, base: int = 0):
    """[rows, columns] of a tile in an array of the shape of the result, of which ``column`` has all elements."""
    a0, m, b0, n = tile
    offset = base + a0 * mem.stride + b0
    return column.ap(pattern=[[mem.stride, m], [1, n]], offset=offset, scalar_offset=at, indirect_dim=0)


def load_previous(mem, tiles, at):
    """c of all tiles of a block."""
    for x in range(len(tiles)):
        _, m, _, n = tiles[x]
        nisa.dma_copy(dst=mem.previous[x][0:m, 0:n], src=_place(mem, mem.c, tiles[x], at))


def finish(mem, x: int, tile, factor, at, kind, total):
    """The tile of the result in bank x from PSUM to its place; total: the tile of SBUF for sums over items."""
    m, n = tile[1], tile[3]
    stage, product = mem.stage[x % STAGES][0:m, 0:n], mem.banks[x][0:m, 0:n]
    if kind.summed:
        keep, sums = factor[0:m, 0:1], total[0:m, 0:n]
        nisa.scalar_tensor_tensor(dst=sums, data=sums, op0=nl.multiply, operand0=keep, op1=nl.add, operand1=product)
        product = sums
    alpha = factor[0:m, 1:2]
    if kind.update:
        previous = mem.previous[x][0:m, 0:n]
        nisa.activation(dst=previous, op=nl.copy, data=previous, scale=factor[0:m, 2:3])
        nisa.scalar_tensor_tensor(
            dst=stage, data=product, op0=nl.multiply, operand0=alpha, op1=nl.add, operand1=previous
        )
    else:
        nisa.tensor_scalar(dst=stage, data=product, op0=nl.multiply, operand0=alpha, engine=nisa.engine.vector)
    nisa.dma_copy(dst=_place(mem, mem.out, tile, at), src=stage)
    if len(mem.copies) > 0:
        _store_parts(mem, stage, x, tile, at)


def item(mem, it, g: int, kind):
    """Item number ``it`` + g, whose first chunk lies in the tiles of turn g."""
    pattern = [[3, 1], [1, 3]]
    nisa.dma_copy(dst=mem.fields, src=mem.items.ap(pattern=pattern, offset=3 * g, scalar_offset=it, indirect_dim=0))
    at = []
    for f in range(3):
        register = nisa.register_alloc()
        nisa.register_load(register, mem.fields[0:1, f : f + 1])
        at.append(register)
    tiles = tile_list(kind)
    factor = mem.factor[g % 2]
    for k0 in range(0, (kind.k + P - 1) // P, CHUNK):
        turn = (k0 // CHUNK + g) % 2
        load(mem.left, turn, at[0], k0, kind.k, kind.m)
        right = mem.left.tiles[turn]
        if kind.diagonal != 0:
            right = mem.right.tiles[turn]
            load(mem.right, turn, at[1], k0, kind.k, kind.n)
        if (k0 + CHUNK) * P >= kind.k:
            # With the last chunk, because an item before still reads them when this one begins.
            pattern = [[0, P], [1, FACTORS]]
            source = mem.factors.ap(pattern=pattern, offset=FACTORS * g, scalar_offset=it, indirect_dim=0)
            nisa.dma_copy(dst=factor, src=source)
            if kind.update:
                load_previous(mem, tiles, at[2])
        for x in range(len(tiles)):
            multiply(mem, mem.banks[x], mem.left.tiles[turn], right, tiles[x], k0, kind.k)
    for x in range(len(tiles)):
        finish(mem, x, tiles[x], factor, at[2], kind, mem.sums[x])


def loop(mem, kind, first: int, blocks: int, each: int, group: int):
    """The device loops over items first .. first + blocks * each, ``group`` of them in a pass.

    The ``each`` items of a block follow one another. Cores have equally many blocks (``range_of_core``).
    """
    cores = nl.num_programs(0) if nl.program_ndim() > 0 else 1
    core = nl.program_id(0) if nl.program_ndim() > 0 else 0
    begin, end = range_of_core(blocks, core, cores)
    begin, end = first + begin * each, first + end * each
    whole = begin + (end - begin) // group * group

    def body(it):
        for g in range(group):
            item(mem, it, g, kind)

    def single(it):
        item(mem, it, 0, kind)

    if begin < whole:
        nl.fori_loop(begin, whole, body, step=group)
    if whole < end:
        nl.fori_loop(whole, end, single)
