"""What the MP2 kernels share: products T = B_i B_j^T of pairs of orbitals, left in PSUM for a function to finish.

    factors in HBM  --resident or streamed-->  T, and its partner U, in PSUM, tile by tile  -->  finish(...)

On a tile (rows A of virtuals, columns B) of the pair i, j, with P the auxiliary index:

    T[a, b] = sum_P B_i[a, P] B_j[b, P]        U[a, b] = sum_P B_j[a, P] B_i[b, P] = T[b, a]

U comes from the same operands with their roles swapped. The auxiliary index lies on the partitions of both operands
(see ``mp2_plan.pack_factors``), so that nothing is transposed on the way in. All functions here are inlined when a
kernel is compiled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nki_kernels.lang import nisa, nl
from nki_kernels.mp2_plan import ACCUMULATORS, RUN, P
from nki_kernels.precision.splits import products_of

# What is multiplied for a pair of orbitals.
PARTNERS = 0  # two orbitals of one set: T right of the diagonal and on it, U right of the diagonal
SAME = 1  # an orbital with itself: U = T, so that T right of the diagonal and on it is all
ALONE = 2  # orbitals of two sets: T everywhere, no U


@dataclass
class Factors(nl.NKIObject):
    """Factors and virtual energies in HBM, and the tiles on chip of their blocks; lists of two are used in turn."""

    bt: Any  # factors in HBM
    naux: int
    products: Any  # (part of the stationary, part of the moving operand) of each product
    ev_row: Any
    ev_col: Any
    left: Any  # blocks A and B of B_i, each [128, 1, parts, kchunk, block]; twice if streamed
    right: Any  # the same of several B_j, [128, number of j, parts, kchunk, block], twice
    row: Any
    col: Any
    banks: Any  # PSUM tiles of the products


def _operand_tiles(bt, nblk: int, count: int, kchunk: int):
    """SBUF tiles of ``count`` factors: of block A, and of block B where there are several blocks."""
    tiles = []
    for _ in range(min(nblk, 2)):
        tiles.append(nl.ndarray((P, count, bt.shape[0], kchunk, bt.shape[4]), dtype=bt.dtype, buffer=nl.sbuf))
    return tiles


def factors_on_chip(bt, ev_row, ev_col, naux: int, kchunk: int, count: int):
    """The `Factors` of a kernel's arguments, with newly allocated tiles; count: number of B_j in one tile."""
    block, nblk, rtiles = ev_row.shape[1], ev_row.shape[0], ev_col.shape[2]
    left = [_operand_tiles(bt, nblk, 1, kchunk)]
    if kchunk < bt.shape[3]:
        left.append(_operand_tiles(bt, nblk, 1, kchunk))
    banks = []
    for _ in range(ACCUMULATORS):
        banks.append(nl.ndarray((P, RUN), dtype=nl.float32, buffer=nl.psum))
    return Factors(
        bt=bt,
        naux=naux,
        products=products_of(bt.shape[0], bt.shape[0]),
        ev_row=ev_row,
        ev_col=ev_col,
        left=left,
        right=[_operand_tiles(bt, nblk, count, kchunk), _operand_tiles(bt, nblk, count, kchunk)],
        row=nl.ndarray((P, block), dtype=nl.float32, buffer=nl.sbuf),
        col=nl.ndarray((P, rtiles), dtype=nl.float32, buffer=nl.sbuf),
        banks=banks,
    )


def field(fields, n: int):
    """Column n of a row of a work list that lies on chip, in a register."""
    register = nisa.register_alloc()
    nisa.register_load(register, fields[0:1, n : n + 1])
    return register


def load_virtuals(factors, a, b):
    """-eps of block A down the partitions, and of block B along the free axis of every partition; a, b registers."""
    rtiles, block = factors.ev_col.shape[2], factors.ev_row.shape[1]
    col = factors.ev_col.ap(pattern=[[rtiles, P], [1, rtiles]], scalar_offset=a, indirect_dim=0)
    nisa.dma_copy(dst=factors.col, src=col)
    row = factors.ev_row.ap(pattern=[[0, P], [1, block]], scalar_offset=b, indirect_dim=0)
    nisa.dma_copy(dst=factors.row, src=row)


def add_energies(bias, col, e):
    """bias[a, r, g] = eps_i + eps_j - eps_a of row tile r and pair g, from col[a, r] = -eps_a and e[a, g]."""
    for r in range(bias.shape[1]):
        nisa.activation(dst=bias[0:P, r, :], op=nl.copy, data=e, bias=col[0:P, r : r + 1])


def _load_operand(factors, tile, slot: int, index, k0: int, k1: int, width: int):
    """Auxiliary blocks k0..k1 of one factor block (its number in a register) into SBUF, every part of the split."""
    parts, blocks, _, nk, block = factors.bt.shape
    nisa.dma_copy(
        dst=tile[0:P, slot, 0:parts, 0 : k1 - k0, 0:width],
        src=factors.bt.ap(
            pattern=[[nk * block, P], [blocks * P * nk * block, parts], [block, k1 - k0], [1, width]],
            offset=k0 * block,
            scalar_offset=index,
            indirect_dim=1,
        ),
    )


def _load_left(factors, tiles, slot: int, blocks, kind, mode: int, k0: int, k1: int):
    """B_i: block A, and for U block B where that is another."""
    _load_operand(factors, tiles[0], slot, blocks[0], k0, k1, kind[0])
    if mode != ALONE and not kind[2]:
        _load_operand(factors, tiles[1], slot, blocks[1], k0, k1, kind[1])


def _load_right(factors, tiles, slot: int, blocks, kind, mode: int, k0: int, k1: int):
    """B_j: block B, and for U block A."""
    if mode == ALONE:
        _load_operand(factors, tiles[0], slot, blocks[1], k0, k1, kind[1])
    else:
        _load_left(factors, tiles, slot, blocks, kind, mode, k0, k1)


def _sides(tiles, kind, mode: int):
    """Tiles of the row block and of the column block, which are the same on the diagonal of blocks."""
    return [tiles[0], tiles[0]] if kind[2] or mode == ALONE else [tiles[0], tiles[1]]


def _product(factors, bank, column: int, stationary, slot: int, moving, slots, tile, k0: int, k1: int):
    """bank[m, column and on] (+)= stationary[A] . moving[B]^T over auxiliary blocks k0..k1; the last one at its height.

    slot, slots: which factors of the two tiles are multiplied; the products of several slots lie side by side.
    A diagonal tile may hold the squares of several row tiles side by side.
    """
    a0, m, b0, n, diagonal = tile
    width = m if diagonal else n
    for c in range(0, n, width):
        row, start = a0 + c if diagonal else a0, column + c
        for k in range(k0, k1):
            height = min(P, factors.naux - k * P)
            for x in range(len(factors.products)):
                p, q = factors.products[x]
                nisa.nc_matmul(
                    dst=bank[0:m, start : start + (slots[1] - slots[0]) * width],
                    stationary=stationary[0:height, slot, p, k - k0, row : row + m],
                    moving=moving[0:height, slots[0] : slots[1], q, k - k0, b0 + c : b0 + c + width],
                    accumulate=(k > 0 or x > 0),
                )


def _products(factors, banks, left, right, slots, tile, mode: int, k0: int, k1: int):
    """T, and U off the diagonal of a pair of partners, of B_i and the B_j in the slots ``slots`` of ``right``."""
    if mode != SAME:
        _product(factors, banks[0], 0, left[0], 0, right[1], slots, tile, k0, k1)
    for slot in range(slots[0], slots[1]):
        column, one = (slot - slots[0]) * tile[3], (slot, slot + 1)
        if mode == SAME:
            _product(factors, banks[0], column, right[0], slot, right[1], one, tile, k0, k1)
        elif mode == PARTNERS and not tile[4]:
            _product(factors, banks[1], column, right[0], slot, left[1], (0, 1), tile, k0, k1)


def resident(factors, tiles, i_blocks, j_blocks, kind, mode: int, finish, state):
    """Pairs of i with several j, or of each j with itself (`SAME`), whose factors lie on chip whole.

    Each of the tiles runs through all of naux. As many j as a tile of ``factors.right`` holds are loaded together,
    and the products of several j lie side by side in one bank where they fit.

    Calls finish(state, banks, turn, slots, x) for tile number x of the pairs slots[0], ..., slots[1] - 1 when their
    products are complete: behind the products of the next tile, so that the tensor engine never waits for what another
    engine does with a tile before it comes back to that tile. The function stands in a module, and ``state`` has what
    else it needs, because the parser of NKI 0.6 has inner functions as bodies of device loops only.
    """
    nk = (factors.naux + P - 1) // P
    count = factors.right[0][0].shape[1]
    left = _sides(factors.left[0], kind, mode)
    waiting = []
    turn = 0
    for first in range(0, len(j_blocks), count):
        loaded = factors.right[first // count % 2]
        right, last = _sides(loaded, kind, mode), min(first + count, len(j_blocks))
        for g in range(first, last):
            _load_right(factors, loaded, g - first, j_blocks[g], kind, mode, 0, nk)
        if first == 0 and mode != SAME:  # the first B_j have a free tile before B_i has: loads start in this order
            _load_left(factors, factors.left[0], 0, i_blocks, kind, mode, 0, nk)
        for x in range(len(tiles)):
            across = max(1, RUN // tiles[x][3])
            for g in range(first, last, across):
                slots = (g, min(g + across, last))
                b = 2 * (turn % (ACCUMULATORS // 2))
                banks = factors.banks[b : b + 2]
                _products(factors, banks, left, right, (g - first, slots[1] - first), tiles[x], mode, 0, nk)
                for done in waiting:
                    finish(state, done[0], done[1], done[2], done[3])
                waiting = [(banks, turn, slots, x)]
                turn = turn + 1
    for done in waiting:
        finish(state, done[0], done[1], done[2], done[3])


def streamed(factors, tiles, i_blocks, j_blocks, kind, mode: int, finish, state):
    """One pair whose products stay in PSUM while both factors pass by in chunks of naux; calls as in `resident`."""
    nk, kchunk = (factors.naux + P - 1) // P, factors.left[0][0].shape[3]
    for k0 in range(0, nk, kchunk):
        k1 = min(k0 + kchunk, nk)
        turn = k0 // kchunk % 2
        left, right = _sides(factors.left[turn], kind, mode), _sides(factors.right[turn], kind, mode)
        if mode != SAME:
            _load_left(factors, factors.left[turn], 0, i_blocks, kind, mode, k0, k1)
        _load_right(factors, factors.right[turn], 0, j_blocks, kind, mode, k0, k1)
        for x in range(len(tiles)):
            _products(factors, factors.banks[2 * x : 2 * x + 2], left, right, (0, 1), tiles[x], mode, k0, k1)
    for x in range(len(tiles)):
        finish(state, factors.banks[2 * x : 2 * x + 2], x, (0, 1), x)
