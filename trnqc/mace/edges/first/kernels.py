"""The compiled convolution of the first layer, and what its programs are passed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trnqc.host.arrays import empty
from trnqc.jit import NUMPY, Recipe, find_compiler, library
from trnqc.mace.edges.first import programs
from trnqc.mace.edges.graph import BLOCK
from trnqc.mace.edges.networks.block import WeightsProgram
from trnqc.mace.edges.networks.network import network_weights, parameters
from trnqc.mace.edges.paths import PathLayout, last_layer, layout_of
from trnqc.mace.edges.scratch import ShareScratch, weights_scratch
from trnqc.mace.edges.splines.tables import SplineTables
from trnqc.mace.edges.splines.weights import SplineWeights
from trnqc.mace.edges.splines.weights import pack as pack_table
from trnqc.mace.gemm import RegisterTile, pack
from trnqc.mace.model import Convolution, RadialBasis, RadialNetwork

# Largest number of elements in a structure. The cost for a node grows with it: with more elements than about 15, it
# would exceed that of a product for each of some 70 edges.
ELEMENTS = 10


def applies(convolution: Convolution, elements: int) -> bool:
    """Whether the programs cover a convolution for a number of elements.

    The network has a hidden layer, the last layer has no bias, features are scalars of one slot, and each harmonic
    occurs in one path.
    """
    network, problem = convolution.weights, convolution.problem
    last = network.layers[-1]
    linear = last.bias is None and last.norm is None and last.act is None
    scalars = len(problem.irreps_in1) == 1 and problem.irreps_in1[0].ir.l == 0
    once = sorted(p.i_in2 for p in problem.instructions) == list(range(len(problem.irreps_in2)))
    return len(network.layers) > 1 and linear and scalars and once and elements <= ELEMENTS


def hidden_network(network: RadialNetwork) -> RadialNetwork:
    """The network up to the last hidden layer."""
    return replace(network, layers=network.layers[:-1])


class FirstConvolution:
    """The programs of `first` for a convolution for which `applies` holds: `functions`, forward and reverse.

    Atoms of each element of the model send `sent`, [elements, channels]; `present` are the numbers of the elements that
    occur. Without splines of `hidden_network`, of which `which` is the table's number, the network is evaluated. The
    matrices of the products are, for each path, the weights of the last layer times `sent`, [elements, hidden outputs,
    channels], packed, and their transposes.
    """

    def __init__(
        self,
        convolution: Convolution,
        basis: RadialBasis,
        sent: np.ndarray,
        present: list[int],
        dtype: str,
        splines: SplineTables | None = None,
        which: int = 0,
    ) -> None:
        tile = RegisterTile.of(find_compiler(), dtype)
        network, self.dtype = convolution.weights, NUMPY[dtype]
        self.layout: PathLayout = layout_of(convolution.problem, tile.lanes)
        width = network.layers[-1].weight.shape[0]
        self.hidden = tile.vectors_of(width)
        self.source, weights = _source(hidden_network(network), basis, width, tile, dtype, splines, which)
        self.pairs = np.zeros(1, np.int64) if splines is None else splines.pairs
        self.parameters = _aligned(weights, self.dtype)
        self.kinds, self.kind = len(present), np.zeros(len(sent), np.int64)
        self.kind[present] = np.arange(len(present))
        forward, reverse = _matrices(convolution, self.layout, sent[present], self.hidden * tile.lanes, tile)
        self._matrices = _aligned(forward, self.dtype), _aligned(reverse, self.dtype)
        shape = (self.layout, self.source, self.hidden, tile)
        compiled = library(Recipe.of(programs.forward(*shape), programs.reverse(*shape), name="mace-first"), tile.lanes)
        self.functions = compiled.first_layer, compiled.first_layer_gradient

    @property
    def channels(self) -> int:
        """Number of channels in memory."""
        return self.layout.padded

    @property
    def sent_bytes(self) -> int:
        """Bytes of the vectors that an atom sends."""
        return self.layout.padded * np.dtype(self.dtype).itemsize

    def scratch_bytes(self, copies: int) -> dict[str, int]:
        """Bytes of a share's scratch arrays by name, for the forward (1 copy) or the reverse program (2)."""
        moments = programs.NODES * self.layout.dims[1] * self.kinds * self.hidden * self.layout.lanes
        sizes = self._scratch(copies).bytes(self.layout.lanes)
        return sizes | {"moments": moments * np.dtype(self.dtype).itemsize}

    def operands(self, copies: int) -> dict[str, int | np.ndarray]:
        """Numbers and arrays of the model that the programs are passed, by the names of their parameters."""
        return {
            "pairs": self.pairs,
            "parameters": self.parameters,
            "matrices": self._matrices[copies - 1],
            "kinds": self.kinds,
            "kind": self.kind,
        }

    def _scratch(self, copies: int) -> ShareScratch:
        return weights_scratch(self.source, self.hidden, self.layout.dims[1], self.layout.lanes, copies)


def _source(
    network: RadialNetwork,
    basis: RadialBasis,
    width: int,
    tile: RegisterTile,
    dtype: str,
    splines: SplineTables | None,
    which: int,
) -> tuple[WeightsProgram, np.ndarray]:
    """The way to compute the hidden layer, and its parameters as vectors."""
    if splines is not None:
        rows, elements = splines.knots.rows, splines.elements
        by_spline = SplineWeights(rows, tile.vectors_of(width), elements, dtype, BLOCK)
        return by_spline, pack_table(splines.tables[which], tile.lanes)
    by_network = network_weights(network, width, basis.cutoff_on_weights, tile, dtype, BLOCK)
    last = network.layers[-1]
    return by_network, parameters(by_network, network, last.weight, last.bias)


def _matrices(
    convolution: Convolution, layout: PathLayout, sent: np.ndarray, hidden: int, tile: RegisterTile
) -> tuple[np.ndarray, np.ndarray]:
    """The packed matrices of all paths, and their transposes."""
    weight, _ = last_layer(convolution.problem, convolution.weights, layout)
    by_path = weight.reshape(len(weight), len(layout.paths), layout.padded)
    x = np.zeros((len(sent), layout.padded))
    x[:, : layout.channels] = sent
    forward, reverse = [], []
    for n, p in enumerate(layout.paths):
        # All components have the same coupling with their harmonic.
        _, _, coupling, sign = p.couplings[0]
        factor = sign * layout.couplings[coupling][0][1]
        matrix = np.zeros((len(sent), hidden, layout.padded))
        matrix[:, : len(weight)] = factor * x[:, None, :] * by_path[:, n]
        rows = matrix.reshape(-1, layout.padded)
        forward.append(pack(rows, tile))
        reverse.append(pack(np.ascontiguousarray(rows.T), tile))
    return np.concatenate(forward), np.concatenate(reverse)


def _aligned(vectors: np.ndarray, dtype: str) -> np.ndarray:
    """A copy of a type that begins at a cache line."""
    result = empty(vectors.shape, dtype)
    result[...] = vectors
    return result
