"""Energies of a description by PyTorch in float64, with forces by autograd: slow, and written from the formulas."""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from trnqc.cg.problem.coefficients import clebsch_gordan
from trnqc.cg.problem.irreps import Irreps
from trnqc.mace.model import (
    Gate,
    InteractionBlock,
    Layer,
    Linear,
    Model,
    PairRepulsion,
    ProductBlock,
    RadialBasis,
    RadialNetwork,
)


def neighbours(
    positions: np.ndarray, cell: np.ndarray, periodic: tuple[bool, ...], r_max: float
) -> tuple[np.ndarray, ...]:
    """Senders, receivers and shifts of all pairs closer than r_max, by trying all images."""
    heights = [1 / max(np.linalg.norm(row), 1e-300) for row in np.linalg.pinv(cell).T]
    spread = np.ptp(positions, axis=0).max(initial=0) + r_max
    counts = [math.ceil(spread / h) + 1 if p else 0 for h, p in zip(heights, periodic)]
    senders, receivers, shifts = [], [], []
    for image in itertools.product(*(range(-n, n + 1) for n in counts)):
        shift = np.array(image) @ cell
        distance = np.linalg.norm(positions[None, :, :] + shift - positions[:, None, :], axis=-1)
        if not any(image):
            np.fill_diagonal(distance, np.inf)
        i, j = np.nonzero(distance < r_max)
        receivers.append(i)
        senders.append(j)
        shifts.append(np.broadcast_to(shift, (len(i), 3)))
    return np.concatenate(senders), np.concatenate(receivers), np.concatenate(shifts)


def evaluate(
    model: Model, numbers: np.ndarray, positions: np.ndarray, cell: np.ndarray, periodic: tuple[bool, ...]
) -> dict[str, np.ndarray]:
    """Energies of the atoms, forces and the virial dE/d(strain) of a structure, in eV and Angstrom."""
    elements = torch.tensor([model.numbers.index(z) for z in numbers])
    senders, receivers, shifts = map(torch.tensor, neighbours(positions, cell, periodic, model.basis.r_max))
    x = torch.tensor(positions, requires_grad=True)
    strain = torch.zeros(3, 3, dtype=torch.float64, requires_grad=True)
    deform = torch.eye(3, dtype=torch.float64) + (strain + strain.T) / 2
    vectors = (x[receivers] - x[senders] - shifts) @ deform
    energies = node_energies(model, elements, vectors, senders, receivers)
    forces, virial = torch.autograd.grad(energies.sum(), (x, strain), allow_unused=True)
    zero = torch.zeros(())
    return {
        "energies": energies.detach().numpy(),
        "forces": -(forces if forces is not None else zero * x.detach()).numpy(),
        "virial": (virial if virial is not None else zero * strain.detach()).numpy(),
    }


def node_energies(model: Model, elements: Tensor, vectors: Tensor, senders: Tensor, receivers: Tensor) -> Tensor:
    edges = edges_of(model, elements, vectors, senders, receivers)
    features = features_of(model, edges)
    energies = torch.tensor(model.atomic_energies)[elements] + model.shift
    for readout in model.readouts:
        channels = readout.layers[0].weight.shape[0]
        energies = energies + mlp(readout.layers, features[readout.source][:, :channels])[:, 0]
    if model.repulsion is not None:
        part = repulsion(model.repulsion, torch.tensor(model.numbers), vectors.norm(dim=1), edges.pair)
        energies = energies.index_add(0, receivers, part)
    return energies


def features_of(model: Model, edges: Edges) -> list[Tensor]:
    """The features of the nodes after each layer, in e3nn's order."""
    h, features = torch.tensor(model.embedding)[edges.elements], []
    for block, product in zip(model.interactions, model.products):
        message, skip = interaction(block, h, edges)
        h = contraction(product, message, edges.elements) + skip
        features.append(h)
    return features


def features(
    model: Model, numbers: np.ndarray, positions: np.ndarray, cell: np.ndarray, periodic: tuple[bool, ...]
) -> list[np.ndarray]:
    """The features of the atoms of a structure after each layer, in e3nn's order."""
    elements = torch.tensor([model.numbers.index(z) for z in numbers])
    senders, receivers, shifts = map(torch.tensor, neighbours(positions, cell, periodic, model.basis.r_max))
    x = torch.tensor(positions)
    edges = edges_of(model, elements, x[receivers] - x[senders] - shifts, senders, receivers)
    return [h.numpy() for h in features_of(model, edges)]


def dipoles(
    model: Model, numbers: np.ndarray, positions: np.ndarray, cell: np.ndarray, periodic: tuple[bool, ...]
) -> np.ndarray:
    """The dipole moments of the atoms of a structure in Debye, atom by atom."""
    result = np.zeros((len(numbers), 3))
    after = features(model, numbers, positions, cell, periodic)
    for readout in model.dipoles:
        scalars, vectors = (
            slots(model.products[readout.source].linear.irreps_out, torch.tensor(after[readout.source]))[n]
            for n in (0, readout.slot)
        )
        for atom in range(len(numbers)):
            hidden = torch.tensor(readout.weight).T @ vectors[atom]
            gates = torch.ones(1, len(hidden), dtype=hidden.dtype)
            if readout.gates is not None:
                gates = mlp((readout.gates,), scalars[atom].T)
            result[atom] += (gates @ hidden)[0].numpy()
    return result


def basis(b: RadialBasis, r: Tensor, pair: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Functions of the basis [edges, size] and the factor [edges, 1] of the weights."""
    u = r
    if b.transform is not None:
        radii = torch.tensor(b.transform.radii)
        total = radii[pair[0]] + radii[pair[1]]
        if b.transform.kind == "agnesi":
            a, q, p = b.transform.parameters
            y = 2 * r / total
            u = 1 / (1 + a * y**q / (1 + y ** (q - p)))
        else:
            low, high = 3 / 4 * total, 4 / 3 * total
            alpha = b.transform.parameters[0] / (high - low)
            u = low + (r - low) * 0.5 * (1 + torch.tanh(alpha * (r - (low + high) / 2)))
    k, u = torch.tensor(b.parameters), u[:, None]
    values = {
        "bessel": lambda: b.scale * torch.sin(k * u) / u,
        "gaussian": lambda: torch.exp(b.scale * (u - k) ** 2),
        "chebyshev": lambda: torch.special.chebyshev_polynomial_t(u, k),
    }[b.kind]()
    f = cutoff(r[:, None], torch.tensor(b.r_max), b.cutoff_order)
    return (values, f) if b.cutoff_on_weights else (values * f, torch.ones_like(f))


def cutoff(r: Tensor, r_max: Tensor, p: int) -> Tensor:
    x = r / r_max
    f = 1 - (p + 1) * (p + 2) / 2 * x**p + p * (p + 2) * x ** (p + 1) - p * (p + 1) / 2 * x ** (p + 2)
    return f * (x < 1)


def spherical_harmonics(unit: Tensor, degree: int) -> list[Tensor]:
    """Harmonics of degrees 0 .. degree, each coupled from the one below and a vector; norms^2 are 2 l + 1."""
    y = [torch.ones_like(unit[:, :1]), math.sqrt(3) * unit]
    for l in range(2, degree + 1):
        c = torch.tensor(clebsch_gordan(l - 1, 1, l))
        raw = torch.einsum("ijk,ei,ej->ek", c, y[-1], y[1])
        point = [torch.tensor(harmonic_at_pole(l - 1)), torch.tensor(harmonic_at_pole(1))]
        at_pole = torch.einsum("ijk,i,j->k", c, *point)
        y.append(raw * (math.sqrt(2 * l + 1) / at_pole[l]))
    return y[: degree + 1]


def harmonic_at_pole(l: int) -> np.ndarray:
    """Harmonics at (0, 1, 0), e3nn's polar axis: only m = 0 does not vanish, and it is positive."""
    y = np.zeros(2 * l + 1)
    y[l] = math.sqrt(2 * l + 1)
    return y


def edge_weights(net: RadialNetwork, radial: Tensor, pair: tuple[Tensor, Tensor]) -> Tensor:
    first = None
    if net.sender is not None and net.receiver is not None:
        first = torch.tensor(net.sender)[pair[0]] + torch.tensor(net.receiver)[pair[1]]
    return mlp(net.layers, radial, first)


ACTIVATIONS = {"silu": torch.nn.functional.silu, "tanh": torch.tanh, "abs": torch.abs}


def mlp(layers: tuple[Layer, ...], x: Tensor, first: Tensor | None = None) -> Tensor:
    for n, layer in enumerate(layers):
        x = x @ torch.tensor(layer.weight)
        x = x + torch.tensor(layer.bias) if layer.bias is not None else x
        x = x + first if n == 0 and first is not None else x
        if layer.norm is not None:
            gain, offset, epsilon = layer.norm
            x = torch.nn.functional.layer_norm(x, x.shape[1:], torch.tensor(gain), torch.tensor(offset), epsilon)
        x = x if layer.act is None else ACTIVATIONS[layer.act](x)
    return x


def slots(irreps: Irreps, x: Tensor) -> list[Tensor]:
    """Slots of rows in e3nn's order, each [nodes, channels, components]."""
    return [x[:, s].reshape(len(x), slot.mul, slot.ir.dim) for slot, s in zip(irreps, irreps.slices)]


def linear(layer: Linear, x: Tensor, elements: Tensor) -> Tensor:
    rows = slots(layer.irreps_in, x)
    out = [torch.zeros(len(x), slot.mul, slot.ir.dim, dtype=x.dtype) for slot in layer.irreps_out]
    for i, o, matrix in layer.blocks:
        w = torch.tensor(matrix)
        by_node = w[elements] if w.ndim == 3 else w.expand(len(x), *w.shape)
        out[o] = out[o] + torch.einsum("ncm,ncd->ndm", rows[i], by_node)
    return torch.cat([part.flatten(1) for part in out], dim=1)


def gated(layer: Gate, x: Tensor) -> Tensor:
    scalars, *rest = slots(layer.irreps_in, x)
    gates, gated_slots = rest[: len(rest) // 2], rest[len(rest) // 2 :]
    out = [layer.scalar_constant * torch.nn.functional.silu(scalars)]
    out += [part * (layer.gate_constant * torch.sigmoid(gate)) for gate, part in zip(gates, gated_slots, strict=True)]
    return torch.cat([part.flatten(1) for part in out], dim=1)


class Edges(NamedTuple):
    """What an evaluation needs of the edges."""

    elements: Tensor
    senders: Tensor
    receivers: Tensor
    radial: Tensor
    cutoff: Tensor
    harmonics: Tensor

    @property
    def pair(self) -> tuple[Tensor, Tensor]:
        return self.elements[self.senders], self.elements[self.receivers]

    def sum(self, rows: Tensor) -> Tensor:
        """The sum over the edges of each receiver."""
        zeros = torch.zeros(len(self.elements), rows.shape[1], dtype=rows.dtype)
        return zeros.index_add(0, self.receivers, rows)


def edges_of(model: Model, elements: Tensor, vectors: Tensor, senders: Tensor, receivers: Tensor) -> Edges:
    r = vectors.norm(dim=1)
    radial, factor = basis(model.basis, r, (elements[senders], elements[receivers]))
    degrees = max(slot.ir.l for slot in model.interactions[0].convolution.problem.irreps_in2)
    harmonics = torch.cat(spherical_harmonics(vectors / r[:, None], degrees), dim=1)
    return Edges(elements, senders, receivers, radial, factor, harmonics)


def convolve(block: InteractionBlock, x: Tensor, edges: Edges) -> tuple[Tensor, Tensor | None]:
    """The sums over edges, in e3nn's order, and the densities of the nodes."""
    weights = edge_weights(block.convolution.weights, edges.radial, edges.pair) * edges.cutoff
    problem = block.convolution.problem
    xs, ys = slots(problem.irreps_in1, x[edges.senders]), slots(problem.irreps_in2, edges.harmonics)
    zs = [torch.zeros(len(weights), slot.mul, slot.ir.dim, dtype=x.dtype) for slot in problem.irreps_out]
    for path in problem.instructions:
        c = path.path_weight * torch.tensor(clebsch_gordan(*problem.degrees(path)))
        w = weights[:, path.weight_slice].reshape(-1, *path.path_shape)
        zs[path.i_out] = zs[path.i_out] + torch.einsum("euv,ijk,eui,evj->euk", w, c, xs[path.i_in1], ys[path.i_in2])
    sums = edges.sum(torch.cat([part.flatten(1) for part in zs], dim=1))
    if block.density is None:
        return sums, None
    return sums, edges.sum(
        torch.tanh(edge_weights(block.density.network, edges.radial, edges.pair) ** 2) * edges.cutoff
    )


def interaction(block: InteractionBlock, h: Tensor, edges: Edges) -> tuple[Tensor, Tensor]:
    """Messages and self-connections of the nodes, both in e3nn's order."""
    x = linear(block.up, h, edges.elements)
    sums, rho = convolve(block, x, edges)
    message = linear(block.linear, sums, edges.elements)
    if block.density is not None and rho is not None:
        message = message / (block.density.slope * rho + block.density.offset)
    if block.residual is not None:
        message = message + linear(block.residual, x, edges.elements)
    message = gated(block.gate, message) if block.gate is not None else message
    message = linear(block.after, message, edges.elements) if block.after is not None else message
    skip = linear(block.skip, h, edges.elements) if block.skip is not None else torch.zeros(len(h), 1, dtype=h.dtype)
    return message, skip


def contraction(product: ProductBlock, message: Tensor, elements: Tensor) -> Tensor:
    x = torch.cat(slots(product.irreps_in, message), dim=2)
    out = []
    for couplings in product.couplings:
        total = torch.zeros(len(x), x.shape[1], couplings[0].u.shape[0], dtype=x.dtype)
        for coupling in couplings:
            u, w = torch.tensor(coupling.u), torch.tensor(coupling.weights)[elements]
            indices = "ijpq"[: coupling.order]
            part = torch.einsum(f"M{indices}k,nkc->ncM{indices}", u, w)
            for _ in indices:
                part = torch.einsum("ncMi...,nci->ncM...", part, x)
            total = total + part
        out.append(total.flatten(1))
    return linear(product.linear, torch.cat(out, dim=1), elements)


def repulsion(pair: PairRepulsion, numbers: Tensor, r: Tensor, elements: tuple[Tensor, Tensor]) -> Tensor:
    z1, z2 = (numbers[e].double() for e in elements)
    radii = torch.tensor(pair.radii)
    x = r * (z1**pair.exponent + z2**pair.exponent) / pair.length
    phi = sum(c * torch.exp(-d * x) for c, d in pair.screening)
    f = cutoff(r, radii[elements[0]] + radii[elements[1]], pair.cutoff_order)
    return pair.scale / 2 * 14.3996 * z1 * z2 / r * phi * f
