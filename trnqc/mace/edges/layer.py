"""Programs of a layer's convolution over a range of nodes, in blocks of rows of weights (`rows`).

forward: block -> weights (network or spline) -> for each receiver of the block: its sum (convolution)
reverse: block -> weights and slopes -> for each edge: gradients of x[sender], harmonics and length

Weights are kept for the rows of one block only. The edges of a receiver may be in several blocks.
"""

from __future__ import annotations

from trnqc.gen import Array, Value
from trnqc.gen import statements as st
from trnqc.gen.build import Builder
from trnqc.mace.edges import convolution, lane_sums, rows
from trnqc.mace.edges.geometry.programs import EDGES, ELEMENTS, INTERVALS, RECEIVERS, SENDERS
from trnqc.mace.edges.loops import NODES, SHARE, SHARES, clear
from trnqc.mace.edges.networks.block import PAIRS, ROW_EDGES, WeightsProgram
from trnqc.mace.edges.paths import PathLayout
from trnqc.mace.edges.scratch import scratch_of

GRAPH = (SHARES, *rows.ROWS_OF_RANGE, SENDERS, RECEIVERS, ELEMENTS)


def forward(layout: PathLayout, source: WeightsProgram, most: int) -> st.Function:
    """Return the program of z[receiver] = sum over edges, for the range of nodes of each share.

    Its parameters are ``edges``, ``shares`` [S + 1], the rows of the range (`rows.ROWS_OF_RANGE`), ``senders,
    receivers`` [E], ``elements`` [N], ``harmonics, radial, cutoff, intervals`` of the geometry, ``pairs`` and
    ``parameters`` of the weights, the features ``x`` [N, d1, channels], ``scratch_vectors, scratch_numbers`` and the
    result ``z`` [N, d3, channels].
    """
    b, dtype, size = Builder(), source.dtype, layout.dims[2] * layout.vectors
    y, radial, _, cutoff = _geometry(layout, source)
    parameters, x, z = (Array(name, dtype, lanes=True) for name in ("parameters", "x", "z"))
    scratch = scratch_of(layout, source, 1)
    own = scratch.views(SHARE)
    convolve = convolution.forward(layout, dtype, source.edges, most)
    clear(b, z, SHARES[SHARE] * size, SHARES[SHARE + 1] * size)
    with rows.blocks(b, source) as block:
        tables = (INTERVALS, PAIRS, parameters, SENDERS, RECEIVERS, ELEMENTS)
        results = (own["sums"], own["hidden"], own["weights"], ROW_EDGES)
        program = source.program(slopes=False, listed=True)
        b.call(program, block.first, block.rows, EDGES, radial, cutoff, *tables, *results)
        b.call(convolution.couplings(layout, dtype), block.count, block.edges, y, own["couplings"])
        with rows.runs(b, block) as (node, begin, end):
            inputs = (block.edges, block.edge_rows, SENDERS, own["couplings"], own["weights"])
            b.call(convolve, begin, end, *inputs, x, st.view(z[node * size]))
    arrays = (y, radial, cutoff, INTERVALS, PAIRS, parameters, x, *scratch.params, z)
    return b.function("layer", (EDGES, *GRAPH, *arrays), group=SHARE)


def reverse(layout: PathLayout, source: WeightsProgram) -> st.Function:
    """Return the program of the gradients of x, of the harmonics and of the lengths.

    Its parameters are those of `forward` with ``nodes`` and ``slopes``, the gradient ``g_z`` in place of z, and the
    results ``g_x`` [S, N, d1, channels], a sum for each share, ``g_harmonics`` [E, d2] and ``g_lengths`` [E], to which
    it adds.
    """
    b, dtype, nv = Builder(), source.dtype, layout.vectors
    y, radial, slopes, cutoff = _geometry(layout, source)
    parameters, x, g_z, g_x = (Array(name, dtype, lanes=True) for name in ("parameters", "x", "g_z", "g_x"))
    g_y, g_r = Array("g_harmonics", dtype, (None, layout.dims[1])), Array("g_lengths", dtype)
    scratch, size = scratch_of(layout, source, 2), layout.dims[0] * nv
    own, most = scratch.views(SHARE), 2 * source.edges
    gradient = convolution.reverse(layout, dtype, 2 * source.edges, most)
    mine = b.let("mine", SHARE * NODES * size)
    with rows.blocks(b, source) as block:
        tables = (INTERVALS, PAIRS, parameters, SENDERS, RECEIVERS, ELEMENTS)
        results = (own["sums"], own["hidden"], own["weights"], ROW_EDGES)
        program = source.program(slopes=True, listed=True)
        b.call(program, block.first, block.rows, EDGES, radial, slopes, cutoff, *tables, *results)
        b.call(convolution.couplings(layout, dtype), block.count, block.edges, y, own["couplings"])
        with rows.runs(b, block) as (node, begin, end), b.loop("at", end, begin=begin) as at:
            row = b.let("row", rows.EDGE_ROWS[block.begin + at])
            sender = b.let("sender", SENDERS[rows.EDGE_LIST[block.begin + at]] * size)
            edge = (_at(own["couplings"], at * len(layout.couplings)), _at(own["weights"], row))
            ends = (st.view(x[sender]), st.view(g_x[mine + sender]), st.view(g_z[node * (layout.dims[2] * nv)]))
            b.call(gradient, block.rows, *edge, *ends, own["edge"], _at(own["kept"], at * layout.lanes))
        add = lane_sums.lane_sums_program(layout.dims[1], dtype, layout.lanes, most, listed=True)
        b.call(add, block.count, own["kept"], own["part"], g_y, g_r, block.edges)
    arrays = (y, radial, slopes, cutoff, INTERVALS, PAIRS, parameters, x, *scratch.params, g_z, g_x, g_y, g_r)
    return b.function("layer_gradient", (EDGES, NODES, *GRAPH, *arrays), group=SHARE)


def _geometry(layout: PathLayout, source: WeightsProgram) -> tuple[Array, Array, Array, Array]:
    """Harmonics, radial functions and their slopes, and the cutoff function."""
    columns = {"harmonics": layout.dims[1], "radial": source.size, "slopes": source.size, "cutoff": 2}
    y, radial, slopes, cutoff = (Array(name, source.dtype, (None, n)) for name, n in columns.items())
    return y, radial, slopes, cutoff


def _at(view: st.View, offset: Value) -> st.View:
    return st.View(view.array, view.begin + offset)
