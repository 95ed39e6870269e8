"""Symmetric contractions on a GPU, checked and then timed; the part "contractions" of bench_cg.

Passes are B, its gradient, that with the gradients of the weights (a step of training), and the last along a direction
(a step of training with forces). The gate: results for the first nodes agree with dense sums in fp64. The peer is
MACE's own module, for the first two passes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from scripts.workloads.contractions import contraction, operands
from trnqc.cg.cuda.contraction_engine import CudaContractionEngine
from trnqc.cg.problem.contraction import ContractionProblem
from trnqc.jit.device import Device

# Arguments of the engine's methods, by pass.
PASSES = {
    "value": ("value", ("c", "x", "elements")),
    "gradient": ("gradient", ("c", "x", "elements", "gb")),
    "gradients": ("gradients", ("c", "x", "elements", "gb")),
    "second": ("gradients", ("c", "x", "elements", "gb", "h")),
}
# Sums of some hundred products of a few factors, relative to the largest result.
GATE = {"float32": 1e-5, "float64": 1e-13}
NODES, ELEMENTS, CHECKED = 2_000, 10, 8


def passes(engine: CudaContractionEngine, held: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """The engine's passes for operands by name."""
    return {title: partial(getattr(engine, name), *(held[n] for n in reads)) for title, (name, reads) in PASSES.items()}


def check(label: str, dtype: str, device: Device) -> dict[str, float]:
    """Return the largest relative error of each pass for some nodes. Raises AssertionError above the gate."""
    problem = contraction(label)
    weights, given = operands(problem, dtype, CHECKED, 3)
    engine, errors = CudaContractionEngine(problem, dtype, device), {}
    wanted = dense(problem, weights, given)
    for title, work in passes(engine, given).items():
        ours = work() if title in ("gradients", "second") else (work(),)
        folded = [*ours[:1], *(np.einsum("tk,etc->ekc", problem.folding, gc) for gc in ours[1:])]
        pairs = zip(folded, wanted[title], strict=True)
        errors[title] = max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in pairs)
        assert errors[title] <= GATE[dtype], f"{label}: {title} is off by {errors[title]:.1e}, allowed {GATE[dtype]}"
    return errors


def dense(
    problem: ContractionProblem, weights: np.ndarray, given: dict[str, np.ndarray]
) -> dict[str, tuple[np.ndarray, ...]]:
    """Return what the passes return, but for the weights instead of the coefficients, by dense sums in fp64."""
    import torch

    from scripts.workloads.contraction_oracle import reference

    x, gb, h = (torch.tensor(given[n].astype(float)) for n in ("x", "gb", "h"))
    w, numbers = torch.tensor(weights), torch.tensor(given["elements"])

    def b(x: Any, w: Any) -> Any:
        return reference(problem, w[numbers], x)

    def along(x: Any, w: Any) -> Any:
        return torch.func.jvp(lambda x: b(x, w), (x,), (h,))[1]

    at_point, of_direction = torch.func.vjp(b, x, w), torch.func.vjp(along, x, w)
    value, first, second = at_point[0], at_point[1](gb), of_direction[1](gb)
    found = {"value": (value,), "gradient": first[:1], "gradients": first, "second": second}
    return {title: tuple(t.numpy() for t in tensors) for title, tensors in found.items()}


def mace(problem: ContractionProblem, held: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """MACE's own module for the same sizes, with random weights."""
    import torch
    from e3nn import o3
    from mace.modules.symmetric_contraction import SymmetricContraction

    irreps = [o3.Irreps(str(slots)) for slots in (problem.irreps_in, problem.irreps_out)]
    x = held["x"].transpose(1, 2).contiguous().requires_grad_()
    count = len(held["c"])
    module = SymmetricContraction(*irreps, correlation=max(problem.correlation), num_elements=count).to(x)
    one_hot = torch.nn.functional.one_hot(held["elements"], count).to(x)
    b = module(x, one_hot)
    seed = torch.ones_like(b)
    return {
        "value": lambda: module(x, one_hot),
        "gradient": lambda: torch.autograd.grad(b, x, seed, retain_graph=True),
    }
