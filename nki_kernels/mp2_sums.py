"""Second half of ``mp2_gamma``: Gamma = Theta^T B, a product whose contraction runs over all pairs (j, b).

    Theta [K, M], B [K, N] in HBM  --items-->  Gamma [M, N] in HBM

An item multiplies ``depth`` blocks of 128 of K for one block of Gamma. The items of a block follow one another. Each
sums its part of K in PSUM and adds it to the sum of the block that stays in SBUF; the factor ``keep`` of an item, 0 for
the first of a block and else 1, begins a new sum. The rest of K that fills no item is added at the end, to the sums
that are in HBM by then. On two cores these lie in memory of each core, so that both may compute a block (``cores``).
The static instruction count depends on the sizes of a block and on the remainders, not on K.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nki_kernels.gemm_blocks import blocks_of
from nki_kernels.lang import nisa, nl
from nki_kernels.mp2_plan import RUN, P
from nki_kernels.mp2_products import field
from nki_kernels.precision.splits import products_of

CHUNK = 4  # contraction blocks of 128 in one load


def sum_classes(M: int, N: int, K: int, rows: int, cols: int, depth: int):
    """Sizes of items, (m, n, k, items a block, added to what is in HBM), in the order of their device loops."""
    classes = []
    whole, rest = K // (depth * P), K % (depth * P)
    for m in blocks_of(M, rows):
        for n in blocks_of(N, cols):
            if whole > 0:
                classes = classes + [(m, n, depth * P, whole, False)]
            if rest > 0:
                classes = classes + [(m, n, rest, 1, whole > 0)]
    return classes


@dataclass
class Sums(nl.NKIObject):
    """Arguments in HBM and the tiles on chip that all loops share."""

    theta: Any  # a column of elements, part after part
    b: Any  # likewise
    gamma: Any  # likewise, one part
    partial: Any  # likewise: where sums wait to which the rest of K is added
    parts: int
    stride: int  # elements from row to row of Theta
    naux: int
    items: Any  # [n, 3] int32: element offsets into theta, b and gamma
    keep: Any
    fields: Any
    factor: Any  # keep of the item on every partition
    left: Any  # chunks of Theta in turn, each a list over parts of [128, CHUNK, rows]
    right: Any
    sums: Any
    banks: Any


def _operand(parts: int, width: int, dtype):
    tiles = []
    for _ in range(parts):
        tiles.append(nl.ndarray((P, CHUNK, width), dtype=dtype, buffer=nl.sbuf))
    return tiles


def sums_on_chip(theta, b, gamma, partial, stride: int, items, keep, rows: int, cols: int):
    """The `Sums` of a kernel's arguments, with newly allocated tiles; theta a column of elements."""
    parts, length, naux = b.shape
    rows, cols = min(rows, length), min(cols, naux)
    sums, banks = [], []
    for _ in range(((rows + P - 1) // P) * ((cols + RUN - 1) // RUN)):
        total = nl.ndarray((P, RUN), dtype=nl.float32, buffer=nl.sbuf)
        sums.append(total)
        banks.append(nl.ndarray((P, RUN), dtype=nl.float32, buffer=nl.psum))
        nisa.memset(dst=total, value=0.0)
    return Sums(
        theta=theta,
        b=b.reshape((parts * length * naux, 1)),
        gamma=gamma.reshape((length * naux, 1)),
        partial=partial.reshape((length * naux, 1)),
        parts=parts,
        stride=stride,
        naux=naux,
        items=items,
        keep=keep,
        fields=nl.ndarray((1, 3), dtype=nl.int32, buffer=nl.sbuf),
        factor=nl.ndarray((P, 1), dtype=nl.float32, buffer=nl.sbuf),
        left=[_operand(parts, rows, b.dtype), _operand(parts, rows, b.dtype)],
        right=[_operand(parts, cols, b.dtype), _operand(parts, cols, b.dtype)],
        sums=sums,
        banks=banks,
    )


def _load(tiles, operand, at, stride: int, k0: int, k1: int, rest: int, width: int):
    """Contraction blocks k0..k1 of an item into SBUF, every part; ``rest`` rows of one more block after them."""
    size = operand.shape[0] // len(tiles)
    for p in range(len(tiles)):
        base = p * size + k0 * P * stride
        if k1 > k0:
            pattern = [[stride, P], [P * stride, k1 - k0], [1, width]]
            source = operand.ap(pattern=pattern, offset=base, scalar_offset=at, indirect_dim=0)
            nisa.dma_copy(dst=tiles[p][0:P, 0 : k1 - k0, 0:width], src=source)
        if rest > 0:
            pattern = [[stride, rest], [1, width]]
            offset = base + (k1 - k0) * P * stride
            source = operand.ap(pattern=pattern, offset=offset, scalar_offset=at, indirect_dim=0)
            nisa.dma_copy(dst=tiles[p][0:rest, k1 - k0, 0:width], src=source)


def _add(mem, bank, left, right, tile, k0: int, k: int):
    """bank[m, n] (+)= Theta[:, tile].T @ B[:, tile] over the blocks of one chunk, which begins at k0 of k rows."""
    a0, m, b0, n = tile
    blocks = (min(k, (k0 + CHUNK) * P) - k0 * P + P - 1) // P
    for x in range(blocks):
        height = min(P, k - (k0 + x) * P)
        for product in products_of(mem.parts, mem.parts):
            p, q = product
            nisa.nc_matmul(
                dst=bank[0:m, 0:n],
                stationary=left[p][0:height, x, a0 : a0 + m],
                moving=right[q][0:height, x, b0 : b0 + n],
                accumulate=(k0 + x + p + q > 0),
            )


def _gamma(mem, column, at, tile):
    """The place of a tile in Gamma, or in what is like it: ``column`` has all elements."""
    a0, m, b0, n = tile
    return column.ap(pattern=[[mem.naux, m], [1, n]], offset=a0 * mem.naux + b0, scalar_offset=at, indirect_dim=0)


def _products(mem, at, tiles, m: int, n: int, k: int):
    """All of an item's part of K, in PSUM."""
    nk = (k + P - 1) // P
    for k0 in range(0, nk, CHUNK):
        turn = k0 // CHUNK % 2
        whole = max(k0, min(k0 + CHUNK, k // P))
        rest = k % P if k0 + CHUNK >= nk else 0
        _load(mem.left[turn], mem.theta, at[0], mem.stride, k0, whole, rest, m)
        _load(mem.right[turn], mem.b, at[1], mem.naux, k0, whole, rest, n)
        for x in range(len(tiles)):
            _add(mem, mem.banks[x], mem.left[turn], mem.right[turn], tiles[x], k0, k)


def sum_item(mem, it, m: int, n: int, k: int, resumed: bool, complete: bool):
    """One item of [m, n] elements of Gamma and k rows of the contraction; complete: no class adds to them after it."""
    nisa.dma_copy(dst=mem.fields, src=mem.items.ap(pattern=[[3, 1], [1, 3]], scalar_offset=it, indirect_dim=0))
    at = [field(mem.fields, 0), field(mem.fields, 1), field(mem.fields, 2)]
    tiles = []
    runs = (n + RUN - 1) // RUN
    for r in range(runs):
        for a0 in range(0, m, P):
            tiles.append((a0, min(P, m - a0), n * r // runs, n * (r + 1) // runs - n * r // runs))
    _products(mem, at, tiles, m, n, k)
    # Loaded last, because the item before still reads it when this one begins.
    nisa.dma_copy(dst=mem.factor, src=mem.keep.ap(pattern=[[0, P], [1, 1]], scalar_offset=it, indirect_dim=0))
    for x in range(len(tiles)):
        place = _gamma(mem, mem.gamma if complete else mem.partial, at[2], tiles[x])
        total, bank = mem.sums[x][0 : tiles[x][1], 0 : tiles[x][3]], mem.banks[x][0 : tiles[x][1], 0 : tiles[x][3]]
        if resumed:
            nisa.dma_copy(dst=total, src=_gamma(mem, mem.partial, at[2], tiles[x]))
        factor = mem.factor[0 : tiles[x][1], 0:1]
        nisa.scalar_tensor_tensor(dst=total, data=total, op0=nl.multiply, operand0=factor, op1=nl.add, operand1=bank)
        nisa.dma_copy(dst=place, src=total)
