"""Descriptions of models with random weights, for tests that do not need mace-torch."""

from __future__ import annotations

from typing import Any

import numpy as np

from trnqc.cg.problem.irreps import Irrep, Irreps, MulIrrep, products
from trnqc.cg.problem.polynomials import coupled, monomials
from trnqc.cg.problem.problem import TPProblem
from trnqc.mace.model import (
    Convolution,
    Coupling,
    DipoleReadout,
    Gate,
    InteractionBlock,
    Layer,
    Linear,
    Model,
    NodeDensity,
    PairRepulsion,
    ProductBlock,
    RadialBasis,
    RadialNetwork,
    Readout,
    Transform,
)

# Options of `description` by name: the blocks of the published families and the edges of what is supported.
CASES: dict[str, dict[str, Any]] = {
    "residual": {},
    "scalars": {"hidden": "5x0e"},
    "wide": {"hidden": "40x0e+40x1o", "correlation": 2},
    "agnostic first": {"first": "agnostic"},
    "density": {"first": "agnostic density", "others": "residual density", "transform": "agnesi", "repulsion": True},
    "nonlinear": {"first": "nonlinear", "others": "nonlinear", "sent": "5x0e+5x1o", "cutoff_on_weights": True},
    "three layers": {"layers": 3, "correlation": 2, "hidden": "6x0e+6x1o+6x2e"},
    "one layer": {"layers": 1, "biases": True},
    "soft": {"transform": "soft", "kind": "gaussian"},
    "tanh": {"hidden": "5x0e", "biases": True, "act": "tanh"},
    "abs": {"hidden": "5x0e", "act": "abs"},
    "identity": {"hidden": "5x0e", "act": None},
    "dipoles": {"hidden": "6x0e+6x1o+6x2e", "correlation": 2, "dipoles": True},
}
NUMBERS = (1, 6, 8)


def description(
    *,
    hidden: str = "8x0e+8x1o",
    sent: str | None = None,
    layers: int = 2,
    correlation: int = 3,
    first: str = "residual",
    others: str = "residual",
    kind: str = "bessel",
    transform: str | None = None,
    cutoff_on_weights: bool = False,
    repulsion: bool = False,
    biases: bool = False,
    act: str | None = "silu",
    dipoles: bool = False,
    degree: int = 2,
    seed: int = 0,
) -> Model:
    """A description with random weights. Blocks are words among agnostic, residual, density and nonlinear."""
    rng = np.random.default_rng(seed)
    features, channels = Irreps.of(hidden), Irreps.of(hidden)[0].mul
    harmonics = Irreps.of("+".join(f"1x{l}y" for l in range(degree + 1)))
    irreps: Irreps = Irreps((MulIrrep(channels, Irrep(0, 1)),))
    interactions, contractions = [], []
    for t in range(layers):
        out = Irreps(features.slots[: 1 + dipoles]) if t == layers - 1 else features
        words = first if t == 0 else others
        interactions.append(_interaction(rng, words, irreps, Irreps.of(sent) if sent and t else irreps, harmonics, out))
        contractions.append(_product(rng, interactions[-1], harmonics, channels, out, correlation))
        irreps = out
    readouts = [Readout(t, (_layer(rng, channels, 1),)) for t in range(layers - 1)]
    hidden_layers = [_layer(rng, channels, 7, biases, act), _layer(rng, 7, 7, biases, act)][: 1 + biases]
    readouts.append(Readout(layers - 1, (*hidden_layers, _layer(rng, 7, 1, biases))))
    radii = np.array([0.31, 0.76, 0.66])
    parameters = {"agnesi": (1.08, 0.92, 4.58), "soft": (4.0,)}
    basis = RadialBasis(
        kind,
        np.pi / 4 * np.arange(1, 6) if kind == "bessel" else np.linspace(0, 4.0, 5),
        np.sqrt(0.5) if kind == "bessel" else -0.5,
        4.0,
        5,
        Transform(transform, parameters[transform], radii) if transform else None,
        cutoff_on_weights,
    )
    screening = ((0.1818, 3.2), (0.5099, 0.9423), (0.2802, 0.4028), (0.02817, 0.2016))
    zbl = PairRepulsion(screening, 0.24, 0.3, 5, radii, 1.2) if repulsion else None
    moments: list[DipoleReadout] = []
    if dipoles:
        moments += [DipoleReadout(t, 1, rng.normal(size=(channels, 1))) for t in range(layers - 1)]
        moments.append(DipoleReadout(layers - 1, 1, rng.normal(size=(channels, 4)), _layer(rng, channels, 4, act=act)))
    embedding, energies = rng.normal(size=(len(NUMBERS), channels)), rng.normal(size=len(NUMBERS))
    return Model(
        NUMBERS,
        basis,
        embedding,
        tuple(interactions),
        tuple(contractions),
        tuple(readouts),
        energies,
        float(rng.normal()),
        zbl,
        "x",
        "float64",
        tuple(moments),
    )


def _layer(rng: np.random.Generator, inputs: int, outputs: int, bias: bool = False, act: str | None = None) -> Layer:
    weight = rng.normal(size=(inputs, outputs)) / np.sqrt(inputs)
    return Layer(weight, rng.normal(size=outputs) if bias else None, act=act)


def _network(rng: np.random.Generator, outputs: int, norms: bool) -> RadialNetwork:
    hidden = _layer(rng, 5, 9, norms, "silu")
    if not norms:
        return RadialNetwork((hidden, _layer(rng, 9, outputs)))
    norm = rng.normal(1, 0.1, 9), rng.normal(0, 0.1, 9), 1e-5
    tables = [0.1 * rng.normal(size=(len(NUMBERS), 9)) for _ in range(2)]
    return RadialNetwork((Layer(hidden.weight, hidden.bias, norm, "silu"), _layer(rng, 9, outputs, True)), *tables)


def _linear(rng: np.random.Generator, ins: Irreps, outs: Irreps, by_element: bool = False) -> Linear:
    blocks = []
    for o, to in enumerate(outs):
        sources = [i for i, slot in enumerate(ins) if slot.ir == to.ir]
        inputs = sum(ins[i].mul for i in sources)
        for i in sources:
            shape = (*[len(NUMBERS)] * by_element, ins[i].mul, to.mul)
            blocks.append((i, o, rng.normal(size=shape) / np.sqrt(inputs)))
    return Linear(ins, outs, tuple(blocks))


def _interaction(
    rng: np.random.Generator, words: str, irreps: Irreps, sent: Irreps, harmonics: Irreps, out: Irreps
) -> InteractionBlock:
    channels = out[0].mul
    target = Irreps(tuple(MulIrrep(channels, slot.ir) for slot in harmonics))
    paths = [
        (i, j, slot.mul, ir)
        for i, slot in enumerate(sent)
        for j, y in enumerate(harmonics)
        for ir in products(slot.ir, y.ir)
        if any(ir == t.ir for t in target)
    ]
    paths.sort(key=lambda path: path[3])
    mid = Irreps(tuple(MulIrrep(mul, ir) for _, _, mul, ir in paths))
    problem = TPProblem(
        sent, harmonics, mid, [(i, j, k, "uvu", True) for k, (i, j, _, _) in enumerate(paths)], shared_weights=False
    )
    norms = words == "nonlinear"
    up, convolution = _linear(rng, irreps, sent), Convolution(problem, _network(rng, problem.weight_numel, norms))
    density = NodeDensity(_network(rng, 1, norms), 1.3, 2.0) if norms or "density" in words else None
    if norms:
        gates = tuple(MulIrrep(slot.mul, Irrep(0, 1)) for slot in target[1:])
        gate = Gate(Irreps((target[0], *gates, *target[1:])), target, 1.6, 1.8)
        return InteractionBlock(
            up,
            convolution,
            _linear(rng, mid, gate.irreps_in),
            density,
            _linear(rng, sent, gate.irreps_in),
            gate,
            _linear(rng, target, target),
            _linear(rng, irreps, out),
        )
    agnostic = "agnostic" in words
    return InteractionBlock(
        up,
        convolution,
        _linear(rng, mid, target),
        density,
        after=_linear(rng, target, target, True) if agnostic else None,
        skip=None if agnostic else _linear(rng, irreps, out, True),
    )


def _product(
    rng: np.random.Generator, block: InteractionBlock, harmonics: Irreps, channels: int, out: Irreps, correlation: int
) -> ProductBlock:
    ins = (block.after or block.linear).irreps_out
    components = tuple(slot.ir for slot in ins)
    couplings = tuple(
        tuple(_coupling(rng, components, slot.ir, order, channels) for order in range(1, correlation + 1))
        for slot in out
    )
    return ProductBlock(ins, out, couplings, _linear(rng, out, out))


def _coupling(
    rng: np.random.Generator, components: tuple[Irrep, ...], out: Irrep, order: int, channels: int
) -> Coupling:
    """The couplings of all paths, each monomial in one of its places, with weights that keep energies of order 1."""
    polynomials, dim = coupled(components, out, order), sum(ir.dim for ir in components)
    u = np.zeros((out.dim, *(dim,) * order, max(1, len(polynomials))))
    for n, m in enumerate(monomials(dim, order)):
        u[(slice(None), *m, slice(0, len(polynomials)))] = polynomials[:, :, n].T
    weights = rng.normal(size=(len(NUMBERS), u.shape[-1], channels)) / u.shape[-1]
    return Coupling(u, weights)
