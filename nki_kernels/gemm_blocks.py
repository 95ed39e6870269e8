"""Common parts of `gemm` and `batched_contraction`: the choice of blocks, and the program that computes them.

    shapes  --plan-->  rows, cols, kchunk, batch, hold     (how much of each operand is on the chip at the same time)
            --table-->  offsets of every item, in memory   (an item is ``batch`` products of a block [rows, cols])
            --fori_loop-->  load, multiply, drain          (one device loop for each size of block)

Blocks at an edge have their true size and are items of a different size. There are at most two sizes along each of z, m
and n, and therefore at most eight loops. Their bodies depend on K, the block sizes and the remainders. The static
instruction count is the same for one row block and for a thousand.

All plain functions in this module are inlined when a kernel is compiled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nki_kernels.index_tables import wide_iota
from nki_kernels.lang import nisa, nl
from nki_kernels.precision.splits import products_of

P = 128  # partitions: rows of the contraction index in one matmul, and columns of the stationary operand
RUN = 512  # columns of the moving operand; one PSUM bank of fp32
BANKS = 8  # PSUM banks
STRIPE = 256  # columns of a in one tile; products start when the first tile is loaded, and each tile is freed by itself
DRAINS = 4  # output tiles in flight between PSUM and memory that a plan assumes
BODY = 512  # products that a plan with resident operands unrolls in a loop body; a split has several times as many
CHUNK = 4  # largest number of contraction blocks in a streamed chunk
SBUF_BYTES = 176 * 1024  # bytes per partition that every generation can use


def blocks_of(extent: int, step: int):
    """(size, count, first) of full blocks and of the remainder."""
    kinds = []
    if extent >= step:
        kinds = kinds + [(step, extent // step, 0)]
    if extent % step > 0:
        kinds = kinds + [(extent % step, 1, extent - extent % step)]
    return kinds


def plan(Z: int, M: int, N: int, K: int, itemsize: int, sbuf_bytes: int = SBUF_BYTES):
    """Block sizes for Z products [K, M].T @ [K, N]; itemsize in bytes, summed over the parts of a split operand.

    hold: all of b stays on chip for the whole launch. Else, for many products, short K or plain bf16, which most need
    reuse, a row block of a stays for ``cols`` columns and b comes in runs of 512. Else both are streamed in chunks of
    ``kchunk`` blocks of 128 through a block that fills PSUM: an even number of chunks, so that the two buffers keep
    alternating from one block to the next. Returns the kernels' keyword arguments.
    """
    nk = (K + P - 1) // P
    space = (sbuf_bytes - DRAINS * RUN * 4 - 4096) // itemsize
    height = (M + P - 1) // P * P
    runs = (N + RUN - 1) // RUN
    rows = min(8 * P, height)
    if Z == 1 and runs <= 4 and nk * rows // P * runs <= BODY and nk * (rows + N) <= space:
        return {"rows": rows, "cols": N, "kchunk": nk, "batch": 1, "hold": 1}
    if Z > 1 or itemsize == 2 or nk == 1:
        batch = min(Z, 4)
        for most in [8 * P, 4 * P, 2 * P]:
            rows = min(most, height)
            tiles = nk * rows // P
            cols = RUN * max(1, min(2, BODY // tiles))
            buffers = 1 if batch == 1 else 2
            if (tiles <= BODY or most == 2 * P) and nk * (buffers * rows + 2 * min(N, RUN)) <= space:
                return {"rows": rows, "cols": min(N, cols), "kchunk": nk, "batch": batch, "hold": 0}
    blocks = (height + 4 * P - 1) // (4 * P)
    rows = (height // P + blocks - 1) // blocks * P
    cols = min(N, 2 * RUN)
    pairs = (nk + 2 * CHUNK - 1) // (2 * CHUNK)
    kchunk = min((nk + 2 * pairs - 1) // (2 * pairs), space // (2 * (rows + cols)))
    assert 0 < kchunk < nk, f"gemm plan: {sbuf_bytes} bytes of SBUF per partition do not hold one block"
    return {"rows": rows, "cols": cols, "kchunk": kchunk, "batch": 1, "hold": 0}


@dataclass
class Memory(nl.NKIObject):
    """Arguments in memory, their extents, and the tiles on chip that all loops share."""

    a: Any  # stationary operand [parts, Z, K, M], as a column of elements: offsets of items count elements
    b: Any  # moving operand [parts, Z, K, N], likewise
    out: Any  # [Z, M, N], likewise
    Z: int
    products: Any  # (part of a, part of b) of each product
    M: int
    N: int
    K: int
    table: Any  # [items, 3] int32: element offsets into a, b and out
    fields: Any
    left: Any  # tiles of a, used in turn; each a list over stripes, over parts of [128, kchunk, stripe]
    right: Any  # tiles of b, used in turn; each a list over parts of [128, kchunk, columns]
    drain: Any
    drainer: int  # engine of the copies out of PSUM: 0 VectorE, 1 ScalarE, 2 both in turn
    banks: Any
    kchunk: int
    hold: int


def _tiles(operand, kchunk: int, width: int):
    """A tile for each part of an operand."""
    split = []
    for _ in range(operand.shape[0]):
        split.append(nl.ndarray((P, kchunk, width), dtype=operand.dtype, buffer=nl.sbuf))
    return split


def _buffers(operand, count: int, kchunk: int, width: int, stripe: int):
    """``count`` sets of tiles of ``width`` columns in all, each a list over stripes."""
    buffers = []
    for _ in range(count):
        stripes = []
        for first in range(0, width, stripe):
            stripes.append(_tiles(operand, kchunk, min(stripe, width - first)))
        buffers.append(stripes)
    return buffers


def _loops(zs, ms, ns, cores: int):
    """(z, m, n, lines, lanes, first row, rows, passes) of each loop; the rows of its items fill ``lanes`` partitions.

    Cores take items in turn, and make equally many passes. The count of products, or of row blocks where there is one
    product only, runs over partitions and ``lines``.
    """
    loops = []
    first = 0
    for z in zs:
        for m in ms:
            for n in ns:
                count = z[1] if z[1] > 1 else m[1]
                lines = (count + P - 1) // P
                lanes = (count + lines - 1) // lines
                size = lanes * lines * n[1] * (m[1] if z[1] > 1 else 1)
                passes = (z[1] * m[1] * n[1] + cores - 1) // cores
                loops.append((z, m, n, lines, lanes, first, size, passes))
                first = first + max(size, passes * cores)
    return loops


def _table(loops, M: int, N: int, K: int, cores: int):
    """[items, 3] int32 in memory: element offsets of every item into a, b, out. Rows past a loop's passes are unused.

    A core that has no item left in the last pass repeats its last one, or the first one if it has none.
    """
    last = loops[len(loops) - 1]
    table = nl.ndarray((last[5] + max(last[6], last[7] * cores), 3), dtype=nl.int32, buffer=nl.hbm)
    for loop in loops:
        z, m, n, lines, lanes, first, size, passes = loop
        tile = nl.ndarray((lanes, size // lanes, 3), dtype=nl.int32, buffer=nl.sbuf)
        steps = [(K * M, 1, 0), (K * N, 0, 1), (M * N, N, 1)]  # one product, one row, one column further; a, b, out
        for f in range(3):
            per_z, per_row, per_col = steps[f]
            step_z, step_m = per_z * z[0], per_row * m[0]
            split_z = z[1] > 1
            wide_iota(
                dst=tile[0:lanes, 0 : size // lanes, f : f + 1],
                pattern=[
                    [step_z, lines if split_z else 1],
                    [step_m, m[1] if split_z else lines],
                    [per_col * n[0], n[1]],
                ],
                offset=per_z * z[2] + per_row * m[2] + per_col * n[2],
                multiplier=lines * (step_z if split_z else step_m),
            )
        nisa.dma_copy(dst=table[first : first + size, :], src=tile)
        for row in range(z[1] * m[1] * n[1], passes * cores):
            again = max(row - cores, 0)
            lane, column = again // (size // lanes), again % (size // lanes)
            nisa.dma_copy(dst=table[first + row : first + row + 1, :], src=tile[lane : lane + 1, column, :])
    return table


def _load(mem, tiles, operand, at, offset: int, stride: int, k0: int, k1: int, width: int):
    """Contraction blocks k0..k1 of ``width`` columns into SBUF, every part; the last block of K at its true height."""
    whole = min(k1, mem.K // P)
    for p in range(len(tiles)):
        base = p * mem.Z * mem.K * stride + offset
        if whole > k0:
            pattern = [[stride, P], [P * stride, whole - k0], [1, width]]
            source = operand.ap(pattern=pattern, offset=base + k0 * P * stride, scalar_offset=at, indirect_dim=0)
            nisa.dma_copy(dst=tiles[p][0:P, 0 : whole - k0, 0:width], src=source)
        if k1 > whole:
            height = mem.K - whole * P
            pattern = [[stride, height], [1, width]]
            source = operand.ap(pattern=pattern, offset=base + whole * P * stride, scalar_offset=at, indirect_dim=0)
            nisa.dma_copy(dst=tiles[p][0:height, whole - k0, 0:width], src=source)


def _load_stripes(mem, stripes, at, offset: int, k0: int, k1: int, first: int, last: int, m: int):
    """Stripes first..last of a block of m columns of a."""
    for s in range(first, last):
        width = min(STRIPE, m - s * STRIPE)
        _load(mem, stripes[s], mem.a, at, offset + s * STRIPE, mem.M, k0, k1, width)


def _multiply(mem, bank, left, right, tile, b_start: int, k0: int, k1: int):
    """bank[m, n] (+)= a[:, tile].T @ b[:, run] over contraction blocks k0..k1, all products of a split in one bank."""
    a0, m, b0, n = tile
    stripe, column = left[a0 // STRIPE], a0 % STRIPE
    for k in range(k0, k1):
        height = min(P, mem.K - k * P)
        for x in range(len(mem.products)):
            p, q = mem.products[x]
            nisa.nc_matmul(
                dst=bank[0:m, 0:n],
                stationary=stripe[p][0:height, k - k0, column : column + m],
                moving=right[q][0:height, k - k0, b0 - b_start : b0 - b_start + n],
                accumulate=(k > 0 or x > 0),
            )


def _store(mem, bank, x: int, tile, at, offset: int):
    """A finished product from PSUM to its place in the output."""
    a0, m, b0, n = tile
    drain = mem.drain[x % len(mem.drain)][0:m, 0:n]
    if mem.drainer == 1 or (mem.drainer == 2 and x % 2 == 1):
        nisa.activation(dst=drain, op=nl.copy, data=bank[0:m, 0:n])
    else:
        nisa.tensor_copy(dst=drain, src=bank[0:m, 0:n], engine=nisa.engine.vector)
    place = mem.out.ap(
        pattern=[[mem.N, m], [1, n]],
        offset=offset + a0 * mem.N + b0,
        scalar_offset=at,
        indirect_dim=0,
    )
    nisa.dma_copy(dst=place, src=drain)


def _tile_list(m: int, b0: int, n: int):
    """Tiles (a0, rows, b0, columns) of m rows and of columns b0..b0 + n, by runs, within a run by row tiles."""
    tiles = []
    for c0 in range(b0, b0 + n, RUN):
        for a0 in range(0, m, P):
            tiles.append((a0, min(P, m - a0), c0, min(RUN, b0 + n - c0)))
    return tiles


def _resident(mem, at, g: int, m: int, n: int):
    """One block whose row block of a stays on chip: every product runs through all of K before the next begins."""
    nk = (mem.K + P - 1) // P
    left = mem.left[g % len(mem.left)]
    stripes = (m + STRIPE - 1) // STRIPE
    offset = g * mem.K * mem.M
    _load_stripes(mem, left, at[0], offset, 0, nk, 0, 1, m)
    turn = 0
    for b0 in range(0, n, RUN):
        width = min(RUN, n - b0)
        right = mem.right[0]
        start = 0
        if mem.hold == 0:
            right = mem.right[(b0 // RUN + g) % 2]
            start = b0
            _load(mem, right, mem.b, at[1], g * mem.K * mem.N + b0, mem.N, 0, nk, width)
        if b0 == 0:
            _load_stripes(mem, left, at[0], offset, 0, nk, 1, stripes, m)
        for tile in _tile_list(m, b0, width):
            bank = mem.banks[(turn + g) % BANKS]
            _multiply(mem, bank, left, right, tile, start, 0, nk)
            _store(mem, bank, turn, tile, at[2], g * mem.M * mem.N)
            turn = turn + 1


def _streamed(mem, at, m: int, n: int):
    """One block that stays in PSUM while both operands pass by in chunks of K."""
    nk = (mem.K + P - 1) // P
    tiles = _tile_list(m, 0, n)
    stripes = (m + STRIPE - 1) // STRIPE
    for k0 in range(0, nk, mem.kchunk):
        k1 = min(k0 + mem.kchunk, nk)
        turn = k0 // mem.kchunk % 2
        _load_stripes(mem, mem.left[turn], at[0], 0, k0, k1, 0, stripes, m)
        _load(mem, mem.right[turn], mem.b, at[1], 0, mem.N, k0, k1, n)
        for x in range(len(tiles)):
            _multiply(mem, mem.banks[x], mem.left[turn], mem.right[turn], tiles[x], 0, k0, k1)
    for x in range(len(tiles)):
        _store(mem, mem.banks[x], x, tiles[x], at[2], 0)


def _loop(mem, size, first: int, last: int, cores: int):
    """The device loop over the items of one size (z, m, n)."""

    def body(it):
        nisa.dma_copy(
            dst=mem.fields, src=mem.table.ap(pattern=[[3, 1], [1, 3]], offset=0, scalar_offset=it, indirect_dim=0)
        )
        at = []
        for f in range(3):
            register = nisa.register_alloc()
            nisa.register_load(register, mem.fields[0:1, f : f + 1])
            at.append(register)
        if mem.kchunk * P >= mem.K:
            for g in range(size[0]):
                _resident(mem, at, g, size[1], size[2])
        else:
            _streamed(mem, at, size[1], size[2])

    nl.fori_loop(first, last, body, step=cores)


def contract(a, b, out, blocks, drains=DRAINS, drainer=0):
    """out[z] = sum over parts p, q of a[p, z].T @ b[q, z]; a[parts, Z, K, M], b[parts, Z, K, N], out [Z, M, N] fp32.

    blocks: as `plan` returns them; rows = 0 plans here. drains, drainer: as the kernels take them.
    """
    parts, Z, K, M = a.shape
    N = b.shape[3]
    assert b.shape[1] == Z and b.shape[2] == K, f"operands differ: a_t is [parts, Z, K, M] = {a.shape}, b is {b.shape}"
    if blocks["rows"] == 0:
        blocks = plan(Z, M, N, K, parts * (4 if a.dtype == nl.float32 else 2))
    rows, cols, kchunk, batch, hold = blocks["rows"], blocks["cols"], blocks["kchunk"], blocks["batch"], blocks["hold"]
    resident = kchunk * P >= K
    assert resident or (batch == 1 and (rows // P) * ((cols + RUN - 1) // RUN) <= BANKS), "the block must fit PSUM"
    assert hold == 0 or (resident and Z == 1 and cols >= N), "only a single, whole b can be held"
    zs, ms, ns = blocks_of(Z, batch), blocks_of(M, rows), blocks_of(N, cols)
    cores = nl.num_programs(0) if nl.program_ndim() > 0 else 1
    core = nl.program_id(0) if nl.program_ndim() > 0 else 0
    loops = _loops(zs, ms, ns, cores)
    drain = []
    for _ in range(drains):
        drain.append(nl.ndarray((P, RUN), dtype=nl.float32, buffer=nl.sbuf))
    banks = []
    for _ in range(BANKS):
        banks.append(nl.ndarray((P, RUN), dtype=nl.float32, buffer=nl.psum))
    run = min(RUN, cols) if resident and hold == 0 else cols
    right = [_tiles(b, kchunk, min(run, N))]
    if hold == 0:
        right.append(_tiles(b, kchunk, min(run, N)))
    mem = Memory(
        a=a.reshape((parts * Z * K * M, 1)),
        b=b.reshape((b.shape[0] * Z * K * N, 1)),
        out=out.reshape((Z * M * N, 1)),
        Z=Z,
        products=products_of(parts, b.shape[0]),
        M=M,
        N=N,
        K=K,
        table=_table(loops, M, N, K, cores),
        fields=nl.ndarray((1, 3), dtype=nl.int32, buffer=nl.sbuf),
        left=_buffers(a, 1 if resident and batch == 1 else 2, kchunk, min(rows, M), STRIPE),
        right=right,
        drain=drain,
        drainer=drainer,
        banks=banks,
        kchunk=kchunk,
        hold=hold,
    )
    if hold == 1:
        _load(mem, mem.right[0], mem.b, nisa.register_alloc(0), 0, N, 0, kchunk, N)
    for loop in loops:
        z, m, n, _, _, first, _, passes = loop
        _loop(mem, (z[0], m[0], n[0]), first + core, first + passes * cores, cores)
