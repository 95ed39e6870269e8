"""The plan of a model: the layouts of its features, and all its weights packed into one array.

The plans of two models with the same hyperparameters differ in the numbers of the arrays only, so that they share their
programs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from trnqc.cg.cpu.contraction_engine import packed
from trnqc.cg.problem.contraction import ContractionProblem
from trnqc.cg.problem.irreps import Irreps
from trnqc.errors import UnsupportedError
from trnqc.mace.gemm import RegisterTile
from trnqc.mace.model import Gate, InteractionBlock, Linear, Model, ProductBlock, Readout
from trnqc.mace.nodes.contraction import coefficients, problem_of
from trnqc.mace.nodes.layout import FeatureLayout
from trnqc.mace.nodes.parameters import CollectedWeights, PackedMatrix


@dataclass(frozen=True)
class LinearPlan:
    """A linear layer: (slot of the input, slot of the output, matrix) of each block, and of each block's transpose."""

    input: FeatureLayout
    output: FeatureLayout
    blocks: tuple[tuple[int, int, PackedMatrix], ...]
    transposed: tuple[tuple[int, int, PackedMatrix], ...]

    @property
    def reverse(self) -> LinearPlan:
        """The transposed layer."""
        return LinearPlan(self.output, self.input, self.transposed, self.blocks)


@dataclass(frozen=True)
class HiddenPlan:
    """A hidden layer of a readout: its matrix, the transpose, the place of the bias, and the activation function."""

    matrix: PackedMatrix
    transposed: PackedMatrix
    bias: int | None
    act: str | None


@dataclass(frozen=True)
class ReadoutPlan:
    """A readout of the first slot of the features: hidden layers, and the place of the last layer's weights."""

    hidden: tuple[HiddenPlan, ...]
    channels: int
    row: int


@dataclass(frozen=True)
class LayerPlan:
    """An interaction with its product block, as in `trnqc.mace.model`.

    The layouts belong to the vectors that atoms send (`sent`), the sums over edges (`edges`), the input (`messages`)
    and output (`contracted`) of the contraction, and the `features` after it. `up` is None in the first layer, where
    the vectors that an atom sends depend on its element only; the self-connection of the first layer, `skip_table`, has
    one row for each element. `density` is slope and offset of the denominator; `gate` includes the layout of its input.
    """

    sent: FeatureLayout
    edges: FeatureLayout
    messages: FeatureLayout
    contracted: FeatureLayout
    features: FeatureLayout
    up: LinearPlan | None
    linear: LinearPlan
    density: tuple[float, float] | None
    residual: LinearPlan | None
    gate: tuple[Gate, FeatureLayout] | None
    after: LinearPlan | None
    skip: LinearPlan | None
    skip_table: PackedMatrix | None
    contraction: ContractionProblem
    product: LinearPlan
    readouts: tuple[ReadoutPlan, ...]


@dataclass(frozen=True, eq=False)
class NodePlan:
    """The plan of a model, with packed weights [vectors, lanes].

    The coefficients of each layer's contraction are [elements, blocks, terms, lanes]; `sent`, [elements, width, lanes],
    is what atoms send in the first layer; `constants` are the parts of the energies in eV that do not depend on
    neighbours, float64 [elements].
    """

    dtype: str
    tile: RegisterTile
    layers: tuple[LayerPlan, ...]
    parameters: np.ndarray
    coefficients: tuple[np.ndarray, ...]
    sent: np.ndarray
    constants: np.ndarray


def plan(model: Model, tile: RegisterTile, dtype: str) -> NodePlan:
    """Return the plan of a model for vectors of a dtype, "f32" or "f64".

    Raises UnsupportedError if features do not begin with even scalars, or if coupling tensors are not those of their
    irreps.
    """
    parameters, numpy_type = CollectedWeights(tile, dtype), {"f32": "float32", "f64": "float64"}[dtype]
    layers, coupled = [], []
    before: Irreps | None = None
    for n, (block, product) in enumerate(zip(model.interactions, model.products)):
        readouts = [readout for readout in model.readouts if readout.source == n]
        layers.append(_layer(parameters, block, product, readouts, model.embedding if before is None else None))
        values = coefficients(f"products.{n}", product)
        coupled.append(packed(np.ascontiguousarray(values, numpy_type), tile.lanes))
        before = product.linear.irreps_out
    first = model.interactions[0].up
    sent = FeatureLayout(first.irreps_out, tile.lanes).rows(applied(first, model.embedding), numpy_type)
    energies = model.atomic_energies + model.shift + sum(_constant(readout) for readout in model.readouts)
    return NodePlan(dtype, tile, tuple(layers), parameters.array(), tuple(coupled), sent, energies)


def _constant(readout: Readout) -> float:
    bias = readout.layers[-1].bias
    return 0.0 if bias is None else float(bias[0])


def applied(layer: Linear, embedding: np.ndarray) -> np.ndarray:
    """The output of a linear layer for the embedding of each element, in e3nn's order."""
    result = np.zeros((len(embedding), layer.irreps_out.dim))
    for _, o, matrix in layer.blocks:
        rows = np.einsum("ec,ecd->ed" if matrix.ndim == 3 else "ec,cd->ed", embedding, matrix)
        result[:, layer.irreps_out.slices[o]] += rows
    return result


def _layer(
    parameters: CollectedWeights,
    block: InteractionBlock,
    product: ProductBlock,
    readouts: Iterable[Readout],
    embedding: np.ndarray | None,
) -> LayerPlan:
    lanes = parameters.tile.lanes

    def layout(irreps: Irreps) -> FeatureLayout:
        return FeatureLayout(irreps, lanes)

    def optional(linear: Linear | None) -> LinearPlan | None:
        return None if linear is None else _linear(parameters, linear)

    table = None
    if embedding is not None and block.skip is not None:
        rows = layout(product.linear.irreps_out).rows(applied(block.skip, embedding), "float64")
        table = PackedMatrix(0, 0, parameters.add(rows), rows.shape[1])
    return LayerPlan(
        sent=layout(block.up.irreps_out),
        edges=layout(block.linear.irreps_in),
        messages=layout(product.irreps_in),
        contracted=layout(product.irreps_out),
        features=layout(product.linear.irreps_out),
        up=None if embedding is not None else _linear(parameters, block.up),
        linear=_linear(parameters, block.linear),
        density=None if block.density is None else (block.density.slope, block.density.offset),
        residual=optional(block.residual),
        gate=None if block.gate is None else (block.gate, layout(block.gate.irreps_in)),
        after=optional(block.after),
        skip=None if embedding is not None else optional(block.skip),
        skip_table=table,
        contraction=problem_of(product),
        product=_linear(parameters, product.linear),
        readouts=tuple(_readout(parameters, readout, product) for readout in readouts),
    )


def _linear(parameters: CollectedWeights, linear: Linear) -> LinearPlan:
    lanes = parameters.tile.lanes
    blocks = tuple((i, o, parameters.matrix(matrix)) for i, o, matrix in linear.blocks)
    transposed = tuple((o, i, parameters.matrix(matrix.swapaxes(-1, -2))) for i, o, matrix in linear.blocks)
    return LinearPlan(
        FeatureLayout(linear.irreps_in, lanes), FeatureLayout(linear.irreps_out, lanes), blocks, transposed
    )


def _readout(parameters: CollectedWeights, readout: Readout, product: ProductBlock) -> ReadoutPlan:
    first = product.linear.irreps_out[0]
    *hidden, last = readout.layers
    channels = readout.layers[0].weight.shape[0]
    if (first.ir.l, first.ir.p) != (0, 1) or first.mul != channels:
        raise UnsupportedError(f"readout: expected {channels} even scalars first, found {product.linear.irreps_out}")
    layers = tuple(
        HiddenPlan(
            parameters.matrix(layer.weight),
            parameters.matrix(layer.weight.T),
            None if layer.bias is None else parameters.row(layer.bias),
            layer.act,
        )
        for layer in hidden
    )
    return ReadoutPlan(layers, channels, parameters.row(last.weight[:, 0]))
