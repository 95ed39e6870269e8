"""Cholesky factorisation of one block on chip, in fp32: W = U^T U with U upper triangular.

    row of tiles t:  W_t <- W_t - sum_r<t U_rt^T U_r      (tensor engine)
                     W_tt -> U_tt, V_tt = U_tt^-1         (Newton's method)
                     U_t = V_tt^T W_t

An elimination of a tile takes 128 steps that wait for one another, and leaves the tensor engine idle meanwhile.
Newton's method for V^T W V = 1 takes a fixed number of steps, each of which consists of products of whole tiles:

    V <- V + V Φ(1 - V^T W V)            Φ: the elements above the diagonal, and half of the diagonal

V begins as the inverse square roots of the diagonal of W, divided by sqrt(128), so that no eigenvalue of V^T W V is
larger than one. A step multiplies a small eigenvalue by 9/4, and squares its distance from one if it is near one. The
number of steps suffices where W, scaled to a unit diagonal, has no eigenvalue below 1e-6; with smaller ones a factor in
fp32 has no correct digits. One step of Newton's method for U^T U = W follows, and one for V U = 1:

    U = V^T W,  R = W - U^T U,  D = Φ(V^T R V):      U <- U + D U,  V <- V - V D,  V <- V + (1 - V U) V

R is accurate relative to W, so that U is as accurate as after an elimination, and V as after substitution. The diagonal
of V^T R V is the relative error of the squared diagonal of U before this step. If it is not small the method has not
converged, which means that the tile is not positive definite in fp32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nki_kernels.blas.blocks import RUN, P
from nki_kernels.blas.inverse import QUAD, assemble, blocks_on_chip
from nki_kernels.lang import nisa, nl

STEPS = 24  # of Newton's method: 20 to multiply an eigenvalue of 1e-5 / 128 by 1e7, and the rest to end
LARGEST_ERROR = 0.25  # of the squared diagonal before the last step, whose own error is about its square


@dataclass
class Factor(nl.NKIObject):
    """Tiles of one block and of the tile that is factorised."""

    blocks: Any  # `inverse.Blocks`; the rows of its y hold W, then U
    triangle: Any  # 1 on and above the diagonal
    upper: Any  # 1 above the diagonal, 1/2 on it
    lower: Any  # 1 below the diagonal, 1/2 on it
    minus_upper: Any
    scaled_identity: Any  # 3/2 on the diagonal
    tiles: Any  # four tiles for intermediate products
    column: Any  # one number on each partition
    ones: Any  # likewise


def masks() -> np.ndarray:
    """[2, 128, 128] fp32: the identity, and a lower triangle of ones with 1/2 on the diagonal."""
    identity = np.eye(P)
    return np.array([identity, np.tri(P) - 0.5 * identity], np.float32)


def _tiles(count: int):
    tiles = []
    for _ in range(count):
        tiles.append(nl.ndarray((P, P), dtype=nl.float32, buffer=nl.sbuf))
    return tiles


def factor_on_chip(masks_in_hbm, count: int):
    """The `Factor` of blocks of count x count tiles, with newly allocated tiles."""
    blocks = blocks_on_chip(masks_in_hbm, count)
    upper, triangle, minus_upper, half, scaled = _tiles(5)
    identity, lower = blocks.masks[0][:, 0:P], blocks.masks[1][:, 0:P]
    nisa.tensor_scalar(dst=half, data=identity, op0=nl.multiply, operand0=0.5)
    nisa.tensor_scalar(dst=scaled, data=identity, op0=nl.multiply, operand0=1.5)
    nisa.tensor_scalar(dst=upper, data=lower, op0=nl.multiply, operand0=-1.0, op1=nl.add, operand1=1.0)
    nisa.tensor_scalar(dst=minus_upper, data=upper, op0=nl.multiply, operand0=-1.0)
    nisa.tensor_tensor(dst=triangle, data1=upper, data2=half, op=nl.add)
    columns = []
    for _ in range(2):
        columns.append(nl.ndarray((P, 1), dtype=nl.float32, buffer=nl.sbuf))
    nisa.memset(dst=columns[1], value=1.0)
    return Factor(
        blocks=blocks,
        triangle=triangle,
        upper=upper,
        lower=lower,
        minus_upper=minus_upper,
        scaled_identity=scaled,
        tiles=_tiles(4),
        column=columns[0],
        ones=columns[1],
    )


def _product(mem, b: int, left, right):
    """left.T @ right of two tiles, in PSUM bank b."""
    bank = mem.blocks.banks[b][:, 0:P]
    nisa.nc_matmul(dst=bank, stationary=left, moving=right, accumulate=False)
    return bank


def _congruence(mem, w, v):
    """V^T W V of a symmetric tile, in PSUM."""
    product = mem.tiles[0]
    nisa.activation(dst=product, op=nl.copy, data=_product(mem, 0, w, v))
    return _product(mem, 1, v, product)


def _begin(mem, w, v, y):
    """V and its transpose y as the diagonal matrix with which Newton's method begins."""
    identity = mem.blocks.masks[0][:, 0:P]
    nisa.tensor_tensor(dst=v, data1=w, data2=identity, op=nl.multiply)
    nisa.tensor_reduce(dst=mem.column, op=nl.add, data=v, axis=1)
    nisa.activation(dst=mem.column, op=nl.sqrt, data=mem.column, scale=float(P))
    nisa.reciprocal(dst=mem.column, data=mem.column)
    nisa.tensor_scalar(dst=v, data=identity, op0=nl.multiply, operand0=mem.column)
    nisa.activation(dst=y, op=nl.copy, data=v)


def _step(mem, w, v, y):
    """One step of Newton's method for V^T W V = 1, which updates V and its transpose.

    The tensor engine adds 1.5 V as well, while it would wait for other engines.
    """
    part = mem.tiles[1]
    nisa.activation(dst=mem.tiles[0], op=nl.copy, data=_product(mem, 0, w, v))
    of_v = _product(mem, 4, mem.scaled_identity, v)
    square = _product(mem, 1, v, mem.tiles[0])
    nisa.tensor_tensor(dst=part, data1=square, data2=mem.minus_upper, op=nl.multiply)
    of_y = _product(mem, 5, mem.scaled_identity, y)
    nisa.nc_matmul(dst=of_v, stationary=y, moving=part, accumulate=True)
    nisa.nc_matmul(dst=of_y, stationary=part, moving=y, accumulate=True)
    nisa.tensor_copy(dst=v, src=of_v, engine=nisa.engine.vector)
    nisa.activation(dst=y, op=nl.copy, data=of_y)


def _correct(mem, w, v, y):
    """U in place of W, with one step for U^T U = W; V^T R V of this step stays in PSUM and is returned."""
    _, part, transposed, u = mem.tiles
    nisa.tensor_tensor(dst=u, data1=_product(mem, 2, v, w), data2=mem.triangle, op=nl.multiply)
    nisa.tensor_tensor(dst=w, data1=w, data2=_product(mem, 3, u, u), op=nl.subtract)
    errors = _congruence(mem, w, v)
    nisa.tensor_tensor(dst=part, data1=errors, data2=mem.upper, op=nl.multiply)
    nisa.tensor_tensor(dst=transposed, data1=errors, data2=mem.lower, op=nl.multiply)
    of_u, of_v, of_y = _product(mem, 2, transposed, u), _product(mem, 4, y, part), _product(mem, 5, part, y)
    nisa.tensor_tensor(dst=w, data1=u, data2=of_u, op=nl.add)
    nisa.tensor_tensor(dst=v, data1=v, data2=of_v, op=nl.subtract)
    nisa.tensor_tensor(dst=y, data1=y, data2=of_y, op=nl.subtract)
    return errors


def _correct_inverse(mem, u, v, y):
    """One step for V U = 1."""
    rest = mem.tiles[1]
    nisa.tensor_tensor(dst=rest, data1=_product(mem, 2, u, y), data2=mem.blocks.masks[0][:, 0:P], op=nl.subtract)
    of_v, of_y = _product(mem, 4, rest, v), _product(mem, 5, v, rest)
    nisa.tensor_tensor(dst=v, data1=v, data2=of_v, op=nl.subtract)
    nisa.tensor_tensor(dst=y, data1=y, data2=of_y, op=nl.subtract)


def _margins(mem, errors):
    """A tile, row 0 of which has LARGEST_ERROR^2 - (squared diagonal of errors): positive where U has converged."""
    diagonal, margins = mem.tiles[2], mem.tiles[3]
    nisa.tensor_tensor(dst=diagonal, data1=errors, data2=mem.blocks.masks[0][:, 0:P], op=nl.multiply)
    nisa.tensor_tensor(dst=diagonal, data1=diagonal, data2=diagonal, op=nl.multiply)
    sums = mem.blocks.banks[6][0:1, 0:P]
    nisa.nc_matmul(dst=sums, stationary=mem.ones, moving=diagonal, accumulate=False)
    limit = LARGEST_ERROR * LARGEST_ERROR
    nisa.tensor_scalar(dst=margins[0:1, :], data=sums, op0=nl.multiply, operand0=-1.0, op1=nl.add, operand1=limit)
    return margins


def _runs(first: int, last: int):
    runs = []
    for start in range(first, last, RUN):
        runs.append((start, min(RUN, last - start)))
    return runs


def factorise(mem, out, row: int):
    """U in place of W, and the inverses of its tiles on the diagonal.

    Row number ``row`` of ``out``, an array in HBM, receives the margins of all rows of tiles, one after the other. The
    caller stores U between `factorise` and `invert_factor`, which overwrites it.
    """
    count, rows, block, banks = mem.blocks.count, mem.blocks.y, mem.blocks.block, mem.blocks.banks
    for t in range(count):
        w, at, x0 = rows[t], t * P, t % QUAD * P
        for run in _runs(at, count * P):
            start, width = run
            bank = banks[2 + start // RUN % 2][:, 0:width]
            for r in range(t):
                left, right = rows[r][:, at : at + P], rows[r][:, start : start + width]
                nisa.nc_matmul(dst=bank, stationary=left, moving=right, accumulate=(r > 0))
            if t > 0:
                part = w[:, start : start + width]
                nisa.tensor_tensor(dst=part, data1=part, data2=bank, op=nl.subtract)
        v = mem.blocks.v_diagonal[t // QUAD][:, x0 : x0 + P]
        y = mem.blocks.y_diagonal[t // QUAD][:, x0 : x0 + P]
        u = w[:, at : at + P]
        _begin(mem, u, v, y)
        for _ in range(STEPS):
            _step(mem, u, v, y)
        errors = _correct(mem, u, v, y)
        _correct_inverse(mem, u, v, y)
        nisa.dma_copy(dst=out[row : row + 1, at : at + P], src=_margins(mem, errors)[0:1, :])
        for run in _runs(at + P, count * P):
            start, width = run
            bank, part = banks[start // RUN % 2][:, 0:width], w[:, start : start + width]
            nisa.nc_matmul(dst=bank, stationary=v, moving=part, accumulate=False)
            nisa.activation(dst=part, op=nl.copy, data=bank)
        for x in range(t + 1, count):
            turned = banks[6 + x % 2][:, 0:P]
            nisa.nc_transpose(dst=turned, data=w[:, x * P : (x + 1) * P], engine=nisa.engine.tensor)
            nisa.activation(dst=block[x][:, at : at + P], op=nl.copy, data=turned)


def invert_factor(mem):
    """V of the factor, the transposes of whose tiles off the diagonal are in ``blocks.block``."""
    assemble(mem.blocks)
