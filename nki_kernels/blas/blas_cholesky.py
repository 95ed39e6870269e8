"""One panel of rows of a Cholesky factorisation A = U^T U, U upper triangular.

    W = A_k - sum_j<k U_jk^T U_j        items of a work list
    W_kk = U_kk^T U_kk,  V = U_kk^-1    on chip       (``factor``)
    U_k = V^T W                         items right of the diagonal block

A launch computes the panel from the panels before it, and the host launches the same program for each panel: which
panel it is stands in the work list only. The number of instructions depends on the panel alone.

The margins of convergence of the diagonal block (``factor``) follow the rows of the result. The first one that is not
positive ends the factorisation, because its tile of 128 rows is not positive definite in fp32. The rows of this tile
and all rows after it are undefined then.

Limits: n a multiple of ``panel``, which is a multiple of 128 and at most 1024; fewer than 2^31 elements in each array.
Each core computes everything, and all write the same result.
"""

from __future__ import annotations

import numpy as np

from nki_kernels.blas.blocks import Kind, P, item, keep_parts, matrix, round_to_parts, work
from nki_kernels.blas.factor import LARGEST_ERROR, factor_on_chip, factorise, invert_factor
from nki_kernels.lang import nisa, nki, nl
from nki_kernels.precision.splits import sum_of_products


def _register(bounds, f: int):
    register = nisa.register_alloc()
    nisa.register_load(register, bounds[0:1, f : f + 1])
    return register


def _items(mem, limits, f: int, kind):
    """The device loop over the items of one kind, whose first and last numbers are in ``limits``."""

    def body(it):
        item(mem, it, 0, kind)

    nl.fori_loop(_register(limits, f), _register(limits, f + 1), body)


def _diagonal_block(masks, out, solved, v, panel: int, n: int, column):
    """U_kk and its margins to the result, and V to its array; column: a register with the first column of the block."""
    mem = factor_on_chip(masks, panel // P)
    elements = out.reshape(((panel + 1) * n, 1))
    for i in range(mem.blocks.count):
        source = elements.ap(pattern=[[n, P], [1, panel]], offset=i * P * n, scalar_offset=column, indirect_dim=0)
        nisa.dma_copy(dst=mem.blocks.y[i], src=source)
    factorise(mem, out, panel)
    for i in range(mem.blocks.count):
        if i > 0:
            nisa.memset(dst=mem.blocks.y[i][:, 0 : i * P], value=0.0)
        target = elements.ap(pattern=[[n, P], [1, panel]], offset=i * P * n, scalar_offset=column, indirect_dim=0)
        nisa.dma_copy(dst=target, src=mem.blocks.y[i])
    invert_factor(mem)
    parts = v.shape[0]
    for i in range(mem.blocks.count):
        tiles = [mem.blocks.v[i]]
        if v.dtype != nl.float32:
            tiles = []
            for _ in range(parts):
                tiles.append(nl.ndarray((P, panel), dtype=v.dtype, buffer=nl.sbuf))
            round_to_parts(tiles, mem.blocks.v[i])
        for p in range(parts):
            nisa.dma_copy(dst=v[p, i * P : (i + 1) * P, :], src=tiles[p])


@nki.jit
def blas_cholesky(u, row, first, masks, items, factors, limits, panel, cols):
    """u[parts, n, n]: the panels before; row [panel, n] fp32 and first [parts, panel, n]: rows k of A and their parts.

    masks: ``factor.masks``; items, factors, limits: as ``solve_plan.panel_list`` returns them. Returns [panel + 1, n]
    fp32: rows k of U from the diagonal block on, then one row that begins with the margins of convergence.
    """
    parts, n, _ = u.shape
    out = nl.ndarray((panel + 1, n), dtype=nl.float32, buffer=nl.shared_hbm)
    cores = nl.num_programs(0) if nl.program_ndim() > 0 else 1
    own = out
    if cores > 1:
        # Items compute in place, and both cores run all of them.
        own = nl.ndarray((panel + 1, n), dtype=nl.float32, buffer=nl.hbm)
    solved = own.reshape((1, panel + 1, n))
    if u.dtype != nl.float32:
        solved = nl.ndarray((parts, panel + 1, n), dtype=u.dtype, buffer=nl.hbm)
        for p in range(parts):
            nisa.dma_copy(dst=solved[p, 0:panel, :], src=first[p])
    v = nl.ndarray((parts, panel, panel), dtype=u.dtype, buffer=nl.hbm)
    nisa.dma_copy(dst=own[0:panel, :], src=row)
    bounds = nl.ndarray((1, limits.shape[1]), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=bounds, src=limits)
    left, right = matrix(u, panel), matrix(solved, cols)
    column = row.reshape((panel * n, 1)), own.reshape(((panel + 1) * n, 1))
    of_u = matrix(u, cols)
    mem = work(left, of_u, parts, column[0], column[1], n, items, factors, panel, cols)
    if u.dtype != nl.float32:
        keep_parts(mem, right)
    sums = Kind(m=panel, n=cols, k=panel, diagonal=-1, summed=True, update=True)
    _items(mem, bounds, 0, sums)
    _diagonal_block(masks, own, solved, v, panel, n, _register(bounds, 4))
    solutions = Kind(m=panel, n=cols, k=panel, diagonal=-1, summed=False, update=False)
    mem = work(matrix(v, panel), right, parts, column[0], column[1], n, items, factors, panel, cols)
    _items(mem, bounds, 2, solutions)
    if cores > 1:
        nisa.dma_copy(dst=out, src=own)
    return out


def reference_blas_cholesky(u, row, first, masks, items, factors, limits, panel, cols):
    """The same in NumPy: fp64 arithmetic on the given (rounded) panels."""
    start = int(limits[0, 4])
    w = row.astype(np.float64)
    if start:
        w = w - sum_of_products(u[:, :start, start : start + panel], u[:, :start])
    lower = np.linalg.cholesky(w[:, start : start + panel])
    out = np.zeros((panel + 1, u.shape[2]))
    out[:panel] = np.linalg.solve(lower, w)
    out[:panel, start : start + panel] = lower.T
    out[:panel, :start] = row[:, :start]
    out[panel, :panel] = LARGEST_ERROR**2
    out[panel, panel:] = np.nan
    return out.astype(np.float32)
