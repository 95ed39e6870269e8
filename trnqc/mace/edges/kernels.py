"""The compiled convolution of a layer, and what its programs are passed."""

from __future__ import annotations

import numpy as np

from trnqc.host.arrays import empty
from trnqc.jit import NUMPY, Recipe, find_compiler, library
from trnqc.mace.edges import layer
from trnqc.mace.edges.graph import BLOCK
from trnqc.mace.edges.networks.block import WeightsProgram
from trnqc.mace.edges.networks.network import network_weights, parameters
from trnqc.mace.edges.paths import PathLayout, last_layer, layout_of
from trnqc.mace.edges.scratch import scratch_of
from trnqc.mace.edges.splines.tables import SplineTables, with_last_layer
from trnqc.mace.edges.splines.weights import SplineWeights, pack
from trnqc.mace.gemm import RegisterTile
from trnqc.mace.model import Convolution, RadialBasis, RadialNetwork


class LayerConvolution:
    """The programs of `layer` for a convolution: `functions`, forward and reverse.

    Features are arrays [N, components, `channels`]: the components of all slots, and channels padded with zeros to
    whole vectors. Without splines of `spline_network`, of which `which` is the table's number, the network is
    evaluated. With `paired`, weights are computed once for both edges of a pair of atoms. Raises UnsupportedError for
    paths or networks that the programs do not cover.
    """

    def __init__(
        self,
        convolution: Convolution,
        basis: RadialBasis,
        dtype: str,
        splines: SplineTables | None = None,
        which: int = 0,
    ) -> None:
        compiler = find_compiler()
        tile = RegisterTile.of(compiler, dtype)
        self.dtype = NUMPY[dtype]
        self.layout: PathLayout = layout_of(convolution.problem, tile.lanes)
        self.source, weights = _source(convolution, basis, self.layout, tile, dtype, splines, which)
        self.pairs = np.zeros(1, np.int64) if splines is None else splines.pairs
        # A network that sees the elements of sender and receiver distinguishes the edges of a pair of atoms. Splines
        # cost less than adding the edges of pairs to the sums of two receivers.
        self.paired = convolution.weights.sender is None and splines is None
        self.parameters = empty(weights.shape, self.dtype)
        self.parameters[:] = weights
        most = 16 if compiler.vector_bytes == 64 else 8
        programs = layer.forward(self.layout, self.source, most), layer.reverse(self.layout, self.source)
        compiled = library(Recipe.of(*programs, name="mace-layer"), tile.lanes)
        self.functions = compiled.layer, compiled.layer_gradient

    @property
    def channels(self) -> int:
        """Number of channels in memory."""
        return self.layout.padded

    @property
    def sent_bytes(self) -> int:
        """Bytes of the vectors that an atom sends."""
        return self.layout.dims[0] * self.layout.vectors * self.layout.lanes * self.dtype_bytes

    @property
    def dtype_bytes(self) -> int:
        """Size of an element."""
        return np.dtype(self.dtype).itemsize

    def scratch_bytes(self, copies: int) -> dict[str, int]:
        """Bytes of a share's scratch arrays by name, for the forward (1 copy) or the reverse program (2)."""
        return scratch_of(self.layout, self.source, copies).bytes(self.layout.lanes)

    def operands(self, copies: int) -> dict[str, int | np.ndarray]:
        """Numbers and arrays of the model that the programs are passed, by the names of their parameters."""
        return {"pairs": self.pairs, "parameters": self.parameters}


def _source(
    convolution: Convolution,
    basis: RadialBasis,
    layout: PathLayout,
    tile: RegisterTile,
    dtype: str,
    splines: SplineTables | None,
    which: int,
) -> tuple[WeightsProgram, np.ndarray]:
    """The way to compute the weights of a convolution, and its parameters as vectors."""
    if splines is not None:
        vectors = len(layout.paths) * layout.vectors
        by_spline = SplineWeights(splines.knots.rows, vectors, splines.elements, dtype, BLOCK)
        return by_spline, pack(splines.tables[which], tile.lanes)
    network = convolution.weights
    by_network = network_weights(network, layout.columns, basis.cutoff_on_weights, tile, dtype, BLOCK)
    return by_network, parameters(by_network, network, *last_layer(convolution.problem, network, layout))


def spline_network(convolution: Convolution, dtype: str) -> RadialNetwork:
    """Return the network whose outputs are the weights of a convolution in the layout of its programs.

    Its splines are the argument `splines` of `LayerConvolution`.
    """
    layout = layout_of(convolution.problem, RegisterTile.of(find_compiler(), dtype).lanes)
    return with_last_layer(convolution.weights, *last_layer(convolution.problem, convolution.weights, layout))
