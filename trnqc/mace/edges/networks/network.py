"""Weights of edges by a network: what its program depends on, and its parameters as vectors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trnqc.gen import statements as st
from trnqc.mace.edges.networks import program
from trnqc.mace.gemm import RegisterTile, pack
from trnqc.mace.model import RadialNetwork


@dataclass(frozen=True)
class NetworkWeights:
    """Weights by a network; what its program depends on.

    `widths` are the inputs and the outputs of each layer, the last one in whole vectors; `norms` the epsilon of each
    layer normalisation; `elements` the number of elements on which the first layer depends, 0 if it does not. The
    cutoff function multiplies the outputs if `cutoff`. A block has at most `edges` edges, a multiple of the rows of a
    tile.
    """

    widths: tuple[int, ...]
    bias: tuple[bool, ...]
    silu: tuple[bool, ...]
    norms: tuple[float | None, ...]
    elements: int
    cutoff: bool
    tile: RegisterTile
    dtype: str
    edges: int

    @cached_property
    def vectors(self) -> tuple[int, ...]:
        """Number of vectors of the outputs of each layer."""
        return tuple(self.tile.vectors_of(n) for n in self.widths[1:])

    @property
    def multiple(self) -> int:
        """The rows of a block are whole tiles."""
        return self.tile.rows

    @property
    def size(self) -> int:
        """Number of radial functions."""
        return self.widths[0]

    @property
    def hidden(self) -> int:
        """Largest number of vectors of a row of a hidden layer, or of the radial functions."""
        return max(self.tile.vectors_of(self.size), *self.vectors[: None if self.activated else -1], 0)

    @property
    def activated(self) -> bool:
        """Whether normalisation or an activation function follows the last layer."""
        return self.silu[-1] or self.norms[-1] is not None

    @cached_property
    def offsets(self) -> tuple[dict[str, int], ...]:
        """Where the weights, the bias and the tables of the elements of each layer begin in the parameters."""
        place, layers = 0, []
        for n, vectors in enumerate(self.vectors):
            layer = {"weight": place}
            place += self.widths[n] * vectors
            elements = self.elements if n == 0 else 0
            sizes = {"bias": self.bias[n], "sender": elements, "receiver": elements}
            sizes |= {"gain": self.norms[n] is not None, "offset": self.norms[n] is not None}
            for name, size in sizes.items():
                if size:
                    layer[name] = place
                    place += size * vectors
            layers.append(layer)
        return tuple(layers)

    def program(self, slopes: bool, listed: bool = False) -> st.Function:
        """The program of a block, with the parameters of `block.params`."""
        return program.NetworkProgram(self, slopes, listed).function()


def network_weights(
    network: RadialNetwork, columns: int, cutoff: bool, tile: RegisterTile, dtype: str, edges: int
) -> NetworkWeights:
    """The shape of a network whose last layer has `columns` outputs."""
    layers = network.layers
    widths = (layers[0].weight.shape[0], *(layer.weight.shape[1] for layer in layers[:-1]), columns)
    return NetworkWeights(
        widths,
        tuple(layer.bias is not None for layer in layers),
        tuple(layer.act is not None for layer in layers),
        tuple(None if layer.norm is None else layer.norm[2] for layer in layers),
        0 if network.sender is None else len(network.sender),
        cutoff,
        tile,
        dtype,
        edges,
    )


def parameters(shape: NetworkWeights, network: RadialNetwork, last: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """Return the parameters of a network as vectors, in the order of `NetworkWeights.offsets`.

    Weights and bias of the last layer are `last` and `bias`, with the columns of the outputs.
    """
    tile, parts = shape.tile, []
    for n, layer in enumerate(network.layers):
        final = n + 1 == len(network.layers)
        parts.append(pack(last if final else layer.weight, tile))
        if layer.bias is not None:
            parts.append(_rows((bias if final and bias is not None else layer.bias)[None], tile))
        if n == 0 and network.sender is not None and network.receiver is not None:
            parts += [_rows(network.sender, tile), _rows(network.receiver, tile)]
        if layer.norm is not None:
            parts += [_rows(each[None], tile) for each in layer.norm[:2]]
    return np.concatenate(parts).astype({"f32": np.float32, "f64": np.float64}[shape.dtype])


def _rows(table: np.ndarray, tile: RegisterTile) -> np.ndarray:
    """Rows of a table as vectors, padded with zeros."""
    vectors = tile.vectors_of(table.shape[1])
    padded = np.zeros((len(table), vectors * tile.lanes))
    padded[:, : table.shape[1]] = table
    return padded.reshape(-1, tile.lanes)
