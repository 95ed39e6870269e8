"""Solution of triangular systems with many right-hand sides: L X = B, L lower triangular.

    V_k = (L_kk^-1)^T                        of every diagonal block of ``panel`` rows, on chip      (``inverse``)
    W_k = B_k - sum_j<k L_kj X_j             items of one work list, in the order in which they can be computed
    X_k = V_k^T W_k                          an item as well                                        (``ahead``)

An item multiplies ``panel`` rows for a block of ``panel`` rows and ``cols`` columns. W_k waits in the place of X_k. The
items of a panel take the blocks of columns in turn, and a block is solved one turn after its sums are complete. So no
item reads what the item before it stores, and operands are loaded one item ahead, if there are several blocks.

All items are the same program, whatever they compute: the number of instructions depends on the panel and the remainder
of the columns only. This costs one dense product with V_k, of which one half is zero.

Limits: n a multiple of ``panel``, which is a multiple of 128 and at most 1024; fewer than 2^31 elements in each array.
"""

from __future__ import annotations

import numpy as np

from nki_kernels.blas.ahead import chunk_blocks, item_of, loop_ahead, operand_tiles
from nki_kernels.blas.blocks import Kind, P, matrix, round_to_parts, work
from nki_kernels.blas.inverse import blocks_on_chip, invert
from nki_kernels.blas.solve_plan import is_ahead, rounds_of
from nki_kernels.cores import range_of_core
from nki_kernels.gemm_blocks import blocks_of
from nki_kernels.lang import nisa, nki, nl
from nki_kernels.precision.splits import products_of


def _first_half(l_t, diagonal, masks, places, left, panel: int):
    """L^T, and behind its rows V of every diagonal block, to the left operand of all items."""
    parts, n, _ = l_t.shape
    mem = blocks_on_chip(masks, panel // P)
    fields = nl.ndarray((1, 3), dtype=nl.int32, buffer=nl.sbuf)
    rounded = []
    if l_t.dtype != nl.float32:
        for _ in range(parts):
            rounded.append(nl.ndarray((P, panel), dtype=l_t.dtype, buffer=nl.sbuf))
    elements, rows = diagonal.reshape((n * panel, 1)), l_t.reshape((parts * n * n, 1))

    def body(it):
        nisa.dma_copy(dst=fields, src=places.ap(pattern=[[3, 1], [1, 3]], scalar_offset=it, indirect_dim=0))
        at = []
        for f in range(3):
            register = nisa.register_alloc()
            nisa.register_load(register, fields[0:1, f : f + 1])
            at.append(register)
        for i in range(mem.count):
            width = (i + 1) * P
            source = elements.ap(
                pattern=[[panel, P], [1, width]], offset=i * P * panel, scalar_offset=at[0], indirect_dim=0
            )
            nisa.dma_copy(dst=mem.block[i][:, 0:width], src=source)
        for p in range(parts):
            pattern = [[n, panel], [1, n]]
            source = rows.ap(pattern=pattern, offset=p * n * n, scalar_offset=at[1], indirect_dim=0)
            target = left.data.ap(pattern=pattern, offset=p * left.size, scalar_offset=at[1], indirect_dim=0)
            nisa.dma_copy(dst=target, src=source)
        invert(mem)
        for i in range(mem.count):
            tiles = [mem.v[i]]
            if l_t.dtype != nl.float32:
                tiles = rounded
                round_to_parts(tiles, mem.v[i])
            for p in range(parts):
                place = left.data.ap(
                    pattern=[[n, P], [1, panel]],
                    offset=p * left.size + i * P * n,
                    scalar_offset=at[2],
                    indirect_dim=0,
                )
                nisa.dma_copy(dst=place, src=tiles[p])

    nl.fori_loop(0, n // panel, body)


@nki.jit
def blas_trsm(l_t, diagonal, b, masks, places, items, factors, panel, cols):
    """l_t[parts, n, n] = L^T, b[n, m] fp32; returns X [n, m] fp32.

    diagonal [n / panel, panel, panel] fp32: the blocks L_kk; masks: ``inverse.masks``;
    places, items, factors: as ``solve_plan.solve_list`` returns them; cols: columns of a block.
    """
    parts, n, _ = l_t.shape
    m = b.shape[1]
    out = nl.ndarray((n, m), dtype=nl.float32, buffer=nl.shared_hbm)
    cores = nl.num_programs(0) if nl.program_ndim() > 0 else 1
    core = nl.program_id(0) if nl.program_ndim() > 0 else 0
    left = matrix(nl.ndarray((parts, n + panel, n), dtype=l_t.dtype, buffer=nl.hbm), panel, chunk_blocks(panel))
    _first_half(l_t, diagonal, masks, places, left, panel)
    x = out
    if cores > 1:
        # Items solve in place, and cores may have blocks in common.
        x = nl.ndarray((n, m), dtype=nl.float32, buffer=nl.hbm)
    right = matrix(x.reshape((1, n, m)), min(cols, m), chunk_blocks(panel))
    moving = operand_tiles(right, parts, l_t.dtype)
    c, column, rounds = b.reshape((n * m, 1)), x.reshape((n * m, 1)), rounds_of(panel, cols)
    mem = work(left, right, parts, c, column, m, items, factors, panel, cols, rounds)
    before = 0
    each = n // panel * (n // panel + 1) // 2
    for block in blocks_of(m, cols):
        width, count, start = block
        kind = Kind(m=panel, n=width, k=panel, diagonal=-1, summed=True, update=True)
        begin, end = range_of_core(count, core, cores)
        c0, c1 = start + begin * width, start + end * width
        nisa.dma_copy(dst=x[0:panel, c0:c1], src=b[0:panel, c0:c1])
        one = item_of(kind, moving, l_t.dtype != nl.float32, is_ahead(count, cores))
        items_a_core = (end - begin) * each
        first = before + core * items_a_core
        loop_ahead(mem, one, first, first + items_a_core, n * n, c0)
        if cores > 1:
            nisa.dma_copy(dst=out[:, c0:c1], src=x[:, c0:c1])
        before = before + cores * items_a_core
    return out


def reference_blas_trsm(l_t, diagonal, b, masks, places, items, factors, panel, cols):
    """The same in NumPy: substitution by blocks in fp64, with solutions rounded to the parts of the operands."""
    parts, n, _ = l_t.shape
    x = np.zeros((parts, *b.shape))
    result = np.empty(b.shape)
    for k in range(n // panel):
        rows = slice(k * panel, (k + 1) * panel)
        known = sum(
            l_t[p, : k * panel, rows].astype(np.float64).T @ x[q, : k * panel] for p, q in products_of(parts, parts)
        )
        result[rows] = np.linalg.solve(np.tril(diagonal[k].astype(np.float64)), b[rows] - known)
        rest = result[rows].copy()
        for p in range(parts):
            x[p, rows] = rest.astype(l_t.dtype)
            rest -= x[p, rows]
    return result.astype(np.float32)
