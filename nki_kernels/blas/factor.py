"""Cholesky factorisation of one block on chip, in fp32: W = U^T U with U upper triangular.

    row of tiles t:  W_t <- W_t - sum_r<t U_rt^T U_r      (tensor engine)
                     W_tt -> pivots, L_tt                 (128 eliminations)
                     U_t = V_tt^T W_t,  V_tt = U_tt^-1    (``inverse``)

An elimination copies row j of a tile to all partitions by a product with a column of the identity, and subtracts its
multiples from all rows. It takes one product and three instructions of the vector engine, each of which waits for the
one before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nki_kernels.blas.blocks import RUN, P
from nki_kernels.blas.inverse import LEVELS, blocks_on_chip, invert
from nki_kernels.lang import nisa, nl


@dataclass
class Factor(nl.NKIObject):
    """Tiles of one block and of the tile that is eliminated."""

    blocks: Any  # `inverse.Blocks`; the rows of its y hold W, then U
    tile: Any  # `inverse.Blocks` of one tile
    triangle: Any  # 1 on and below the diagonal
    columns: Any  # columns of L before they are divided by the roots of the pivots
    pivots: Any  # pivot j in column j, on every partition
    roots: Any
    reciprocal: Any
    multiple: Any


def factor_on_chip(masks, count: int):
    """The `Factor` of blocks of count x count tiles, with newly allocated tiles."""
    tiles = []
    for _ in range(4):
        tiles.append(nl.ndarray((P, P), dtype=nl.float32, buffer=nl.sbuf))
    blocks = blocks_on_chip(masks, count)
    nisa.tensor_copy(dst=tiles[0], src=blocks.masks[0][:, 0:P])
    for level in range(1, LEVELS + 1):
        nisa.tensor_tensor(dst=tiles[0], data1=tiles[0], data2=blocks.masks[level][:, 0:P], op=nl.add)
    return Factor(
        blocks=blocks,
        tile=blocks_on_chip(masks, 1, (blocks,)),
        triangle=tiles[0],
        columns=tiles[1],
        pivots=tiles[2],
        roots=tiles[3],
        reciprocal=nl.ndarray((P, 1), dtype=nl.float32, buffer=nl.sbuf),
        multiple=nl.ndarray((P, 1), dtype=nl.float32, buffer=nl.sbuf),
    )


def _eliminate(mem, s):
    """Columns and pivots of a symmetric tile, which becomes zero."""
    identity = mem.blocks.masks[0]
    for j in range(P):
        row = mem.blocks.banks[j % 2][:, 0:P]
        nisa.nc_matmul(
            dst=row, stationary=identity[:, j : j + 1].broadcast(1, P), moving=s, is_stationary_onezero=True,
            accumulate=False,
        )  # fmt: skip
        column = s[:, j : j + 1]
        nisa.reciprocal(dst=mem.reciprocal, data=row[:, j : j + 1])
        nisa.tensor_scalar(
            dst=mem.multiple, data=column, op0=nl.multiply, operand0=mem.reciprocal, op1=nl.multiply, operand1=-1.0
        )
        nisa.activation(dst=mem.columns[:, j : j + 1], op=nl.copy, data=column)
        nisa.activation(dst=mem.pivots[:, j : j + 1], op=nl.copy, data=row[:, j : j + 1])
        nisa.scalar_tensor_tensor(dst=s, data=row, op0=nl.multiply, operand0=mem.multiple, op1=nl.add, operand1=s)


def _lower_factor(mem, out):
    """L of the tile: columns divided by the roots of the pivots, zero above the diagonal."""
    nisa.activation(dst=mem.roots, op=nl.sqrt, data=mem.pivots)
    nisa.reciprocal(dst=mem.roots, data=mem.roots)
    nisa.tensor_tensor(dst=mem.roots, data1=mem.roots, data2=mem.triangle, op=nl.multiply)
    nisa.tensor_tensor(dst=out, data1=mem.columns, data2=mem.roots, op=nl.multiply)


def _runs(first: int, last: int):
    runs = []
    for start in range(first, last, RUN):
        runs.append((start, min(RUN, last - start)))
    return runs


def factorise(mem, store_pivots):
    """U in place of W, its transpose in ``blocks.block``, then V in ``blocks.v``.

    store_pivots(t, tile): called with the pivots of row t of tiles, which are in row 0 of the tile. U has to be stored
    by the caller between `factorise` and `invert_factor`, which overwrites it.
    """
    count, rows, block, banks = mem.blocks.count, mem.blocks.y, mem.blocks.block, mem.blocks.banks
    for t in range(count):
        w, at = rows[t], t * P
        for start, width in _runs(at, count * P):
            bank = banks[2 + start // RUN % 2][:, 0:width]
            for r in range(t):
                left, right = rows[r][:, at : at + P], rows[r][:, start : start + width]
                nisa.nc_matmul(dst=bank, stationary=left, moving=right, accumulate=(r > 0))
            if t > 0:
                part = w[:, start : start + width]
                nisa.tensor_tensor(dst=part, data1=part, data2=bank, op=nl.subtract)
        _eliminate(mem, w[:, at : at + P])
        store_pivots(t, mem.pivots)
        lower = mem.tile.block[0]
        _lower_factor(mem, lower)
        nisa.tensor_copy(dst=block[t][:, at : at + P], src=lower)
        turned = banks[6][:, 0:P]
        nisa.nc_transpose(dst=turned, data=lower, engine=nisa.engine.tensor)
        nisa.activation(dst=w[:, at : at + P], op=nl.copy, data=turned)
        if t + 1 < count:
            invert(mem.tile)
            for start, width in _runs(at + P, count * P):
                bank, part = banks[start // RUN % 2][:, 0:width], w[:, start : start + width]
                nisa.nc_matmul(dst=bank, stationary=mem.tile.v[0], moving=part, accumulate=False)
                nisa.activation(dst=part, op=nl.copy, data=bank)
        for x in range(t + 1, count):
            turned = banks[6 + x % 2][:, 0:P]
            nisa.nc_transpose(dst=turned, data=w[:, x * P : (x + 1) * P], engine=nisa.engine.tensor)
            nisa.activation(dst=block[x][:, at : at + P], op=nl.copy, data=turned)


def invert_factor(mem):
    """V of the factor whose transpose is in ``blocks.block``."""
    invert(mem.blocks)
