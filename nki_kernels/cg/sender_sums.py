"""Rows of edges summed for each sender, by products with one-hot senders: the second half of the gradients' kernel.

    gx[n, :] = sum over edges e with sender n of rows[e, :]

The items of the table are windows of 128 senders with some tiles of their edges, as in ``edges``, which are sorted by
sender. The sums of an item are added to those of the items of its window before it.
"""

from __future__ import annotations

from nki_kernels.cg.blocks import RUN, P
from nki_kernels.cg.edges import BUFFERS, tiles_of
from nki_kernels.lang import nisa, nl


def sum_senders(rows, gx, table, ends, first: int, width: int):
    """Columns first to first + width of gx; ends [1, 4] int32: the items of this core are its last two numbers."""
    depth = (table.shape[2] - 2) // 4
    fields = nl.ndarray((P, table.shape[2]), dtype=nl.int32, buffer=nl.sbuf)
    numbers = nl.ndarray((P, depth + 1), dtype=nl.float32, buffer=nl.sbuf)
    senders = nl.ndarray((P, P), dtype=nl.float32, buffer=nl.sbuf)
    nisa.iota(dst=senders, pattern=[[1, P]], offset=0, channel_multiplier=0)
    data, onehot = tiles_of(BUFFERS, P, width), tiles_of(2, P, P)
    banks = tiles_of((width + RUN - 1) // RUN, P, RUN, nl.psum)
    total = tiles_of(1, P, width)[0]
    nisa.memset(dst=total, value=0.0)
    row = rows.shape[1]

    def body(it):
        place = table.ap(pattern=[[table.shape[2], P], [1, table.shape[2]]], scalar_offset=it, indirect_dim=0)
        nisa.dma_copy(dst=fields, src=place)
        nisa.tensor_copy(dst=numbers, src=fields[:, 3 * depth : 4 * depth + 1])
        node = nisa.register_alloc()
        nisa.register_load(node, fields[0:1, 4 * depth + 1 : 4 * depth + 2])
        for g in range(depth):
            mask, tile = onehot[g % 2], data[g % BUFFERS]
            index = fields[:, depth + g : depth + g + 1]
            source = rows.ap(pattern=[[row, P], [1, width]], offset=first, vector_offset=index, indirect_dim=0)
            nisa.dma_copy(dst=tile, src=source)
            nisa.tensor_scalar(dst=mask, data=senders, op0=nl.equal, operand0=numbers[:, g : g + 1])
            for c in range(0, width, RUN):
                size = min(RUN, width - c)
                nisa.nc_matmul(
                    dst=banks[c // RUN][:, 0:size], stationary=mask, moving=tile[:, c : c + size], accumulate=(g > 0)
                )
        keep = numbers[:, depth : depth + 1]
        for c in range(0, width, RUN):
            size = min(RUN, width - c)
            part, bank = total[:, c : c + size], banks[c // RUN][:, 0:size]
            nisa.scalar_tensor_tensor(dst=part, data=part, op0=nl.multiply, operand0=keep, op1=nl.add, operand1=bank)
        target = gx.ap(pattern=[[row, P], [1, width]], offset=first, scalar_offset=node, indirect_dim=0)
        nisa.dma_copy(dst=target, src=total)

    low, high = nisa.register_alloc(), nisa.register_alloc()
    nisa.register_load(low, ends[0:1, 2:3])
    nisa.register_load(high, ends[0:1, 3:4])
    nl.fori_loop(low, high, body)
