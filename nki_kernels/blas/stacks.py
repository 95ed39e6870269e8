"""Items of many small products, which lie one after the other in the stacks of both operands.

A DMA takes longer to start than to move one small matrix, so an item has up to ``group`` products, each of one tile,
and is loaded and stored in two halves. The products of a half lie side by side on chip: a load, a store, and an
instruction that works on a PSUM bank serve several of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nki_kernels.blas.blocks import FACTORS, RUN, P
from nki_kernels.lang import nisa, nl
from nki_kernels.precision.splits import products_of

HALVES = 2  # of an item, so that one is loaded while the other is multiplied


@dataclass
class Stack(nl.NKIObject):
    """Arguments in HBM and tiles on chip. Lists over halves have tiles [128, products, columns]."""

    extents: Any  # M, N, K
    sources: Any  # columns of the elements of left, right, c and the result
    sizes: Any  # elements of one part of left and of right
    items: Any
    left: Any  # over halves and parts
    right: Any
    previous: Any  # tiles of c; empty if c is not read
    stage: Any
    banks: Any  # over halves and banks
    fields: Any
    factor: Any


def per_bank(N: int) -> int:
    """Products of N columns that fit a PSUM bank."""
    return RUN // N


def half_of(group: int) -> int:
    """Products in the first half of an item."""
    return (group + HALVES - 1) // HALVES


def _tiles(count: int, shape, dtype, buffer):
    halves = []
    for _ in range(HALVES):
        tiles = []
        for _ in range(count):
            tiles.append(nl.ndarray(shape, dtype=dtype, buffer=buffer))
        halves.append(tiles)
    return halves


def stack(a_t, b, c, out, items, factors, group: int):
    """The `Stack` of a_t[parts, Z, K, M] and b[parts, Z, K, N], with new tiles; c is a list of one or none."""
    parts, Z, K, M = a_t.shape
    N = b.shape[3]
    half = half_of(group)
    shape = (P, half, N)
    factor = nl.ndarray((P, FACTORS), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=factor, src=factors.ap(pattern=[[0, P], [1, FACTORS]]))
    columns = [a_t.reshape((parts * Z * K * M, 1)), b.reshape((parts * Z * K * N, 1)), out.reshape((Z * M * N, 1))]
    for array in c:
        columns.append(array.reshape((Z * M * N, 1)))
    return Stack(
        extents=(M, N, K),
        sources=columns,
        sizes=(Z * K * M, Z * K * N),
        items=items,
        left=_tiles(parts, (P, half, M), a_t.dtype, nl.sbuf),
        right=_tiles(parts, shape, b.dtype, nl.sbuf),
        previous=_tiles(len(c), shape, nl.float32, nl.sbuf),
        stage=_tiles(1, shape, nl.float32, nl.sbuf),
        banks=_tiles((half + per_bank(N) - 1) // per_bank(N), (P, per_bank(N), N), nl.float32, nl.psum),
        fields=nl.ndarray((1, 3), dtype=nl.int32, buffer=nl.sbuf),
        factor=factor,
    )


def _matrices(column, at, offset: int, rows: int, count: int, columns: int):
    """[rows, count, columns] of matrices [rows, columns] that lie one after the other in HBM."""
    pattern = [[columns, rows], [rows * columns, count], [1, columns]]
    return column.ap(pattern=pattern, offset=offset, scalar_offset=at, indirect_dim=0)


def _load(mem, h: int, at, first: int, count: int):
    """The operands of ``count`` products of an item from product number ``first`` on, and c."""
    M, N, K = mem.extents
    for p in range(len(mem.left[h])):
        source = _matrices(mem.sources[0], at[0], p * mem.sizes[0] + first * K * M, K, count, M)
        nisa.dma_copy(dst=mem.left[h][p][0:K, 0:count, :], src=source)
        source = _matrices(mem.sources[1], at[1], p * mem.sizes[1] + first * K * N, K, count, N)
        nisa.dma_copy(dst=mem.right[h][p][0:K, 0:count, :], src=source)
    for tile in mem.previous[h]:
        source = _matrices(mem.sources[3], at[2], first * M * N, M, count, N)
        nisa.dma_copy(dst=tile[0:M, 0:count, :], src=source)


def _multiply(mem, h: int, products, bank, first: int, count: int):
    """``count`` products of a half, from number ``first`` on, into a bank."""
    M, _, K = mem.extents
    for x in range(count):
        for y in range(len(products)):
            p, q = products[y]
            nisa.nc_matmul(
                dst=bank[0:M, x, :],
                stationary=mem.left[h][p][0:K, first + x, :],
                moving=mem.right[h][q][0:K, first + x, :],
                accumulate=(y > 0),
            )


def _finish(mem, h: int, bank, first: int, count: int):
    """The results of a bank, alpha product + beta c, to the tile that is stored."""
    M = mem.extents[0]
    stage, product = mem.stage[h][0][0:M, first : first + count, :], bank[0:M, 0:count, :]
    alpha = mem.factor[0:M, 1:2]
    if len(mem.previous[h]) == 0:
        nisa.tensor_scalar(dst=stage, data=product, op0=nl.multiply, operand0=alpha, engine=nisa.engine.vector)
    for tile in mem.previous[h]:
        previous = tile[0:M, first : first + count, :]
        nisa.activation(dst=previous, op=nl.copy, data=previous, scale=mem.factor[0:M, 2:3])
        nisa.scalar_tensor_tensor(
            dst=stage, data=product, op0=nl.multiply, operand0=alpha, op1=nl.add, operand1=previous
        )


def _half(mem, h: int, products, at, start: int, count: int):
    """Half number h of an item, ``count`` products from number ``start`` on."""
    M, N, _ = mem.extents
    _load(mem, h, at, start, count)
    for bank in range(len(mem.banks[h])):
        first = bank * per_bank(N)
        if first < count:
            width = min(per_bank(N), count - first)
            _multiply(mem, h, products, mem.banks[h][bank], first, width)
            _finish(mem, h, mem.banks[h][bank], first, width)
    place = _matrices(mem.sources[2], at[2], start * M * N, M, count, N)
    nisa.dma_copy(dst=place, src=mem.stage[h][0][0:M, 0:count, :])


def stack_loop(mem, begin: int, end: int, group: int):
    """The device loop over items begin .. end of ``group`` products."""
    products = products_of(len(mem.left[0]), len(mem.left[0]))
    half = half_of(group)

    def body(it):
        nisa.dma_copy(dst=mem.fields, src=mem.items.ap(pattern=[[3, 1], [1, 3]], scalar_offset=it, indirect_dim=0))
        at = []
        for f in range(3):
            register = nisa.register_alloc()
            nisa.register_load(register, mem.fields[0:1, f : f + 1])
            at.append(register)
        _half(mem, 0, products, at, 0, half)
        if group > half:
            _half(mem, 1, products, at, half, group - half)

    nl.fori_loop(begin, end, body)
