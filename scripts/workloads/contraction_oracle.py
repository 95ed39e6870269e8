"""Symmetric contractions by their definition with dense coupling tensors, differentiable by PyTorch alone."""

from __future__ import annotations

import string
from math import sqrt

import numpy as np
import torch

from trnqc.cg.problem.coefficients import clebsch_gordan
from trnqc.cg.problem.contraction import ContractionProblem
from trnqc.cg.problem.irreps import Irrep, products


def couplings(irreps: tuple[Irrep, ...], degree: int, natural: bool) -> list[tuple[Irrep, np.ndarray]]:
    """All paths as (irrep, dense tensor [components, i1, ..., in]), in MACE's order."""
    dim = sum(ir.dim for ir in irreps)
    starts = np.cumsum([0, *(ir.dim for ir in irreps)])
    if degree == 1:
        return [(ir, np.eye(dim)[start : start + ir.dim]) for ir, start in zip(irreps, starts)]
    paths: list[tuple[Irrep, np.ndarray]] = []
    for left, tensor in couplings(irreps, degree - 1, natural):
        for right, start in zip(irreps, starts):
            for ir in products(left, right):
                if natural and ir.p != (-1) ** ir.l:
                    continue
                whole = np.zeros((ir.dim, *[dim] * degree))
                c = sqrt(ir.dim) * clebsch_gordan(ir.l, left.l, right.l)
                whole[..., start : start + right.dim] = np.einsum("mab,a...->m...b", c, tensor)
                paths.append((ir, whole))
    return sorted(paths, key=lambda path: path[0])


def reference(problem: ContractionProblem, w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """B [nodes, M, channels] from weights [nodes, weights, channels] of each node and x [nodes, I, channels]."""
    irreps = tuple(slot.ir for slot in problem.irreps_in)
    results = [torch.zeros(len(x), slot.ir.dim, problem.channels, dtype=x.dtype) for slot in problem.irreps_out]
    for weights in problem.weights:
        out, n = problem.irreps_out[weights.output].ir, weights.degree
        tensors = [t for ir, t in couplings(irreps, n, natural=n >= 4) if ir == out]
        if tensors:
            i = string.ascii_lowercase[:n]
            u = torch.tensor(np.array(tensors), dtype=x.dtype)
            own = w[:, weights.start : weights.start + weights.count]
            factors = ",".join(f"Z{letter}C" for letter in i)
            product = torch.einsum(f"KM{i},ZKC,{factors}->ZMC", u, own, *[x] * n)
            results[weights.output] = results[weights.output] + product
    return torch.cat(results, 1)
