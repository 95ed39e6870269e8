"""Weights of a network and their derivatives at given lengths, in float64 by NumPy, from which splines are fitted."""

from __future__ import annotations

import numpy as np
import scipy.special

from trnqc.mace.model import Layer, RadialBasis, RadialNetwork

# Values and derivatives by the length of the edge, two arrays of one shape.
Sampled = tuple[np.ndarray, np.ndarray]


def sampled_density(
    network: RadialNetwork, basis: RadialBasis, radial: Sampled, cutoff: Sampled, pair: tuple[int, int]
) -> Sampled:
    """Return tanh(d^2) of the output d of a network. See `sampled` for the arguments."""
    d, slope = _outputs(network, radial, pair)
    t = np.tanh(d * d)
    return _cut(basis, t, (1 - t * t) * 2 * d * slope, cutoff)


def sampled(
    network: RadialNetwork, basis: RadialBasis, radial: Sampled, cutoff: Sampled, pair: tuple[int, int]
) -> Sampled:
    """Return the outputs of a network, times the cutoff function where the basis asks for that.

    Radial functions are [samples, size]; `pair` are the elements of receiver and sender.
    """
    return _cut(basis, *_outputs(network, radial, pair), cutoff)


def _outputs(network: RadialNetwork, radial: Sampled, pair: tuple[int, int]) -> Sampled:
    z, dz = radial
    for n, layer in enumerate(network.layers):
        z, dz = z @ layer.weight, dz @ layer.weight
        z = z if layer.bias is None else z + layer.bias
        if n == 0 and network.sender is not None and network.receiver is not None:
            z = z + network.receiver[pair[0]] + network.sender[pair[1]]
        z, dz = _activated(layer, z, dz)
    return z, dz


def _cut(basis: RadialBasis, z: np.ndarray, dz: np.ndarray, cutoff: Sampled) -> Sampled:
    """The values times the cutoff function if that multiplies weights."""
    if not basis.cutoff_on_weights:
        return z, dz
    f, df = (each[:, None] for each in cutoff)
    return z * f, dz * f + z * df


def _activated(layer: Layer, z: np.ndarray, dz: np.ndarray) -> Sampled:
    if layer.norm is not None:
        gain, offset, epsilon = layer.norm
        z, dz = (each - each.mean(axis=1, keepdims=True) for each in (z, dz))
        scale = 1 / np.sqrt((z * z).mean(axis=1, keepdims=True) + epsilon)
        dz = scale * (dz - z * scale**2 * (z * dz).mean(axis=1, keepdims=True)) * gain
        z = z * scale * gain + offset
    if layer.act is not None:
        s = scipy.special.expit(z)
        z, dz = z * s, dz * s * (1 + z * (1 - s))
    return z, dz
