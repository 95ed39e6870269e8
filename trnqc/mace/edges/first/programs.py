"""Programs of the convolution of the first layer, where what an atom sends depends on its element only.

With weights w_c(r) = sum_h H_h(r) W_hc, where H are the outputs of the last hidden layer, the sum over the edges of a
node from senders of element a needs the channels only once for each node:

forward    D_jh = sum over edges of Y_j H_h        z_jc += x_c(a) sum_h D_jh W_hc
reverse    G_jh = sum_c gz_jc x_c(a) W_hc          dE/dr = sum_jh H'_h Y_j G_jh,  gY_j = sum_h H_h G_jh

So the last layer of the network is a product for a node and an element, and not for an edge. D and G are the moments of
a node, [harmonic, element, hidden]. The lanes are hidden outputs, and channels in the products.
"""

from __future__ import annotations

from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen.build import Builder
from trnqc.gen.values import fma, minimum
from trnqc.mace.edges import lane_sums
from trnqc.mace.edges.geometry.programs import EDGES, ELEMENTS, INTERVALS, RECEIVERS, SENDERS
from trnqc.mace.edges.loops import GRAPH, SHARE, SHARES, STARTS, blocks, clear, nodes
from trnqc.mace.edges.networks.block import PAIRS, WeightsProgram
from trnqc.mace.edges.paths import PathLayout
from trnqc.mace.edges.scratch import weights_scratch
from trnqc.mace.gemm import RegisterTile, product

__all__ = ["NODES", "STARTS", "forward", "reverse"]

# Number of nodes whose moments are in memory at a time, a multiple of the rows of all tiles.
NODES = 12
# Number of elements that have moments, and the number of each element of the model among them.
KINDS, KIND = Var("kinds", "i64"), Array("kind", "i64")


def forward(layout: PathLayout, source: WeightsProgram, hidden: int, tile: RegisterTile) -> st.Function:
    """Return the program of z[receiver] = sum over edges, whose shares write rows of their own.

    Features have one component; `source` is the last hidden layer, with `hidden` vectors of outputs. Its parameters are
    those of `trnqc.mace.edges.layer.forward`, with ``kinds``, ``kind`` [elements], ``matrices`` (see
    `kernels.FirstConvolution`) and the scratch ``moments`` in place of ``x``.
    """
    return _Program(layout, source, hidden, tile, slopes=False).forward()


def reverse(layout: PathLayout, source: WeightsProgram, hidden: int, tile: RegisterTile) -> st.Function:
    """Return the program of the gradients of the harmonics and lengths.

    Its parameters are those of `forward` with ``slopes``, the gradient ``g_z`` in place of z, and the results
    ``g_harmonics`` [E, d2] and ``g_lengths`` [E], to which it adds.
    """
    return _Program(layout, source, hidden, tile, slopes=True).reverse()


class _Program:
    """A program under construction."""

    def __init__(
        self, layout: PathLayout, source: WeightsProgram, hidden: int, tile: RegisterTile, slopes: bool
    ) -> None:
        self.layout, self.source, self.hidden, self.tile = layout, source, hidden, tile
        self.b, self.copies = Builder(), 1 + slopes
        self.harmonics, dtype = layout.dims[1], source.dtype
        self.y = Array("harmonics", dtype, (None, self.harmonics))
        self.radial = [Array(name, dtype, (None, source.size)) for name in ("radial", "slopes")[: self.copies]]
        self.cutoff = Array("cutoff", dtype, (None, 2))
        names = ("parameters", "matrices", "moments", "z", "g_z")
        self.parameters, self.matrices, self.moments, self.z, self.g_z = (Array(n, dtype, lanes=True) for n in names)
        self.scratch = weights_scratch(source, hidden, self.harmonics, layout.lanes, self.copies)
        self.own = self.scratch.views(SHARE)
        # Vectors of the moments of a node for one harmonic.
        self.width = KINDS * hidden
        self.mine = self.b.let("mine", SHARE * self.width * (NODES * self.harmonics))

    def params(self, *results: Array) -> tuple[Value | Array, ...]:
        tables = (self.y, *self.radial, self.cutoff, INTERVALS, PAIRS, self.parameters, self.matrices)
        return EDGES, KINDS, *GRAPH, KIND, *tables, *self.scratch.params, self.moments, *results

    def forward(self) -> st.Function:
        b = self.b
        with b.loop("begin", SHARES[SHARE + 1], begin=SHARES[SHARE], step=NODES) as begin:
            number = b.let("number", minimum(SHARES[SHARE + 1] - begin, NODES))
            clear(b, self.moments, self.mine, self.mine + number * (self.width * self.harmonics))
            with blocks(b, self.source, begin, begin + number) as (first, count, rows):
                self._weights(first, rows)
                with nodes(b, first, count) as (node, start, end), b.loop("row", end, begin=start) as row:
                    self._add(first, row, self._place(first + row, node - begin))
            self._products(begin, number)
        return b.function("first_layer", self.params(self.z), group=SHARE)

    def reverse(self) -> st.Function:
        b, size, dtype = self.b, self.harmonics, self.source.dtype
        g_y, g_r = Array("g_harmonics", dtype, (None, size)), Array("g_lengths", dtype)
        with b.loop("begin", SHARES[SHARE + 1], begin=SHARES[SHARE], step=NODES) as begin:
            number = b.let("number", minimum(SHARES[SHARE + 1] - begin, NODES))
            self._gradients_of_products(begin, number)
            with blocks(b, self.source, begin, begin + number) as (first, count, rows):
                self._weights(first, rows)
                with nodes(b, first, count) as (node, start, end), b.loop("row", end, begin=start) as row:
                    self._gradient(first, rows, row, self._place(first + row, node - begin))
                add = lane_sums.lane_sums_program(size, dtype, self.layout.lanes, self.source.edges)
                b.call(add, count, self.own["kept"], self.own["part"], st.view(g_y[first, 0]), st.view(g_r[first]))
        return b.function("first_layer_gradient", self.params(self.g_z, g_y, g_r), group=SHARE)

    def _weights(self, first: Value, rows: Value) -> None:
        """Compute the hidden layer of a block of edges."""
        tables = (*self.radial, self.cutoff, INTERVALS, PAIRS, self.parameters, SENDERS, RECEIVERS, ELEMENTS)
        results = (self.own["sums"], self.own["hidden"], self.own["weights"])
        self.b.call(self.source.program(slopes=self.copies == 2), first, rows, EDGES, *tables, *results)

    def _place(self, edge: Value, node: Value) -> Value:
        """The first vector of the moments of a node, for the element of the sender of an edge."""
        kind = self.b.let("kind", KIND[ELEMENTS[SENDERS[edge]]])
        return self.b.let("place", self.mine + node * (self.width * self.harmonics) + kind * self.hidden)

    def _outputs(self, row: Value, offset: Value | int = 0) -> list[Value]:
        """The hidden layer of an edge, or its derivative, whose rows begin at the offset."""
        weights, begin = self.own["weights"].array, self.own["weights"].begin
        step = self.copies * self.source.edges
        return [self.b.let("h", weights[begin + row + (offset + v * step)]) for v in range(self.hidden)]

    def _add(self, first: Value, row: Value, place: Value) -> None:
        """Add an edge to the moments."""
        outputs = self._outputs(row)
        with self.b.loop("j", self.harmonics) as j:
            y = self.b.let("y", self.y[first + row, j])
            for v, h in enumerate(outputs):
                self.b.accumulate(self.moments[place + j * self.width + v], y * h)

    def _gradient(self, first: Value, rows: Value, row: Value, place: Value) -> None:
        """Keep the vectors whose lanes are to be added: gradients of all harmonics but the first, and of the length."""
        b, dtype, lanes = self.b, self.source.dtype, self.layout.lanes
        h, slopes = self._outputs(row), self._outputs(row, rows)
        along = [b.declare("along", const(0, dtype)) for _ in h]
        kept, step = self.own["kept"], self.source.edges * lanes
        vector = b.array("vector", dtype, (1,), lanes=True)
        with b.loop("j", self.harmonics) as j:
            y, total = b.let("y", self.y[first + row, j]), b.declare("total", const(0, dtype))
            for v, output in enumerate(h):
                g = b.let("g", self.moments[place + j * self.width + v])
                b.assign(along[v], fma(y, g, along[v]))
                b.assign(total, fma(output, g, total))
            b.store(vector[0], total)
            # The gradient of the first harmonic is not needed; that of the second is written in its place.
            self._keep(kept, b.let("n", (j + (self.harmonics - 1)) % self.harmonics) * step + row * lanes, vector)
        slope = b.declare("slope", const(0, dtype))
        for each, derivative in zip(along, slopes):
            b.assign(slope, fma(each, derivative, slope))
        b.store(vector[0], slope)
        self._keep(kept, row * lanes + (self.harmonics - 1) * step, vector)

    def _keep(self, kept: st.View, place: Value, vector: Array) -> None:
        self.b.add(st.Pack(kept.array, kept.begin + place, vector, const(0, "i64"), 1, 1, self.layout.lanes))

    def _products(self, begin: Value, number: Value) -> None:
        """z = moments times matrices, for each component of each path and all nodes."""
        nv, lanes, multiply = self.layout.vectors, self.layout.lanes, product(self.tile, self.source.dtype)
        row, depth = self.width * (self.harmonics * lanes), self.width * lanes
        for n, p in enumerate(self.layout.paths):
            matrix = st.view(self.matrices[depth * (n * nv)])
            with self.b.loop("k", p.dims[2]) as k:
                left = st.flat_view(self.moments[self.mine + (k + p.y) * self.width])
                out = st.view(self.z[begin * (self.layout.dims[2] * nv) + (k + p.z) * nv])
                strides = (const(self.layout.dims[2] * nv, "i64"), const(1, "i64"))
                self.b.call(multiply, number, depth, const(nv, "i64"), left, row, matrix, out, *strides)

    def _gradients_of_products(self, begin: Value, number: Value) -> None:
        """moments = g_z times the transposed matrices."""
        nv, lanes, multiply = self.layout.vectors, self.layout.lanes, product(self.tile, self.source.dtype)
        depth, row = const(nv * lanes, "i64"), const(self.layout.dims[2] * nv * lanes, "i64")
        for n, p in enumerate(self.layout.paths):
            matrix = st.view(self.matrices[self.width * (n * nv * lanes)])
            with self.b.loop("k", p.dims[2]) as k:
                left = st.flat_view(self.g_z[begin * (self.layout.dims[2] * nv) + (k + p.z) * nv])
                out = st.view(self.moments[self.mine + (k + p.y) * self.width])
                strides = (self.width * self.harmonics, const(1, "i64"))
                self.b.call(multiply, number, depth, self.width, left, row, matrix, out, *strides)
