"""Programs of a layer's convolution over a share of the nodes, edges sorted by receiver, in blocks of edges.

forward: block -> weights (network or spline) -> for each node of the block: its sum (convolution)
reverse: block -> weights and slopes -> for each edge: gradients of x[sender], harmonics and length

Weights are kept for the edges of one block only. A block may begin and end within the edges of a node.
"""

from __future__ import annotations

from trnqc.gen import Array, Value
from trnqc.gen import statements as st
from trnqc.gen.build import Builder
from trnqc.mace.edges import convolution, lane_sums
from trnqc.mace.edges.geometry.programs import EDGES, ELEMENTS, INTERVALS, RECEIVERS, SENDERS
from trnqc.mace.edges.loops import GRAPH, NODES, SHARE, SHARES, blocks, clear, nodes
from trnqc.mace.edges.networks.block import PAIRS, Weights
from trnqc.mace.edges.paths import Layout
from trnqc.mace.edges.scratch import scratch_of


def forward(layout: Layout, source: Weights, most: int) -> st.Function:
    """Return the program of z[receiver] = sum over edges, whose shares write rows of their own.

    Returns
    -------
    Function
        Its parameters are ``edges``, ``shares`` [S + 1], ``starts`` [N + 1], ``senders, receivers`` [E], ``elements``
        [N], ``harmonics, radial, cutoff, intervals`` of the geometry, ``pairs`` and ``parameters`` of the weights, the
        features ``x`` [N, d1, channels], ``scratch_vectors, scratch_numbers`` and the result ``z`` [N, d3, channels].
    """
    b, dtype, size = Builder(), source.dtype, layout.dims[2] * layout.vectors
    y, radial, _, cutoff = _geometry(layout, source)
    parameters, x, z = (Array(name, dtype, lanes=True) for name in ("parameters", "x", "z"))
    scratch = scratch_of(layout, source, 1)
    own = scratch.views(SHARE)
    convolve = convolution.forward(layout, dtype, source.edges, most)
    clear(b, z, SHARES[SHARE] * size, SHARES[SHARE + 1] * size)
    with blocks(b, source, SHARES[SHARE], SHARES[SHARE + 1]) as (first, count, rows):
        tables = (INTERVALS, PAIRS, parameters, SENDERS, RECEIVERS, ELEMENTS)
        results = (own["sums"], own["hidden"], own["weights"])
        b.call(source.program(slopes=False), first, rows, EDGES, radial, cutoff, *tables, *results)
        b.call(convolution.couplings(layout, dtype), count, st.view(y[first, 0]), own["couplings"])
        with nodes(b, first, count) as (node, begin, end):
            edges = (st.view(SENDERS[first]), own["couplings"], own["weights"])
            b.call(convolve, begin, end, *edges, x, st.view(z[node * size]))
    arrays = (y, radial, cutoff, INTERVALS, PAIRS, parameters, x, *scratch.params, z)
    return b.function("layer", (EDGES, *GRAPH, *arrays), group=SHARE)


def reverse(layout: Layout, source: Weights) -> st.Function:
    """Return the program of the gradients of x, of the harmonics and of the lengths.

    Returns
    -------
    Function
        Its parameters are those of `forward` with ``nodes`` and ``slopes``, the gradient ``g_z`` in place of z, and
        the results ``g_x`` [S, N, d1, channels], a sum for each share, ``g_harmonics`` [E, d2] and ``g_lengths``
        [E], to which it adds.
    """
    b, dtype, nv = Builder(), source.dtype, layout.vectors
    y, radial, slopes, cutoff = _geometry(layout, source)
    parameters, x, g_z, g_x = (Array(name, dtype, lanes=True) for name in ("parameters", "x", "g_z", "g_x"))
    g_y, g_r = Array("g_harmonics", dtype, (None, layout.dims[1])), Array("g_lengths", dtype)
    scratch, size = scratch_of(layout, source, 2), layout.dims[0] * nv
    own = scratch.views(SHARE)
    gradient = convolution.reverse(layout, dtype, 2 * source.edges, source.edges)
    mine = b.let("mine", SHARE * NODES * size)
    with blocks(b, source, SHARES[SHARE], SHARES[SHARE + 1]) as (first, count, rows):
        tables = (INTERVALS, PAIRS, parameters, SENDERS, RECEIVERS, ELEMENTS)
        results = (own["sums"], own["hidden"], own["weights"])
        b.call(source.program(slopes=True), first, rows, EDGES, radial, slopes, cutoff, *tables, *results)
        b.call(convolution.couplings(layout, dtype), count, st.view(y[first, 0]), own["couplings"])
        with nodes(b, first, count) as (node, begin, end), b.loop("row", end, begin=begin) as row:
            sender = b.let("sender", SENDERS[first + row] * size)
            edge = (_at(own["couplings"], row * len(layout.couplings)), _at(own["weights"], row))
            ends = (st.view(x[sender]), st.view(g_x[mine + sender]), st.view(g_z[node * (layout.dims[2] * nv)]))
            b.call(gradient, rows, *edge, *ends, own["edge"], _at(own["kept"], row * layout.lanes))
        add = lane_sums.program(layout.dims[1], dtype, layout.lanes, source.edges)
        b.call(add, count, own["kept"], own["part"], st.view(g_y[first, 0]), st.view(g_r[first]))
    arrays = (y, radial, slopes, cutoff, INTERVALS, PAIRS, parameters, x, *scratch.params, g_z, g_x, g_y, g_r)
    return b.function("layer_gradient", (EDGES, NODES, *GRAPH, *arrays), group=SHARE)


def _geometry(layout: Layout, source: Weights) -> tuple[Array, Array, Array, Array]:
    """Harmonics, radial functions and their slopes, and the cutoff function."""
    columns = {"harmonics": layout.dims[1], "radial": source.size, "slopes": source.size, "cutoff": 2}
    y, radial, slopes, cutoff = (Array(name, source.dtype, (None, n)) for name, n in columns.items())
    return y, radial, slopes, cutoff


def _at(view: st.View, offset: Value) -> st.View:
    return st.View(view.array, view.begin + offset)
