"""The gradients of <gz, z> of a convolution with respect to x, y and w, in one launch.

With z as in ``conv``, the masked harmonics Y[e, (j, n)] = onehot[e, n] y[e, j] of a window and K_i = C[i] ⊗ 1,

    D[(j, n), (i, u)] = sum_k K_i[(j, n), (k, n)] gz[(k, n), u]         once for each window
    S[e, (i, u)]      = sum_(j, n) Y[e, (j, n)] D[(j, n), (i, u)]       for every tile of edges
    gw[e, u]          = sum_i x[sender, i, u] S[e, (i, u)]
    gx[e, i, u]       = sum over paths of w[e, u] S[e, (i, u)]
    gy[e, j]          = sum over (i, u) of (w x)[e, (i, u)] D[(j, n of e), (i, u)]

The rows gx[e] go to memory, and a second half sums those of each sender, by products of the tensor engine with one-hot
senders. No sum depends on the order in which anything runs. The sums gy are products over the columns (i, u), for which
w x and D are transposed by the tensor engine.

Limits: those of ``conv``, and (number of columns of y) x window <= 512. Program: a device loop over the items of the
receivers' table and one, for each 3072 columns of x, over those of the senders' table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nki_kernels.cg.blocks import COLUMNS, RUN, P, range_of, segments_of
from nki_kernels.cg.conv import coupling_of, items_of
from nki_kernels.cg.edges import (
    BUFFERS,
    edges_on_chip,
    feature_view,
    load_item,
    load_tile,
    mask_harmonics,
    product_view,
    tiles_of,
    weigh_features,
    weight_view,
)
from nki_kernels.cg.sender_sums import sum_senders
from nki_kernels.lang import nisa, nki, nl

SLOTS = RUN // P  # transposes side by side in one bank


@dataclass
class Gradients(nl.NKIObject):
    """Results in memory and the tiles on chip; lists are used in turn."""

    gz: Any
    results: Any
    couplings: Any
    gradients: Any  # gz of the window, for each result
    coupled: Any  # D
    turned: Any  # transpose of D, for each chunk of columns
    chunks: Any  # (y0, dy, first, last) of at most 128 columns
    channels: Any  # (y0, dy) of each channel of y
    sums: Any  # S
    work: Any  # bank of small products and transposes
    used: Any  # number of slots of the bank that were used, in a list
    harmonics: Any  # transposes of Y, for each channel of y
    features: Any  # transposes of w x
    inner: Any  # bank of the sums of gy
    masked: Any
    weighted: Any  # x S and w S
    gx: Any
    gy: Any
    gw: Any


def _chunks(segments):
    chunks, channels = [], []
    for segment in segments:
        y0, dy, first, last = segment
        if len(channels) == 0 or channels[len(channels) - 1][0] != y0:
            channels = channels + [(y0, dy)]
        for c in range(first, last, P):
            chunks = chunks + [(y0, dy, c, min(c + P, last))]
    return chunks, channels


def _on_chip(mem, gz, couplings, results, segments):
    count = couplings.shape[0]
    matrices = nl.ndarray((P, count, P), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=matrices, src=couplings.ap(pattern=[[P, P], [P * P, count], [1, P]]))
    chunks, channels = _chunks(segments)
    gradients = []
    for result in results:
        _, _, dz, width = result
        gradients.append(nl.ndarray((dz * mem.window, width), dtype=nl.float32, buffer=nl.sbuf))
    rows_y, rows_x, rows_w = mem.spans[0], mem.spans[1], mem.spans[2]
    return Gradients(
        gz=gz,
        results=results,
        couplings=matrices,
        gradients=gradients,
        coupled=tiles_of(1, P, mem.columns)[0],
        turned=tiles_of(len(chunks), P, P),
        chunks=chunks,
        channels=channels,
        sums=nl.ndarray((P, (mem.columns + RUN - 1) // RUN * RUN), dtype=nl.float32, buffer=nl.psum),
        work=tiles_of(1, P, RUN, nl.psum)[0],
        used=[0],
        harmonics=tiles_of(len(channels), P, P),
        features=tiles_of(4, P, P),
        inner=tiles_of(1, P, RUN, nl.psum)[0],
        masked=tiles_of(1, P, (rows_y[1] - rows_y[0]) * mem.window)[0],
        weighted=tiles_of(2, P, mem.columns),
        gx=tiles_of(2, P, rows_x[1] - rows_x[0]),
        gy=tiles_of(2, P, rows_y[1] - rows_y[0]),
        gw=tiles_of(2, P, rows_w[1] - rows_w[0]),
    )


def _slot(out, rows: int, columns: int):
    """The next part of the bank of small products."""
    at = out.used[0] % SLOTS * P
    out.used[0] = out.used[0] + 1
    return out.work[0:rows, at : at + columns]


def _transpose(out, dst, data):
    """dst = data^T, through PSUM."""
    slot = _slot(out, data.shape[1], data.shape[0])
    nisa.nc_transpose(dst=slot, data=data, engine=nisa.engine.tensor)
    nisa.activation(dst=dst, op=nl.copy, data=slot)


def _couple(mem, out, first):
    """D of the window of an item, and its transpose."""
    window = mem.window
    for r in range(len(out.results)):
        z0, zstep, dz, width = out.results[r]
        pattern = [[zstep, dz], [out.gz.shape[1], window], [1, width]]
        source = out.gz.ap(pattern=pattern, offset=z0, scalar_offset=first, indirect_dim=0)
        nisa.dma_copy(dst=out.gradients[r], src=source)
    for t in range(len(mem.terms)):
        dy, dx, width, r, coupling = mem.terms[t][1], mem.terms[t][4], mem.terms[t][7], mem.terms[t][8], mem.terms[t][9]
        rows = out.results[r][2] * window
        for i in range(dx):
            for u in range(0, width, P):
                size, column = min(P, width - u), mem.starts[t] + i * width + u
                slot = _slot(out, dy * window, size)
                nisa.nc_matmul(
                    dst=slot,
                    stationary=out.couplings[0:rows, coupling + i, 0 : dy * window],
                    moving=out.gradients[r][:, u : u + size],
                    accumulate=False,
                )
                nisa.activation(dst=out.coupled[0 : dy * window, column : column + size], op=nl.copy, data=slot)
    for c in range(len(out.chunks)):
        _, dy, low, high = out.chunks[c]
        turned = out.turned[c][0 : high - low, 0 : dy * window]
        _transpose(out, turned, out.coupled[0 : dy * window, low:high])


def _spread(mem, out, segments, g: int):
    """S of a tile of edges."""
    window, ya, harmonics = mem.window, mem.spans[0][0], mem.harmonics[g % 2]
    c = -1
    for segment in segments:
        y0, dy, first, last = segment
        if c < 0 or out.channels[c][0] != y0:
            c = c + 1
            data = harmonics[:, (y0 - ya) * window : (y0 - ya + dy) * window]
            _transpose(out, out.harmonics[c][0 : dy * window, :], data)
        nisa.nc_matmul(
            dst=out.sums[:, first:last],
            stationary=out.harmonics[c][0 : dy * window, :],
            moving=out.coupled[0 : dy * window, first:last],
            accumulate=False,
        )


def _gradient_y(mem, out, g: int):
    """gy of a tile: products over all columns for every receiver of the window, of which each edge takes its own."""
    window, ya, products, count = mem.window, mem.spans[0][0], mem.products[g % 2], mem.spans[0][1] - mem.spans[0][0]
    for c in range(len(out.chunks)):
        y0, dy, low, high = out.chunks[c]
        features = out.features[c % len(out.features)][0 : high - low, :]
        _transpose(out, features, products[:, low:high])
        nisa.nc_matmul(
            dst=out.inner[:, (y0 - ya) * window : (y0 - ya + dy) * window],
            stationary=features,
            moving=out.turned[c][0 : high - low, 0 : dy * window],
            accumulate=(c > 0 and out.chunks[c - 1][0] == y0),
        )
    gy = out.gy[g % 2]
    if len(out.channels) > 0:
        nisa.memset(dst=gy, value=0.0)
    for channel in out.channels:
        y0, dy = channel
        at, pattern = (y0 - ya) * window, [[window, dy], [1, window]]
        masked = out.masked.ap(pattern=[[count * window, P]] + pattern, offset=at)
        inner = out.inner.ap(pattern=[[RUN, P]] + pattern, offset=at)
        onehot = mem.onehot[g % 2].ap(pattern=[[window, P], [0, dy], [1, window]])
        nisa.tensor_tensor(dst=masked, data1=inner, data2=onehot, op=nl.multiply)
        nisa.tensor_reduce(dst=gy[:, y0 - ya : y0 - ya + dy], op=nl.add, data=masked, axis=2)


def _gradient_w(mem, out, g: int):
    """gw of a tile: x S summed over the components of x."""
    x, weighted, gw = mem.xs[g % BUFFERS], out.weighted[0], out.gw[g % 2]
    for t in range(len(mem.terms)):
        term = mem.terms[t]
        dx, w0, wstep, width = term[4], term[5], term[6], term[7]
        if w0 >= 0:
            place = gw.ap(pattern=[[gw.shape[1], P], [wstep, width]], offset=w0 - mem.spans[2][0])
            product, s = product_view(mem, weighted, t), _sums_view(mem, out, t)
            dst = place if dx == 1 else product
            nisa.tensor_tensor(dst=dst, data1=feature_view(mem, x, term), data2=s, op=nl.multiply)
            for i in range(1, dx):
                at = mem.starts[t] + i * width
                total = weighted[:, mem.starts[t] : mem.starts[t] + width]
                left = total if i == 1 else place
                data = weighted[:, at : at + width]
                nisa.tensor_tensor(dst=place, data1=left, data2=data, op=nl.add, engine=nisa.engine.gpsimd)


def _sums_view(mem, out, t: int):
    term = mem.terms[t]
    return out.sums.ap(
        pattern=[[out.sums.shape[1], P], [term[7], term[4]], [1, term[7]]],
        offset=mem.starts[t],
    )


def separate(terms):
    """Whether any two terms read the same columns of x or columns of different slots."""
    for a in terms:
        for b in terms:
            same = a[2] == b[2] and a[3] == b[3] and a[4] == b[4] and a[7] == b[7]
            apart = a[2] >= b[2] + (b[4] - 1) * b[3] + b[7] or b[2] >= a[2] + (a[4] - 1) * a[3] + a[7]
            if not same and not apart:
                return False
    return True


def _gradient_x(mem, out, g: int):
    """gx of the edges of a tile: w S, summed over the terms with the same features."""
    w, weighted, gx = mem.ws[g % BUFFERS], out.weighted[1], out.gx[g % 2]
    written, plain = [], separate(mem.terms)
    nisa.memset(dst=gx, value=0.0)
    for t in range(len(mem.terms)):
        term = mem.terms[t]
        place, s, product = feature_view(mem, gx, term), _sums_view(mem, out, t), product_view(mem, weighted, t)
        fresh = plain and term[2] not in written
        written = written + [term[2]]
        if term[5] >= 0:
            dst = place if fresh else product
            nisa.tensor_tensor(dst=dst, data1=s, data2=weight_view(mem, w, term), op=nl.multiply)
            if not fresh:
                nisa.tensor_tensor(dst=place, data1=place, data2=product, op=nl.add)
        else:
            nisa.tensor_tensor(dst=place, data1=place, data2=s, op=nl.add)


def _scatter(mem, operand, tile, first: int, g: int):
    """The rows of a tile to the rows of an operand in memory that the item names; rows without an edge are left out."""
    row, target = operand.shape[1], mem.fields[:, 2 * mem.depth + g : 2 * mem.depth + g + 1]
    place = operand.ap(pattern=[[row, P], [1, tile.shape[1]]], offset=first, vector_offset=target, indirect_dim=0)
    nisa.dma_copy(dst=place, src=tile, oob_mode=nisa.oob_mode.skip)


@nki.jit
def cg_gradients(x, y, w, gz, table, bounds, senders, limits, couplings, terms, results, window, share=40):
    """(gx [nodes, columns of x], gy [edges, d2], gw [edges, nw]) fp32 of the terms of a block.

    gz [nodes, d3] fp32 with as many rows as the windows of the table have; senders and limits: table and bounds of the
    same edges by sender, in windows of 128; couplings: K_i^T, that is the matrices of ``cg_conv`` transposed; the other
    arguments are those of ``cg_conv``. gx has the columns of x from the first to the last that the terms read. Columns
    of gy and gw that no term has are undefined, and so is gw without weights.
    """
    edges = y.shape[0]
    span = range_of(terms, 1)
    width = span[1] - span[0]
    rows = nl.ndarray((edges, width), dtype=nl.float32, buffer=nl.shared_hbm)
    gy = nl.ndarray((edges, y.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    gw = nl.ndarray((edges, w.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    nodes = (x.shape[0] + P - 1) // P * P
    gx = nl.ndarray((nodes, width), dtype=nl.float32, buffer=nl.shared_hbm)
    core = nl.program_id(0)
    ends = nl.ndarray((1, 4), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=ends[0:1, 0:2], src=bounds[core : core + 1, :])
    nisa.dma_copy(dst=ends[0:1, 2:4], src=limits[core : core + 1, :])
    mem = edges_on_chip(x, y, w, table, terms, window)
    segments = segments_of(terms)
    out = _on_chip(mem, gz, couplings, results, segments)

    def body(it):
        first = load_item(mem, it)
        _couple(mem, out, first)
        for g in range(mem.depth):
            load_tile(mem, g)
            mask_harmonics(mem, g)
            weigh_features(mem, g, share)
            _spread(mem, out, segments, g)
            _gradient_w(mem, out, g)
            _gradient_x(mem, out, g)
            _gradient_y(mem, out, g)
            _scatter(mem, gy, out.gy[g % 2], mem.spans[0][0], g)
            _scatter(mem, rows, out.gx[g % 2], 0, g)
            if mem.spans[2][1] > 0:
                _scatter(mem, gw, out.gw[g % 2], mem.spans[2][0], g)

    low, high = nisa.register_alloc(), nisa.register_alloc()
    nisa.register_load(low, ends[0:1, 0:1])
    nisa.register_load(high, ends[0:1, 1:2])
    nl.fori_loop(low, high, body)
    if nl.num_programs(0) > 1:
        nisa.core_barrier(rows, (0, 1))
    for first in range(0, width, COLUMNS):
        sum_senders(rows, gx, senders, ends, first, min(COLUMNS, width - first))
    return gx, gy, gw


def reference_cg_gradients(x, y, w, gz, table, bounds, senders, limits, couplings, terms, results, window, share=40):
    """The same gradients in NumPy, edge by edge in fp64; what the kernel leaves undefined is zero."""
    x, y, w, gz = (np.asarray(operand, np.float64) for operand in (x, y, w, gz))
    first, last = range_of(terms, 1)
    gx = np.zeros((-(-len(x) // P) * P, last - first))
    gy, gw = np.zeros_like(y), np.zeros((len(y), w.shape[1]))
    turned = couplings.transpose(0, 2, 1)
    for node, sender, edge, _, receiver in items_of(table, bounds, window):
        for y0, dy, x0, xstep, dx, w0, wstep, width, r, coupling in terms:
            z0, zstep, dz, _ = results[r]
            h = gz[(node + receiver)[:, None, None], z0 + zstep * np.arange(dz)[:, None] + np.arange(width)]
            columns = x0 + xstep * np.arange(dx)[:, None] + np.arange(width)
            c, own, weights = coupling_of(turned, coupling, (dx, dy, dz), window), x[sender][:, columns], 1.0
            s = np.einsum("ijk,eku,ej->eiu", c, h, y[edge, y0 : y0 + dy])
            if w0 >= 0:
                places = w0 + wstep * np.arange(width)
                weights = w[edge][:, None, places]
                gw[edge[:, None], places] += (own * s).sum(axis=1)
            np.add.at(gx, (sender[:, None, None], columns - first), weights * s)
            gy[edge, y0 : y0 + dy] += np.einsum("ijk,eiu,eku->ej", c, weights * own, h)
    return gx.astype(np.float32), gy.astype(np.float32), gw.astype(np.float32)
