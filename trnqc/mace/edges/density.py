"""The part of each edge in the learned density of its receiver, tanh(d(r)^2), and its derivative by the length.

block of edges -> d and its slope by the network -> tanh(d^2), times the cutoff function where the model has that
               -> part and slope by splines of the same function

The density of a node is the sum of the parts of its edges.
"""

from __future__ import annotations

import numpy as np

from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen.build import Builder
from trnqc.gen.values import fma, minimum
from trnqc.jit import NUMPY, Recipe, find_compiler, library
from trnqc.mace.edges.geometry.basis import tanh
from trnqc.mace.edges.geometry.programs import EDGES, ELEMENTS, INTERVALS, RECEIVERS, SENDERS
from trnqc.mace.edges.graph import BLOCK
from trnqc.mace.edges.networks.block import PAIRS, WeightsProgram
from trnqc.mace.edges.networks.network import network_weights, parameters
from trnqc.mace.edges.splines.tables import SplineTables
from trnqc.mace.edges.splines.weights import SplineWeights, pack
from trnqc.mace.gemm import RegisterTile
from trnqc.mace.model import NodeDensity, RadialBasis

# Index of this share of the edges; number of shares.
SHARE, SHARES = Var("share", "i64"), Var("shares", "i64")


def density_program(source: WeightsProgram, lanes: int, exact: bool, cutoff: bool) -> st.Function:
    """Return the program of the parts of the edges, by the network of d(r) (`exact`) or splines of the parts.

    With `cutoff`, the cutoff function multiplies tanh(d^2). Its parameters are ``edges, shares``, ``senders, receivers,
    elements``, ``radial, slopes, cutoff, intervals`` of the geometry, ``pairs`` and ``parameters``, the scratch
    ``sums``, ``hidden`` and ``weights`` of each share, and the results ``part`` and ``slope`` [E], which are zero
    before.
    """
    b, dtype, step = Builder(), source.dtype, 2 * source.edges
    radial, slopes = (Array(name, dtype, (None, source.size)) for name in ("radial", "slopes"))
    envelope = Array("cutoff", dtype, (None, 2))
    table, sums, weights = (Array(name, dtype, lanes=True) for name in ("parameters", "sums", "weights"))
    hidden, part, slope = (Array(name, dtype) for name in ("hidden", "part", "slope"))
    size = source.hidden * step
    scratch = (_own(sums, size), _own(hidden, size * lanes), _own(weights, step))
    last = b.let("last", EDGES * (SHARE + 1) // SHARES)
    with b.loop("first", last, begin=EDGES * SHARE // SHARES, step=source.edges) as first:
        count = b.let("count", minimum(last - first, source.edges))
        rows = b.let("rows", (count + (source.multiple - 1)) // source.multiple * source.multiple)
        graph = (SENDERS, RECEIVERS, ELEMENTS)
        inputs = (radial, slopes, envelope, INTERVALS, PAIRS, table, *graph)
        b.call(source.program(slopes=True), first, rows, EDGES, *inputs, *scratch)
        with b.loop("row", count) as row:
            d, d_slope = (b.let("d", weights[SHARE * step + row + n * rows]) for n in range(2))
            value, derivative = _part(b, d, d_slope) if exact else (d, d_slope)
            if cutoff and exact:
                f, df = envelope[first + row, 0], envelope[first + row, 1]
                value, derivative = value * f, fma(value, df, derivative * f)
            # The output of the network is in one lane; the others are zero.
            b.accumulate(part[first + row], value)
            b.accumulate(slope[first + row], derivative)
    arrays = (SENDERS, RECEIVERS, ELEMENTS, radial, slopes, envelope, INTERVALS, PAIRS, table, sums, hidden, weights)
    return b.function("edge_density", (EDGES, SHARES, *arrays, part, slope), group=SHARE)


def _part(b: Builder, d: Value, slope: Value) -> tuple[Value, Value]:
    """tanh(d^2) and its derivative."""
    t = b.let("t", tanh(d * d))
    return t, (1.0 - t * t) * (2.0 * d * slope)


def _own(array: Array, size: int) -> st.View:
    """The part of an array that belongs to the share."""
    return st.View(array, SHARE * const(size, "i64"))


class EdgeDensity:
    """The compiled program, `function`, of a density.

    Without splines, of which `which` is the number of the density's table, the network is evaluated.
    """

    def __init__(
        self, density: NodeDensity, basis: RadialBasis, dtype: str, splines: SplineTables | None = None, which: int = 0
    ) -> None:
        tile = RegisterTile.of(find_compiler(), dtype)
        self.dtype, self.lanes = NUMPY[dtype], tile.lanes
        self.pairs = np.zeros(1, np.int64) if splines is None else splines.pairs
        if splines is None:
            network, final = density.network, density.network.layers[-1]
            # The cutoff function multiplies tanh(d^2), not d.
            by_network = network_weights(network, tile.lanes, False, tile, dtype, BLOCK)
            self.source: WeightsProgram = by_network
            self.parameters = parameters(by_network, network, final.weight, final.bias)
        else:
            self.source = SplineWeights(splines.knots.rows, 1, splines.elements, dtype, BLOCK)
            self.parameters = pack(splines.tables[which], tile.lanes).astype(self.dtype)
        function = density_program(self.source, tile.lanes, splines is None, basis.cutoff_on_weights)
        self.function = library(Recipe.of(function, name="mace-density"), tile.lanes).edge_density

    @property
    def scratch_bytes(self) -> dict[str, int]:
        """Sizes of the scratch arrays of a share by name."""
        vector, step = self.lanes * np.dtype(self.dtype).itemsize, 2 * BLOCK
        hidden = step * self.source.hidden * vector
        return {"sums": hidden, "hidden": hidden, "weights": step * vector}
