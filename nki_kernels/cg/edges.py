"""What both directions do for a tile of 128 edges: gather, one-hot receivers, masked harmonics, weighted features.

An item of the table is a window of receivers with up to ``depth`` tiles of its edges. Its columns are, for each of 128
partitions, the senders, the edges, the rows to which results of edges are written, and the receivers counted from the
first of the window (each for ``depth`` tiles), then 0 if the item is the first of its window and else 1, then the first
receiver. Tiles are filled up with edges whose receiver is outside the window: the one-hot rows of these are zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nki_kernels.cg.blocks import P, range_of, starts_of
from nki_kernels.lang import nisa, nl

BUFFERS = 3  # tiles of edges whose operands are on the chip at the same time


@dataclass
class Edges(nl.NKIObject):
    """Operands in memory and the tiles on chip of all edges; lists are used in turn."""

    x: Any
    y: Any
    w: Any
    table: Any
    terms: Any
    starts: Any
    columns: int
    window: int
    depth: int
    spans: Any  # first and last column of y, x and w
    fields: Any
    numbers: Any  # receivers in the window, for each tile, and what is kept of the sums, in fp32
    receivers: Any  # 0, 1, ... window - 1 on every partition
    ys: Any
    xs: Any
    ws: Any
    onehot: Any
    harmonics: Any
    products: Any


def tiles_of(count: int, rows: int, width: int, buffer=nl.sbuf):
    """Tiles [rows, width] in fp32, to be used in turn."""
    tiles = []
    for _ in range(count):
        tiles.append(nl.ndarray((rows, max(width, 1)), dtype=nl.float32, buffer=buffer))
    return tiles


def edges_on_chip(x, y, w, table, terms, window: int):
    """The `Edges` of a kernel's arguments, with newly allocated tiles."""
    depth = (table.shape[2] - 2) // 4
    spans = [range_of(terms, 0), range_of(terms, 1), range_of(terms, 2)]
    starts, columns = starts_of(terms)
    receivers = nl.ndarray((P, window), dtype=nl.float32, buffer=nl.sbuf)
    nisa.iota(dst=receivers, pattern=[[1, window]], offset=0, channel_multiplier=0)
    return Edges(
        x=x,
        y=y,
        w=w,
        table=table,
        terms=terms,
        starts=starts,
        columns=columns,
        window=window,
        depth=depth,
        spans=spans,
        fields=nl.ndarray((P, table.shape[2]), dtype=nl.int32, buffer=nl.sbuf),
        numbers=nl.ndarray((P, depth + 1), dtype=nl.float32, buffer=nl.sbuf),
        receivers=receivers,
        ys=tiles_of(BUFFERS, P, spans[0][1] - spans[0][0]),
        xs=tiles_of(BUFFERS, P, spans[1][1] - spans[1][0]),
        ws=tiles_of(BUFFERS, P, spans[2][1] - spans[2][0]),
        onehot=tiles_of(2, P, window),
        harmonics=tiles_of(2, P, (spans[0][1] - spans[0][0]) * window),
        products=tiles_of(2, P, columns),
    )


def load_item(mem, it):
    """The fields of an item; returns a register with its first receiver."""
    width, depth = mem.table.shape[2], mem.depth
    place = mem.table.ap(pattern=[[width, P], [1, width]], scalar_offset=it, indirect_dim=0)
    nisa.dma_copy(dst=mem.fields, src=place)
    nisa.tensor_copy(dst=mem.numbers, src=mem.fields[:, 3 * depth : 4 * depth + 1])
    first = nisa.register_alloc()
    nisa.register_load(first, mem.fields[0:1, 4 * depth + 1 : 4 * depth + 2])
    return first


def _gather(tile, operand, span, index):
    """Columns ``span`` of the rows of an operand that the index names, one row a partition."""
    row, width = operand.shape[1], span[1] - span[0]
    source = operand.ap(pattern=[[row, P], [1, width]], offset=span[0], vector_offset=index, indirect_dim=0)
    nisa.dma_copy(dst=tile, src=source)


def load_tile(mem, g: int):
    """The rows of x, y and w of tile g of an item."""
    depth, turn = mem.depth, g % BUFFERS
    sender, edge = mem.fields[:, g : g + 1], mem.fields[:, depth + g : depth + g + 1]
    _gather(mem.ys[turn], mem.y, mem.spans[0], edge)
    _gather(mem.xs[turn], mem.x, mem.spans[1], sender)
    if mem.spans[2][1] > 0:
        _gather(mem.ws[turn], mem.w, mem.spans[2], edge)


def mask_harmonics(mem, g: int):
    """[e, (j, n)]: y_j of edge e if n is its receiver, else 0."""
    window, count = mem.window, mem.spans[0][1] - mem.spans[0][0]
    onehot, harmonics, y = mem.onehot[g % 2], mem.harmonics[g % 2], mem.ys[g % BUFFERS]
    nisa.tensor_scalar(dst=onehot, data=mem.receivers, op0=nl.equal, operand0=mem.numbers[:, g : g + 1])
    nisa.tensor_tensor(
        dst=harmonics.ap(pattern=[[count * window, P], [window, count], [1, window]]),
        data1=y.ap(pattern=[[count, P], [1, count], [0, window]]),
        data2=onehot.ap(pattern=[[window, P], [0, count], [1, window]]),
        op=nl.multiply,
    )


def feature_view(mem, tile, term):
    """[128, dx, width] of a tile with the columns of x that are on the chip."""
    span = mem.spans[1]
    return tile.ap(pattern=[[span[1] - span[0], P], [term[3], term[4]], [1, term[7]]], offset=term[2] - span[0])


def weight_view(mem, tile, term):
    """[128, dx, width] of a tile with the columns of w: the weights of a term, the same for all components."""
    span = mem.spans[2]
    return tile.ap(pattern=[[span[1] - span[0], P], [0, term[4]], [term[6], term[7]]], offset=term[5] - span[0])


def product_view(mem, tile, t: int):
    """[128, dx, width] of a tile with the columns of all terms."""
    term = mem.terms[t]
    return tile.ap(pattern=[[mem.columns, P], [term[7], term[4]], [1, term[7]]], offset=mem.starts[t])


def engines_of(terms, share: int):
    """The engine of each term's product: VectorE, or GpSimd for about ``share`` hundredths of the elements."""
    engines, done, total = [], 0, 0
    for term in terms:
        size = term[4] * term[7]
        total = total + size
        if share > 0 and (done + size) * 100 <= share * total:
            done = done + size
            engines.append(nisa.engine.gpsimd)
        else:
            engines.append(nisa.engine.vector)
    return engines


def weigh_features(mem, g: int, share: int):
    """w x of every term."""
    engines = engines_of(mem.terms, share)
    products, x, w = mem.products[g % 2], mem.xs[g % BUFFERS], mem.ws[g % BUFFERS]
    for t in range(len(mem.terms)):
        term = mem.terms[t]
        out, data = product_view(mem, products, t), feature_view(mem, x, term)
        if term[5] < 0:
            nisa.activation(dst=out, op=nl.copy, data=data)
        else:
            weights = weight_view(mem, w, term)
            nisa.tensor_tensor(dst=out, data1=data, data2=weights, op=nl.multiply, engine=engines[t])
