"""First half of ``mp2_gamma``: amplitudes of pairs from products in PSUM, written to HBM as one matrix.

    T, U in PSUM  -->  X = (alpha T + beta U) / D,  Y = (alpha U + beta T) / D  -->  Theta in HBM

With Theta[(i, a), (j, b)] = t~_ij^ab, a tile (rows A, columns B) of the pair i, j has four places in Theta:

    X at (i A, j B)        Y at (j A, i B)        X^T at (j B, i A)        Y^T at (i B, j A)

The transposes are made on chip, 128 x 128 elements in one pass of the tensor engine, where computing the products of
the other triangle would take naux / 128 passes. Where both orbitals are of one set all places are in one matrix; else
Theta is a matrix of left rows and one of right rows, each the transpose of the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nki_kernels.lang import nisa, nl
from nki_kernels.mp2_plan import RUN, P, tile_list
from nki_kernels.mp2_products import PARTNERS, add_energies, field, load_virtuals, resident, streamed
from nki_kernels.mp2_theta import high_parts, high_transposed, slices_of, store, store_transposed, transpose


def _inverse(mem, slot: int, tile, dst):
    """dst = 1 / D, D = eps_i + eps_j - eps_a - eps_b."""
    a0, m, b0, n, diagonal = tile
    width = m if diagonal else n
    for c in range(0, n, width):
        a = (a0 + c) // P if diagonal else a0 // P
        row, bias = mem.factors.row[0:m, b0 + c : b0 + c + width], mem.bias[0:m, a, slot : slot + 1]
        nisa.tensor_scalar(dst=dst[:, c : c + width], data=row, op0=nl.add, operand0=bias)
    nisa.reciprocal(dst=dst, data=dst)


def _turn_squares(mem, T, U, turn: int):
    """U = the transpose of each square of a diagonal tile, in the bank that no product fills."""
    m, n = T.shape
    flat = mem.flat[turn % 2][0:m, 0:n]
    nisa.activation(dst=flat, op=nl.copy, data=T)
    for c in range(0, n, m):
        nisa.nc_transpose(dst=U[:, c : c + m], data=flat[:, c : c + m], engine=nisa.engine.tensor)


def _ratios(mem, slices, T, U, mode: int):
    """t, u = T / D, U / D, where x = 1 / D; then x and y become what the scalar engine contributes to X and Y."""
    x, y, t, u = slices
    m = x.shape[0]
    nisa.tensor_tensor(dst=t, data1=T, data2=x, op=nl.multiply)
    if mode != PARTNERS:  # U is T, or beta is zero: X is complete
        nisa.activation(dst=x, op=nl.copy, data=t, scale=mem.mix[0:m, 2:3])
        return
    nisa.tensor_tensor(dst=u, data1=U, data2=x, op=nl.multiply)
    nisa.activation(dst=y, op=nl.copy, data=t, scale=mem.mix[0:m, 1:2])
    nisa.activation(dst=x, op=nl.copy, data=u, scale=mem.mix[0:m, 1:2])


def _sums(mem, slices, mode: int):
    """X = alpha t + beta u and Y = alpha u + beta t, whose second terms are in x and y."""
    x, y, t, u = slices
    if mode == PARTNERS:
        alpha = mem.mix[0 : x.shape[0], 0:1]
        nisa.scalar_tensor_tensor(dst=x, data=t, op0=nl.multiply, operand0=alpha, op1=nl.add, operand1=x)
        nisa.scalar_tensor_tensor(dst=y, data=u, op0=nl.multiply, operand0=alpha, op1=nl.add, operand1=y)


def _tiles_in_turn(kind):
    """Tiles off the diagonal, then those on it, as many full squares side by side as a bank of PSUM takes.

    In this order the transposes of one tile can be issued behind the elements of the next.
    """
    squares, tiles = [], []
    for tile in tile_list(kind[0], kind[1], kind[2]):
        if tile[4]:
            squares.append(tile)
        else:
            tiles.append(tile)
    full = len(squares) if kind[0] % P == 0 else len(squares) - 1
    for x in range(0, full, RUN // P):
        tiles.append((x * P, P, x * P, min(RUN, (full - x) * P), True))
    return tiles + squares[max(full, 0) :]


def _advance(mem, banks, slot: int, now, before, mode: int):
    """The elements of the tile ``now``, and the ways to HBM of the one ``before`` (a list of one or none).

    The steps of both alternate, so that no engine waits at once for what another has just begun.
    """
    turn, _, tile = now
    slices = slices_of(mem, turn, tile)
    T, U = banks[0][0 : tile[1], 0 : tile[3]], banks[1][0 : tile[1], 0 : tile[3]]
    if mode == PARTNERS and tile[4]:
        _turn_squares(mem, T, U, turn)
    for done in before:
        high_parts(mem, done, mode)
    _inverse(mem, slot, tile, slices[0])
    for done in before:
        store(mem, done, mode)
        if not done[2][4]:
            transpose(mem, done, mode)
    _ratios(mem, slices, T, U, mode)
    for done in before:
        if not done[2][4]:
            high_transposed(mem, done, mode)
    _sums(mem, slices, mode)
    for done in before:
        if not done[2][4]:
            store_transposed(mem, done, mode)


def _conclude(mem, done, mode: int):
    """The ways to HBM of the last tile of an item."""
    high_parts(mem, done, mode)
    store(mem, done, mode)
    if not done[2][4]:
        transpose(mem, done, mode)
        high_transposed(mem, done, mode)
        store_transposed(mem, done, mode)


@dataclass
class Tiles(nl.NKIObject):
    """The tiles of one work item, and the places of its pairs in Theta."""

    mem: Any
    tiles: Any
    places: Any
    mode: int


def _finish(item, banks, turn: int, slots, x: int):
    """The elements of a tile whose products are in PSUM, and the ways to HBM of the tile before it."""
    slot, before, tiles, places = slots[0], [], item.tiles, item.places
    if x > 0:
        before.append((turn - 1, places[slot], tiles[x - 1]))
    elif turn > 0:
        before.append((turn - 1, places[slot - 1], tiles[len(tiles) - 1]))
    _advance(item.mem, banks, slot, (turn, places[slot], tiles[x]), before, item.mode)


def _pairs(mem, i_blocks, j_blocks, places, kind, mode: int):
    """Pairs of i with each j."""
    tiles = _tiles_in_turn(kind)
    last = len(tiles) - 1
    add_energies(mem.bias, mem.factors.col, mem.e)
    item = Tiles(mem=mem, tiles=tiles, places=places, mode=mode)
    if len(mem.factors.left) == 1:
        resident(mem.factors, tiles, i_blocks, j_blocks, kind, mode, _finish, item)
    else:
        streamed(mem.factors, tiles, i_blocks, j_blocks[0], kind, mode, _finish, item)
    _conclude(mem, (len(j_blocks) * len(tiles) - 1, places[len(j_blocks) - 1], tiles[last]), mode)


def _fields(mem, first: int, count: int):
    registers = []
    for n in range(first, first + count):
        registers.append(field(mem.fields, n))
    return registers


def pair_item(mem, it, count: int, mode: int, kind):
    """One work item: ``count`` pairs that share i, on one block pair; its row as `mp2_gamma_plan` makes it."""
    nfields, group = mem.work.shape[1], mem.e_pair.shape[1]
    row = mem.work.ap(pattern=[[nfields, 1], [1, nfields]], scalar_offset=it, indirect_dim=0)
    nisa.dma_copy(dst=mem.fields, src=row)
    nisa.dma_copy(dst=mem.e, src=mem.e_pair.ap(pattern=[[0, P], [1, group]], scalar_offset=it, indirect_dim=0))
    if mem.factors.ev_row.shape[0] > 1 or mem.factors.ev_col.shape[0] > 1:
        load_virtuals(mem.factors, field(mem.fields, nfields - 2), field(mem.fields, nfields - 1))
    i_blocks = _fields(mem, 0, 2)
    j_blocks, places = [], []
    for g in range(count):
        j_blocks.append(_fields(mem, 2 + 2 * g, 2))
        places.append(_fields(mem, 2 + 2 * group + 4 * g, 4))
    _pairs(mem, i_blocks, j_blocks, places, kind, mode)
