"""Inverses of the diagonal blocks of a triangular matrix, on chip in fp32.

With a lower triangular block L of w x w tiles of 128 x 128 and V = (L^-1)^T, which is upper triangular:

- Tiles on the diagonal: V is first the inverse of the diagonal, then that of blocks of 2, 4, ..., 128 rows. With N the
  part of L^T that a doubling adds, V N V is what V lacks: V <- V - V N V. Products of three matrices have V N V and its
  transpose, so that V^T is at hand for the next doubling and nothing is transposed.
- Tiles above it, column j from the left:  V_ij = -sum_k V_ik T_k with T_k = (L^T)_kj V_jj,  i <= k < j.

These are the products of recursive inversion, whose errors are those of substitution but for a factor of the condition
of the block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nki_kernels.blas.blocks import P
from nki_kernels.lang import nisa, nl

LEVELS = 7  # doublings from 1 to 128 rows
QUAD = 4  # tiles side by side, on which one instruction works


def masks() -> np.ndarray:
    """[LEVELS + 1, 128, 128] fp32: the identity, and for each doubling the elements of L that it adds."""
    p, i = np.indices((P, P))
    levels = [p == i]
    for level in range(LEVELS):
        size = 1 << level
        levels.append((p // (2 * size) == i // (2 * size)) & (p // size % 2 == 1) & (i // size % 2 == 0))
    return np.array(levels, np.float32)


@dataclass
class Blocks(nl.NKIObject):
    """Tiles of one block and what its inversion needs. Lists over rows of tiles have a tile [128, 128 columns] each."""

    count: int  # rows of tiles
    masks: Any  # identity and levels (or what else the kernel needs), each repeated for QUAD tiles
    block: Any  # rows of L
    v: Any  # rows of V
    y: Any  # rows of the transpose of V
    diagonal: Any  # diagonal tiles side by side, QUAD in each: those of L, of V and of its transpose
    v_diagonal: Any
    y_diagonal: Any
    masked: Any  # one for each QUAD
    product: Any
    column: Any
    t: Any  # tiles T_k side by side
    banks: Any


def _tiles(count: int, width: int, buffer):
    tiles = []
    for _ in range(count):
        tiles.append(nl.ndarray((P, width), dtype=nl.float32, buffer=buffer))
    return tiles


def _load_masks(masks_in_hbm):
    levels = masks_in_hbm.shape[0]
    on_chip = _tiles(levels, QUAD * P, nl.sbuf)
    for level in range(levels):
        for x in range(QUAD):
            nisa.dma_copy(dst=on_chip[level][:, x * P : (x + 1) * P], src=masks_in_hbm[level])
    return on_chip


def blocks_on_chip(masks_in_hbm, count: int):
    """The `Blocks` of blocks of count x count tiles, with newly allocated tiles, V zero."""
    quads = (count + QUAD - 1) // QUAD
    v = _tiles(count, count * P, nl.sbuf)
    for tile in v:
        nisa.memset(dst=tile, value=0.0)
    return Blocks(
        count=count,
        masks=_load_masks(masks_in_hbm),
        block=_tiles(count, count * P, nl.sbuf),
        v=v,
        y=_tiles(count, count * P, nl.sbuf),
        diagonal=_tiles(quads, QUAD * P, nl.sbuf),
        v_diagonal=_tiles(quads, QUAD * P, nl.sbuf),
        y_diagonal=_tiles(quads, QUAD * P, nl.sbuf),
        masked=_tiles(quads, QUAD * P, nl.sbuf),
        product=_tiles(quads, QUAD * P, nl.sbuf),
        column=nl.ndarray((P, QUAD), dtype=nl.float32, buffer=nl.sbuf),
        t=nl.ndarray((P, count * P), dtype=nl.float32, buffer=nl.sbuf),
        banks=_tiles(8, QUAD * P, nl.psum),
    )


def _at(tile, x: int):
    """Tile number x of those side by side."""
    return tile[:, x * P : (x + 1) * P]


def _quads(mem):
    """(number, tiles) of each quad of diagonal tiles."""
    quads = []
    for q in range(len(mem.diagonal)):
        quads.append((q, min(QUAD, mem.count - q * QUAD)))
    return quads


def _begin(mem, q: int, tiles: int):
    """V and its transpose of a quad as the inverse of the diagonals of its tiles."""
    identity, v, y = mem.masks[0], mem.v_diagonal[q], mem.y_diagonal[q]
    for x in range(tiles):
        nisa.tensor_copy(dst=_at(mem.diagonal[q], x), src=_at(mem.block[q * QUAD + x], q * QUAD + x))
        reciprocal = mem.column[:, x : x + 1]
        nisa.tensor_tensor(dst=_at(v, x), data1=_at(mem.diagonal[q], x), data2=_at(identity, x), op=nl.multiply)
        nisa.tensor_reduce(dst=reciprocal, op=nl.add, data=_at(v, x), axis=1)
        nisa.reciprocal(dst=reciprocal, data=reciprocal)
        nisa.tensor_scalar(dst=_at(v, x), data=_at(identity, x), op0=nl.multiply, operand0=reciprocal)
        nisa.tensor_copy(dst=_at(y, x), src=_at(v, x), engine=nisa.engine.vector)


def _multiply(bank, left, right, tiles: int):
    for x in range(tiles):
        nisa.nc_matmul(dst=_at(bank, x), stationary=_at(left, x), moving=_at(right, x), accumulate=False)


def _doubling(mem, level: int):
    """One doubling of all tiles on the diagonal; the products of one quad hide what others wait for."""
    for quad in _quads(mem):
        q, tiles = quad
        width = tiles * P
        masked, mask = mem.masked[q][:, 0:width], mem.masks[level][:, 0:width]
        nisa.tensor_tensor(dst=masked, data1=mem.diagonal[q][:, 0:width], data2=mask, op=nl.multiply)
        _multiply(mem.banks[q], masked, mem.v_diagonal[q], tiles)
    for quad in _quads(mem):
        q, tiles = quad
        product, y = mem.product[q], mem.y_diagonal[q]
        nisa.activation(dst=product[:, 0 : tiles * P], op=nl.copy, data=mem.banks[q][:, 0 : tiles * P])
        _multiply(mem.banks[2 + q], y, product, tiles)
        _multiply(mem.banks[4 + q], product, y, tiles)
    for quad in _quads(mem):
        q, tiles = quad
        for pair in [(mem.v_diagonal[q], mem.banks[2 + q]), (mem.y_diagonal[q], mem.banks[4 + q])]:
            target, bank = pair
            tile = target[:, 0 : tiles * P]
            nisa.tensor_tensor(dst=tile, data1=tile, data2=bank[:, 0 : tiles * P], op=nl.subtract)


def _column(mem, j: int):
    """Tiles of column j of V above the diagonal, and their transposes."""
    for k in range(j):
        bank = mem.banks[k // QUAD]
        nisa.nc_matmul(
            dst=_at(bank, k % QUAD), stationary=_at(mem.block[j], k), moving=_at(mem.v[j], j), accumulate=False
        )
    for first in range(0, j, QUAD):
        width = min(QUAD, j - first) * P
        t = mem.t[:, first * P : first * P + width]
        nisa.activation(dst=t, op=nl.copy, data=mem.banks[first // QUAD][:, 0:width])
    for i in range(j):
        sums = _at(mem.banks[2 + i % 4], i // 4)
        for k in range(i, j):
            nisa.nc_matmul(dst=sums, stationary=_at(mem.y[k], i), moving=_at(mem.t, k), accumulate=(k > i))
        nisa.tensor_scalar(dst=_at(mem.v[i], j), data=sums, op0=nl.multiply, operand0=-1.0, engine=nisa.engine.vector)
    for i in range(j):
        turned = _at(mem.banks[6 + i % 2], i // 2)
        nisa.nc_transpose(dst=turned, data=_at(mem.v[i], j), engine=nisa.engine.tensor)
        nisa.activation(dst=_at(mem.y[j], i), op=nl.copy, data=turned)


def invert(mem):
    """V and its transpose of the block on chip."""
    for quad in _quads(mem):
        q, tiles = quad
        _begin(mem, q, tiles)
    for level in range(1, LEVELS + 1):
        _doubling(mem, level)
    assemble(mem)


def assemble(mem):
    """V and its transpose of the block on chip, whose diagonal tiles are in ``v_diagonal`` and ``y_diagonal``."""
    for i in range(mem.count):
        q, x = i // QUAD, i % QUAD
        nisa.tensor_copy(dst=_at(mem.v[i], i), src=_at(mem.v_diagonal[q], x))
        nisa.activation(dst=_at(mem.y[i], i), op=nl.copy, data=_at(mem.y_diagonal[q], x))
    for j in range(1, mem.count):
        _column(mem, j)
