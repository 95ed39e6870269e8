"""Interaction blocks and product blocks of a MACE model as descriptions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from trnqc.cg.problem.irreps import Irreps
from trnqc.cg.problem.problem import TPProblem, from_e3nn
from trnqc.errors import UnsupportedError
from trnqc.mace.model import Convolution, Coupling, InteractionBlock, NodeDensity, ProductBlock, RadialNetwork
from trnqc.mace.reader.linears import array, divided, expect, gate, linear, linear_by_element, network

# Classes of interaction blocks whose names differ from those of the blocks that are read by a trait only.
INTERACTIONS = (
    "RealAgnosticInteractionBlock",
    "RealAgnosticResidualInteractionBlock",
    "RealAgnosticDensityInteractionBlock",
    "RealAgnosticDensityResidualInteractionBlock",
    "RealAgnosticResidualNonLinearInteractionBlock",
)


def interaction(name: str, block: Any, size: int) -> InteractionBlock:
    """An interaction block, for a radial basis of `size` functions."""
    kind = expect(name, block, *INTERACTIONS)
    nonlinear = kind == INTERACTIONS[-1]
    up = linear(f"{name}.linear_up", block.linear_up)
    convolution = Convolution(_problem(name, block), _edge_network(f"{name}.conv_tp_weights", block, size))
    if nonlinear:
        density = _density(name, block, size, float(block.beta), float(block.alpha))
        nonlinearity = gate(f"{name}.equivariant_nonlin", block.equivariant_nonlin)
        return InteractionBlock(
            up,
            convolution,
            divided(linear(f"{name}.linear_1", block.linear_1), nonlinearity.irreps_in),
            density,
            divided(linear(f"{name}.linear_res", block.linear_res), nonlinearity.irreps_in),
            nonlinearity,
            linear(f"{name}.linear_2", block.linear_2),
            linear(f"{name}.skip_tp", block.skip_tp),
        )
    dense = "Density" in kind
    scale = 1.0 if dense else 1.0 / float(block.avg_num_neighbors)
    element = linear_by_element(f"{name}.skip_tp", block.skip_tp)
    residual = "Residual" in kind
    return InteractionBlock(
        up,
        convolution,
        linear(f"{name}.linear", block.linear, scale),
        _density(name, block, size, 1.0, 1.0) if dense else None,
        after=None if residual else element,
        skip=element if residual else None,
    )


def _problem(name: str, block: Any) -> TPProblem:
    problem = from_e3nn(block.conv_tp, label=name)
    if any(path.connection_mode != "uvu" or not path.has_weight for path in problem.instructions):
        raise UnsupportedError(f"{name}.conv_tp: expected weighted paths of mode uvu, found {problem}")
    return problem


def _edge_network(name: str, block: Any, size: int) -> RadialNetwork:
    """A network of edges; columns that read embeddings of elements become tables by element."""
    whole = network(name, block.conv_tp_weights if name.endswith("conv_tp_weights") else block.density_fn, size)
    if not hasattr(block, "source_embedding"):
        return whole
    tables = [
        element_table(f"{name}: {part}", getattr(block, part)) for part in ("source_embedding", "target_embedding")
    ]
    first, width = whole.layers[0], tables[0].shape[1]
    weight = first.weight
    sender = tables[0] @ weight[size : size + width]
    receiver = tables[1] @ weight[size + width :]
    layers = (replace(first, weight=np.ascontiguousarray(weight[:size])), *whole.layers[1:])
    return RadialNetwork(layers, sender, receiver)


def _density(name: str, block: Any, size: int, slope: float, offset: float) -> NodeDensity:
    return NodeDensity(_edge_network(f"{name}.density_fn", block, size), slope, offset)


def element_table(name: str, module: Any) -> np.ndarray:
    """The outputs of a linear layer for one-hot vectors of the elements, [elements, channels]."""
    layer = linear(name, module)
    if len(layer.blocks) != 1:
        raise UnsupportedError(f"{name}: expected one slot of scalars, found {layer.irreps_out}")
    return layer.blocks[0][2]


def product(name: str, block: Any, elements: int) -> ProductBlock:
    """A product block."""
    contraction = block.symmetric_contractions
    # The second is what `trnqc.cg.accelerate` makes of the first, with the same attributes.
    expect(f"{name}.symmetric_contractions", contraction, "SymmetricContraction", "MaceContraction")
    couplings = tuple(
        _couplings(part, slot.ir.dim, elements)
        for part, slot in zip(contraction.contractions, Irreps.of(contraction.irreps_out))
    )
    irreps = Irreps.of(contraction.irreps_in), Irreps.of(contraction.irreps_out)
    return ProductBlock(*irreps, couplings, linear(f"{name}.linear", block.linear))


def _couplings(part: Any, components: int, elements: int) -> tuple[Coupling, ...]:
    """The couplings of orders 1, 2, ... of a `Contraction`, whose weights are stored from the last order but one on."""
    weights = [*reversed([*part.weights]), part.weights_max]
    couplings = []
    for order, weight in enumerate(weights, start=1):
        u = array(part.U_tensors(order))
        u = u.reshape(components, *u.shape[-1 - order :])
        by_element = np.broadcast_to(array(weight), (elements, *weight.shape[1:]))
        couplings.append(Coupling(u, np.ascontiguousarray(by_element)))
    return tuple(couplings)
