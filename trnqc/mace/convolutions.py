"""The compiled convolutions of a model with exact radial networks or with splines, and what their geometry needs.

model, elements -> spline tables, if asked for -> geometry, convolutions
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trnqc.errors import InputError
from trnqc.mace.edges.density import EdgeDensity
from trnqc.mace.edges.first.kernels import FirstConvolution, applies, hidden_network
from trnqc.mace.edges.geometry.kernels import GeometryKernels
from trnqc.mace.edges.kernels import LayerConvolution, spline_network
from trnqc.mace.edges.splines.tables import SplineTables, depends_on_elements, spline_tables
from trnqc.mace.model import Model, NodeDensity, RadialNetwork
from trnqc.mace.nodes.plan import applied

RADIALS = ("exact", "spline")
# Default of the largest relative error of the weights of edges and of their derivatives, if they are splines.
SPLINE_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Radial:
    """How the weights of edges are computed: by the networks of the model, or by splines of the length.

    The kind is "exact" or "spline"; InputError is raised for another kind. `tolerance` is the largest error of splines
    and of their derivatives, relative to the largest weights and derivatives.
    """

    kind: str = "exact"
    tolerance: float = SPLINE_TOLERANCE

    def __post_init__(self) -> None:
        if self.kind not in RADIALS:
            raise InputError(f"radial: expected one of {', '.join(RADIALS)}; found {self.kind}")


@dataclass(frozen=True, eq=False)
class Convolutions:
    """The geometry of edges, and the convolutions and densities of all layers.

    `densities` has None for a layer without a density; `elements` are the numbers of the elements that are covered,
    None for all elements of the model.
    """

    geometry: GeometryKernels
    layers: tuple[FirstConvolution | LayerConvolution, ...]
    densities: tuple[EdgeDensity | None, ...]
    splines: SplineTables | None
    elements: frozenset[int] | None

    @property
    def by_element(self) -> bool:
        """Whether the first layer is computed by the elements of its senders."""
        return isinstance(self.layers[0], FirstConvolution)

    def covers(self, elements: np.ndarray) -> bool:
        """Whether the weights of all pairs of some elements, int64, can be computed."""
        return self.elements is None or self.elements.issuperset(np.unique(elements).tolist())


def fitted_by_pairs(model: Model) -> bool:
    """Whether splines of the weights of edges are fitted for each pair of elements."""
    functions: list[RadialNetwork | NodeDensity] = [block.convolution.weights for block in model.interactions]
    return depends_on_elements([*functions, *_learned(model)], model.basis)


def convolutions(
    model: Model, radial: Radial, elements: np.ndarray, dtype: str, before: Convolutions | None = None
) -> Convolutions:
    """Compile the convolutions of a model, or load them from the cache.

    Splines are fitted for pairs of `elements`, int64 numbers, unless those of `before`, convolutions for other
    elements, cover them. Raises InputError if splines cannot meet the tolerance, UnsupportedError for networks that the
    programs do not cover.
    """
    blocks, present = [block.convolution for block in model.interactions], np.unique(elements).tolist()
    by_element = applies(blocks[0], len(present))
    densities, learned = [block.density for block in model.interactions], _learned(model)
    tables = before.splines if before is not None and before.by_element == by_element else None
    if radial.kind == "spline" and not (tables and tables.covers(elements)):
        functions: list[RadialNetwork | NodeDensity] = [spline_network(block, dtype) for block in blocks]
        if by_element:
            functions[0] = hidden_network(blocks[0].weights)
        tables = spline_tables(
            [*functions, *learned], model.basis, present, len(model.numbers), radial.tolerance, dtype
        )
    layers: list[FirstConvolution | LayerConvolution] = []
    for n, block in enumerate(blocks):
        if by_element and n == 0:
            sent = applied(model.interactions[0].up, model.embedding)
            layers.append(FirstConvolution(block, model.basis, sent, present, dtype, tables, n))
        else:
            layers.append(LayerConvolution(block, model.basis, dtype, tables, n))
    numbers = iter(range(len(blocks), len(blocks) + len(learned)))
    by_layer = tuple(
        None if density is None else EdgeDensity(density, model.basis, dtype, tables, next(numbers))
        for density in densities
    )
    basis = model.basis if tables is None else tables.knots
    geometry = GeometryKernels(basis, layers[0].layout.degree, dtype)
    everything = not by_element and (tables is None or not tables.elements)
    return Convolutions(geometry, tuple(layers), by_layer, tables, None if everything else frozenset(present))


def _learned(model: Model) -> list[NodeDensity]:
    """The learned densities of all layers that have one."""
    return [block.density for block in model.interactions if block.density is not None]
