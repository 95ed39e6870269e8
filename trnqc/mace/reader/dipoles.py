"""Readouts of energies and dipole moments of a MACE model."""

from __future__ import annotations

from typing import Any

import numpy as np

from trnqc.cg.problem.irreps import Irreps
from trnqc.errors import UnsupportedError
from trnqc.mace.model import ACTIVATIONS, DipoleReadout, Layer, Linear, Readout
from trnqc.mace.reader.linears import activation, expect, linear

SCALARS, VECTORS = (0, 1), (1, -1)


def energy_and_dipole(name: str, block: Any, source: int) -> tuple[Readout, DipoleReadout | None]:
    """The readouts of energy and dipole of layer `source`; None for a layer that does not add to the dipole."""
    kind = expect(name, block, "LinearDipoleReadoutBlock", "NonLinearDipoleReadoutBlock")
    if kind == "LinearDipoleReadoutBlock":
        layer = linear(f"{name}.linear", block.linear)
        energy = Readout(source, (Layer(_matrix(name, layer, SCALARS)),))
        slot = _slot(name, layer.irreps_in, VECTORS)
        return energy, None if slot is None else DipoleReadout(source, slot, _matrix(name, layer, VECTORS))
    return _gated(name, block, source)


def _gated(name: str, block: Any, source: int) -> tuple[Readout, DipoleReadout | None]:
    """The hidden layer has scalars, then gates of its vectors, in one slot, and vectors in the next one."""
    gate = block.equivariant_nonlin
    first, last = linear(f"{name}.linear_1", block.linear_1), linear(f"{name}.linear_2", block.linear_2)
    scalars = Irreps.of(gate.irreps_scalars).dim
    hidden = _matrix(name, first, SCALARS)
    act, constant = _activation(f"{name}.equivariant_nonlin", gate._act_scalar, gate._scalar_cst)
    layers = Layer(hidden[:, :scalars], act=act), Layer(constant * _matrix(name, last, SCALARS))
    slot = _slot(name, first.irreps_in, VECTORS)
    if slot is None or not len(gate.irreps_gated):
        return Readout(source, layers), None
    act, constant = _activation(f"{name}.equivariant_nonlin", gate._act_gate, gate._gate_cst)
    weight = constant * _matrix(name, first, VECTORS) * _matrix(name, last, VECTORS)[:, 0]
    return Readout(source, layers), DipoleReadout(source, slot, weight, Layer(hidden[:, scalars:], act=act))


def _activation(name: str, act: Any, constant: float) -> tuple[str | None, float]:
    """Name and factor of an activation function of a gate, None and 1 without one."""
    return (None, 1.0) if act is None else (activation(name, act, *ACTIVATIONS)[0], float(constant))


def _matrix(name: str, layer: Linear, kind: tuple[int, int]) -> np.ndarray:
    """The matrix of a linear layer between its slots of one irrep, given by degree and parity."""
    slots = _slot(name, layer.irreps_in, kind), _slot(name, layer.irreps_out, kind)
    blocks = [matrix for i, o, matrix in layer.blocks if (i, o) == slots]
    if len(blocks) != 1:
        raise UnsupportedError(f"{name}: expected scalars and vectors, found {layer.irreps_in} -> {layer.irreps_out}")
    return blocks[0]


def _slot(name: str, irreps: Irreps, kind: tuple[int, int]) -> int | None:
    """The number of the slot of an irrep, None without one."""
    found = [n for n, slot in enumerate(irreps) if (slot.ir.l, slot.ir.p) == kind]
    if len(found) > 1:
        raise UnsupportedError(f"{name}: expected one slot of each irrep, found {irreps}")
    return found[0] if found else None
