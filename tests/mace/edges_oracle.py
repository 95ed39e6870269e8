"""A convolution of edges in float64 by NumPy, written from the formulas, and small inputs for it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from trnqc.cg.problem.coefficients import clebsch_gordan
from trnqc.cg.problem.problem import TPProblem
from trnqc.mace.edges.graph import SortedEdges
from trnqc.mace.model import Convolution, Layer, RadialBasis, RadialNetwork, Transform

RADII = np.array([0.31, 0.76, 0.66])


def bessel(size: int = 6, transform: Transform | None = None, cutoff_on_weights: bool = False) -> RadialBasis:
    """Bessel functions up to 5 Angstrom."""
    frequencies = np.arange(1, size + 1) * np.pi / 5.0
    return RadialBasis("bessel", frequencies, float(np.sqrt(2 / 5.0)), 5.0, 5, transform, cutoff_on_weights)


def problem(degrees: tuple[int, ...], channels: int, most: int) -> TPProblem:
    """All paths of slots of natural parity with harmonics up to degree `most` that do not exceed it."""
    triples = [(a, l2, l3) for a, l1 in enumerate(degrees) for l2 in range(most + 1) for l3 in range(most + 1)]
    fits = [(a, b, c) for a, b, c in triples if abs(degrees[a] - b) <= c <= degrees[a] + b]
    paths = sorted((t for t in fits if (degrees[t[0]] + t[1] + t[2]) % 2 == 0), key=lambda t: t[2])

    def irreps(ls: list[int], mul: int) -> str:
        return "+".join(f"{mul}x{l}{'eo'[l % 2]}" for l in ls)

    return TPProblem(
        irreps(list(degrees), channels),
        irreps(list(range(most + 1)), 1),
        irreps([c for _, _, c in paths], channels),
        [(a, b, n, "uvu", True) for n, (a, b, _) in enumerate(paths)],
        shared_weights=False,
    )


def network(
    inputs: int,
    hidden: tuple[int, ...],
    outputs: int,
    bias: bool = False,
    elements: int = 0,
    norm: bool = False,
    seed: int = 0,
) -> RadialNetwork:
    """A network with random weights; `norm` stands for layer normalisation of the hidden layers."""
    rng, widths = np.random.default_rng(seed), (inputs, *hidden, outputs)
    layers = [
        Layer(
            rng.normal(size=(n, m)) * 1.5 / np.sqrt(n),
            rng.normal(size=m) if bias else None,
            act=("silu" if k < len(hidden) else None),
        )
        for k, (n, m) in enumerate(pairwise(widths))
    ]
    if norm:
        gains = [(1 + 0.1 * rng.normal(size=m), rng.normal(size=m), 1e-3) for m in hidden]
        layers[:-1] = [replace(layer, norm=gain) for layer, gain in zip(layers, gains)]
    tables = [rng.normal(size=(elements, widths[1])) for _ in range(2)] if elements else [None, None]
    return RadialNetwork(tuple(layers), *tables)


def random_edges(counts: list[int], seed: int = 0, r_max: float = 5.0) -> SortedEdges:
    """Edges with random ends, `counts` of them at each node, some of them longer than the cutoff distance."""
    rng, nodes, edges = np.random.default_rng(seed), len(counts), sum(counts)
    vectors = rng.normal(size=(edges, 3))
    vectors *= (rng.uniform(0.7, 1.05 * r_max, edges) / np.linalg.norm(vectors, axis=1))[:, None]
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    receivers = np.repeat(np.arange(nodes), counts)
    return SortedEdges(starts, rng.integers(0, max(nodes, 1), edges), receivers, vectors, rng.integers(0, 3, nodes))


def radial_functions(basis: RadialBasis, edges: SortedEdges, r: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The functions of the basis [E, size] and the cutoff function [E]."""
    u = r if basis.transform is None else transformed(basis.transform, edges, r)
    u, k = u[:, None], basis.parameters
    values = {
        "bessel": lambda: basis.scale * np.sin(k * u) / u,
        "gaussian": lambda: np.exp(basis.scale * (u - k) ** 2),
        "chebyshev": lambda: np.cos(k * np.arccos(np.clip(u, -1, 1))) if (abs(u) <= 1).all() else _chebyshev(u, k),
    }[basis.kind]()
    x, p = r / basis.r_max, basis.cutoff_order
    f = 1 - (p + 1) * (p + 2) / 2 * x**p + p * (p + 2) * x ** (p + 1) - p * (p + 1) / 2 * x ** (p + 2)
    f = np.where(x < 1, f, 0)
    return (values if basis.cutoff_on_weights else values * f[:, None]), f


def _chebyshev(u: np.ndarray, degrees: np.ndarray) -> np.ndarray:
    return np.stack([np.polynomial.Chebyshev.basis(int(n))(u[:, 0]) for n in degrees], axis=1)


def transformed(transform: Transform, edges: SortedEdges, r: np.ndarray) -> np.ndarray:
    total = transform.radii[edges.elements[edges.senders]] + transform.radii[edges.elements[edges.receivers]]
    if transform.kind == "agnesi":
        a, q, p = transform.parameters
        x = 2 * r / total
        return 1 / (1 + a * x**q / (1 + x ** (q - p)))
    low, high = 3 / 4 * total, 4 / 3 * total
    alpha = transform.parameters[0] / (high - low)
    return low + (r - low) * 0.5 * (1 + np.tanh(alpha * (r - (low + high) / 2)))


def weights(net: RadialNetwork, basis: RadialBasis, edges: SortedEdges, r: np.ndarray) -> np.ndarray:
    """Outputs of a network for all edges."""
    u, f = radial_functions(basis, edges, r)
    for n, layer in enumerate(net.layers):
        u = u @ layer.weight
        u = u if layer.bias is None else u + layer.bias
        if n == 0 and net.sender is not None and net.receiver is not None:
            u = u + net.sender[edges.elements[edges.senders]] + net.receiver[edges.elements[edges.receivers]]
        if layer.norm is not None:
            gain, offset, epsilon = layer.norm
            u = gain * (u - u.mean(axis=1)[:, None]) / np.sqrt(u.var(axis=1) + epsilon)[:, None] + offset
        u = u / (1 + np.exp(-u)) if layer.act else u
    return u * f[:, None] if basis.cutoff_on_weights else u


def convolved(convolution: Convolution, edges: SortedEdges, w: np.ndarray, y: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The sum over edges, as a list of slots [N, components, channels] joined along the components."""
    tp = convolution.problem
    starts = [np.cumsum([0, *(slot.ir.dim for slot in irreps)]) for irreps in (tp.irreps_in1, tp.irreps_in2)]
    out = [np.zeros((len(x), slot.ir.dim, slot.mul)) for slot in tp.irreps_out]
    for path in tp.instructions:
        l1, l2, _ = tp.degrees(path)
        xs = x[edges.senders][:, starts[0][path.i_in1] :][:, : 2 * l1 + 1, : tp.irreps_in1[0].mul]
        ys = y[:, starts[1][path.i_in2] :][:, : 2 * l2 + 1]
        c = path.path_weight * clebsch_gordan(*tp.degrees(path))
        messages = np.einsum("eu,ijk,eiu,ej->eku", w[:, path.weight_slice], c, xs, ys)
        np.add.at(out[path.i_out], edges.receivers, messages)
    return np.concatenate(out, axis=1)
