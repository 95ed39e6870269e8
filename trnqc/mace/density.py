"""The learned densities of the atoms, rho = sum over edges of tanh(d(r)^2), and their gradient by NumPy.

The network of d(r) has one output, so that it is much smaller than that of the weights.
"""

from __future__ import annotations

import numpy as np

from trnqc.mace.edges.graph import Edges
from trnqc.mace.edges.kernels import EdgeValues
from trnqc.mace.model import Layer, Network


class EdgeDensity:
    """The part of each edge in the densities.

    Parameters
    ----------
    network : Network
        The network of d(r).
    cutoff : bool
        Whether the cutoff function multiplies tanh(d^2).
    dtype : {"float32", "float64"}
    """

    def __init__(self, network: Network, cutoff: bool, dtype: str) -> None:
        self.network, self.cutoff, self.dtype = network, cutoff, dtype

    def forward(self, edges: Edges, values: EdgeValues) -> tuple[np.ndarray, np.ndarray]:
        """Return rho of each receiver [R], and the derivative of each edge's part by its length [E]."""
        count = edges.count
        radial, slopes = values.radial[:count], values.slopes[:count]
        d, slope = _network(
            self.network, radial, slopes, edges.elements[edges.senders], edges.elements[edges.receivers]
        )
        part = np.tanh(d * d)
        slope = (1 - part * part) * 2 * d * slope
        if self.cutoff:
            f, d_f = values.cutoff[:count, 0], values.cutoff[:count, 1]
            part, slope = part * f, slope * f + part * d_f
        rho = np.bincount(edges.receivers, part, edges.receiving)
        return rho.astype(self.dtype), slope

    @staticmethod
    def reverse(edges: Edges, slope: np.ndarray, g_rho: np.ndarray, g_lengths: np.ndarray) -> None:
        """Add to the gradient of the lengths what follows from that of the densities."""
        g_lengths[: edges.count] += g_rho[edges.receivers] * slope


def _network(
    network: Network, x: np.ndarray, dx: np.ndarray, senders: np.ndarray, receivers: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The output of a network with one output, and its derivative by the length, both [edges]."""
    for n, layer in enumerate(network.layers):
        weight = layer.weight.astype(x.dtype)
        x, dx = x @ weight, dx @ weight
        if layer.bias is not None:
            x = x + layer.bias.astype(x.dtype)
        if n == 0 and network.sender is not None and network.receiver is not None:
            x = x + (network.sender[senders] + network.receiver[receivers]).astype(x.dtype)
        x, dx = _activated(layer, x, dx)
    return x[:, 0], dx[:, 0]


def _activated(layer: Layer, x: np.ndarray, dx: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The normalisation and the activation function of a layer, with the derivative dx."""
    if layer.norm is not None:
        gain, offset, epsilon = layer.norm
        centred = x - x.mean(axis=1, keepdims=True)
        inverse = 1 / np.sqrt(np.mean(centred * centred, axis=1, keepdims=True) + epsilon)
        unit, d_centred = centred * inverse, dx - dx.mean(axis=1, keepdims=True)
        dx = gain * inverse * (d_centred - unit * np.mean(unit * d_centred, axis=1, keepdims=True))
        x = gain * unit + offset
    if layer.silu:
        s = 1 / (1 + np.exp(-x))
        x, dx = x * s, dx * s * (1 + x * (1 - s))
    return x, dx
