"""Readouts of a MACE model for one head."""

from __future__ import annotations

from typing import Any

import numpy as np

from trnqc.errors import UnsupportedError
from trnqc.mace.model import ACTIVATIONS, Layer, Readout
from trnqc.mace.reader.linears import activation, affine, array, expect

NONLINEAR = ("NonLinearReadoutBlock", "NonLinearBiasReadoutBlock", "GeneralNonLinearBiasReadoutBlock")


def readout(name: str, block: Any, source: int, head: int, heads: int, scale: float) -> Readout:
    """A readout of the features of layer `source`, restricted to one of the heads and multiplied by `scale`."""
    kind = expect(name, block, "LinearReadoutBlock", *NONLINEAR)
    if kind == "LinearReadoutBlock":
        return Readout(source, (Layer(_scalar_rows(f"{name}.linear", block.linear)[:, head, None] * scale),))
    act, constant = _gate(name, block)
    masked = heads > 1 and kind != NONLINEAR[-1]
    layers, units = [Layer(_scalar_rows(f"{name}.linear_1", block.linear_1), act=act)], slice(None)
    if masked:
        width = layers[0].weight.shape[1] // heads
        units = slice(head * width, (head + 1) * width)
    layers = [Layer(layers[0].weight[:, units], act=act)]
    if kind != "NonLinearReadoutBlock":
        matrix, bias = affine(f"{name}.linear_mid", block.linear_mid)
        layers.append(Layer(constant * matrix[units, units], None if bias is None else bias[units], act=act))
    matrix, bias = affine(f"{name}.linear_2", block.linear_2)
    last = scale * constant * matrix[units, head, None]
    layers.append(Layer(last, None if bias is None else scale * bias[head, None]))
    return Readout(source, tuple(layers))


def _gate(name: str, block: Any) -> tuple[str | None, float]:
    """The activation function of a readout, None for the identity, and its factor."""
    if hasattr(block, "non_linearity"):
        acts = list(block.non_linearity.acts)
        if len(acts) != 1:
            raise UnsupportedError(f"{name}: expected one slot of scalars, found {block.non_linearity}")
        return (None, 1.0) if acts[0] is None else activation(f"{name}.non_linearity", acts[0], *ACTIVATIONS)
    gate = block.equivariant_nonlin
    return activation(f"{name}.equivariant_nonlin", gate._act_scalar, *ACTIVATIONS)[0], float(gate._scalar_cst)


def _scalar_rows(name: str, module: Any) -> np.ndarray:
    """The matrix [channels, outputs] from the first slot of the features, their even scalars, to even scalars."""
    expect(name, module, "Linear")
    if [path.i_in for path in module.instructions] != [0] or any(slot.ir.l for slot in module.irreps_out):
        raise UnsupportedError(f"{name}: expected scalars of the first slot only, found {module}")
    path = module.instructions[0]
    return array(module.weight).reshape(path.path_shape) * path.path_weight
