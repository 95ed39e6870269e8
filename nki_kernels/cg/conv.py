"""A convolution of mode uvu over a graph: gather, Clebsch-Gordan product and sum over edges in one launch.

    z[n, k, u] = sum over edges e that n receives, over paths, i and j of
                 C[i, j, k] w[e, u] x[sender of e, i, u] y[e, j]

Edges are on the partitions, 128 a tile, and channels on the free axis. The coupling does not depend on the edge, so the
sum over edges comes first. With edges sorted by receiver, in windows of ``window`` receivers,

    Q[(j, n), (i, u)] = sum_e (onehot[e, n] y[e, j]) (w[e, u] x[sender, i, u])      for every tile of edges
    z[(k, n), u]      = sum_i K_i[(j, n), (k, n)] Q[(j, n), (i, u)]                 once for each window

where K_i = C[i] ⊗ 1. Both are products of the tensor engine: the first has the harmonics, masked by receiver, as its
stationary operand, so that it scatters and couples at the same time. Per edge, only the products w x are left for the
vector engine, which multiplies each component of x once for each path instead of once for each element of C.

Limits: degrees l with (2 l + 1) window <= 128; at most 3072 products w x in all terms; tiles that fit SBUF
(``memory``); fewer than 2^31 elements in each array. A tile of NaN or infinity spreads to all receivers of its window.
Program: one device loop over the items of ``windows``; the static instruction count depends on the terms and on the
tiles of an item, not on edges and nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nki_kernels.cg.blocks import BANKS, RUN, P, segments_of
from nki_kernels.cg.edges import edges_on_chip, load_item, load_tile, mask_harmonics, tiles_of, weigh_features
from nki_kernels.lang import nisa, nki, nl


@dataclass
class Results(nl.NKIObject):
    """The results in memory and the tiles on chip of their sums."""

    z: Any
    results: Any
    couplings: Any
    banks: Any  # sums over the edges of an item
    sums: Any  # the same in SBUF
    coupled: Any
    totals: Any  # sums over the items of a window


def _results_on_chip(mem, z, couplings, results):
    count = couplings.shape[0]
    matrices = nl.ndarray((P, count, P), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=matrices, src=couplings.ap(pattern=[[P, P], [P * P, count], [1, P]]))
    totals = []
    for result in results:
        _, _, dz, width = result
        total = nl.ndarray((dz * mem.window, width), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=total, value=0.0)
        totals.append(total)
    banks = (mem.columns + RUN - 1) // RUN
    return Results(
        z=z,
        results=results,
        couplings=matrices,
        banks=tiles_of(banks, P, RUN, nl.psum),
        sums=tiles_of(1, P, mem.columns)[0],
        coupled=tiles_of(8 - BANKS, P, RUN, nl.psum),
        totals=totals,
    )


def _sum_edges(mem, out, segments, g: int):
    """Q += masked harmonics^T (w x) for one tile of edges."""
    harmonics, products, ya = mem.harmonics[g % 2], mem.products[g % 2], mem.spans[0][0]
    for segment in segments:
        y0, dy, first, last = segment
        bank, column = out.banks[first // RUN], first % RUN
        nisa.nc_matmul(
            dst=bank[0 : dy * mem.window, column : column + last - first],
            stationary=harmonics[:, (y0 - ya) * mem.window : (y0 - ya + dy) * mem.window],
            moving=products[:, first:last],
            accumulate=(g > 0),
        )


def _take_sums(mem, out, segments):
    """Q from PSUM to SBUF, by two engines in turn."""
    for s in range(len(segments)):
        _, dy, first, last = segments[s]
        rows, column = dy * mem.window, first % RUN
        source, place = out.banks[first // RUN][0:rows, column : column + last - first], out.sums[0:rows, first:last]
        if s % 2 == 0:
            nisa.activation(dst=place, op=nl.copy, data=source)
        else:
            nisa.tensor_copy(dst=place, src=source, engine=nisa.engine.vector)


def _couple(mem, out, r: int, first):
    """Result r of an item, added to those of the items before it and written to its rows of z."""
    z0, zstep, dz, width = out.results[r]
    bank = out.coupled[r % len(out.coupled)][0 : dz * mem.window, 0:width]
    fresh = True
    for t in range(len(mem.terms)):
        dy, dx, result, coupling = mem.terms[t][1], mem.terms[t][4], mem.terms[t][8], mem.terms[t][9]
        if result == r:
            for i in range(dx):
                column = mem.starts[t] + i * width
                nisa.nc_matmul(
                    dst=bank,
                    stationary=out.couplings[0 : dy * mem.window, coupling + i, 0 : dz * mem.window],
                    moving=out.sums[0 : dy * mem.window, column : column + width],
                    accumulate=not fresh,
                )
                fresh = False
    total, keep = out.totals[r], mem.numbers[0 : dz * mem.window, mem.depth : mem.depth + 1]
    nisa.scalar_tensor_tensor(dst=total, data=total, op0=nl.multiply, operand0=keep, op1=nl.add, operand1=bank)
    place = out.z.ap(
        pattern=[[zstep, dz], [out.z.shape[1], mem.window], [1, width]], offset=z0, scalar_offset=first, indirect_dim=0
    )
    nisa.dma_copy(dst=place, src=total)


@nki.jit
def cg_conv(x, y, w, table, bounds, couplings, terms, results, window, nodes, length, share=40):
    """z [nodes, length] fp32; only the columns of ``results`` and the windows of the table are written.

    x [senders, d1], y [edges, d2], w [edges, nw] fp32, w [1, 1] if no term has weights; table [items, 128, 4 depth + 2]
    int32 (``edges``) and bounds [cores, 2] int32, the items of each core; couplings [count, 128, 128] fp32: K_i in the
    first (2 l2 + 1) window rows and (2 l3 + 1) window columns; terms, results: as in ``blocks``.
    share: hundredths of the products w x that GpSimd computes instead of VectorE.
    """
    z = nl.ndarray((nodes, length), dtype=nl.float32, buffer=nl.shared_hbm)
    core = nl.program_id(0)
    limits = nl.ndarray((1, 2), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=limits, src=bounds[core : core + 1, :])
    mem = edges_on_chip(x, y, w, table, terms, window)
    out = _results_on_chip(mem, z, couplings, results)
    segments = segments_of(terms)

    def body(it):
        first = load_item(mem, it)
        for g in range(mem.depth):
            load_tile(mem, g)
            mask_harmonics(mem, g)
            weigh_features(mem, g, share)
            _sum_edges(mem, out, segments, g)
        _take_sums(mem, out, segments)
        for r in range(len(results)):
            _couple(mem, out, r, first)

    low, high = nisa.register_alloc(), nisa.register_alloc()
    nisa.register_load(low, limits[0:1, 0:1])
    nisa.register_load(high, limits[0:1, 1:2])
    nl.fori_loop(low, high, body)
    return z


def reference_cg_conv(x, y, w, table, bounds, couplings, terms, results, window, nodes, length, share=40):
    """The same sums in NumPy, edge by edge in fp64; columns and rows that the kernel does not write are NaN."""
    z = np.full((nodes, length), np.nan)
    x, y, w = (np.asarray(operand, np.float64) for operand in (x, y, w))
    for first, senders, edges, _, receivers in items_of(table, bounds, window):
        for r, (z0, zstep, dz, width) in enumerate(results):
            columns = z0 + zstep * np.arange(dz)[:, None] + np.arange(width)
            if np.isnan(z[first, columns[0, 0]]):
                z[first : first + window, columns.ravel()] = 0
            for y0, dy, x0, xstep, dx, w0, wstep, size, result, coupling in terms:
                if result == r:
                    wx = x[senders][:, x0 + xstep * np.arange(dx)[:, None] + np.arange(size)]
                    if w0 >= 0:
                        wx = wx * w[edges][:, None, w0 + wstep * np.arange(size)]
                    c = coupling_of(couplings, coupling, (dx, dy, dz), window)
                    message = np.einsum("ijk,eiu,ej->eku", c, wx, y[edges, y0 : y0 + dy])
                    np.add.at(z, (first + receivers[:, None, None], columns), message)
    return z.astype(np.float32)


def items_of(table, bounds, window):
    """(first receiver, senders, edges, rows of results, receivers in the window) of the items of a table."""
    depth = (table.shape[2] - 2) // 4
    for number in sorted({number for low, high in bounds for number in range(low, high)}):
        item = table[number]
        fields = item[:, : 4 * depth].reshape(-1, 4, depth).transpose(1, 0, 2).reshape(4, -1)
        inside = fields[3] < window
        yield int(item[0, -1]), *fields[:, inside]


def coupling_of(couplings, number, extents, window):
    """C[i, j, k] in fp64 from the coupling matrices of its components i."""
    dx, dy, dz = extents
    rows, columns = window * np.arange(dy), window * np.arange(dz)
    return np.asarray(couplings[number : number + dx][:, rows][:, :, columns], np.float64)
