"""Tensor products of other libraries on a GPU, made from our problems, in their own layouts and orders of weights.

Only times are taken of them, so weights need not be in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trnqc.cg.problem.problem import TPProblem
from trnqc.errors import UnsupportedError


def rules(problem: TPProblem) -> list[tuple[Any, ...]]:
    return [(i.i_in1, i.i_in2, i.i_out, i.connection_mode, i.has_weight) for i in problem.instructions]


def slots(problem: TPProblem) -> tuple[str, str, str]:
    return str(problem.irreps_in1), str(problem.irreps_in2), str(problem.irreps_out)


def e3nn_eager(problem: TPProblem, x: Any) -> Callable[..., Any]:
    from e3nn import o3

    module = o3.TensorProduct(
        *slots(problem), rules(problem), internal_weights=False, shared_weights=problem.shared_weights
    )
    return module.to(device=x.device, dtype=x.dtype)


def e3nn_compiled(problem: TPProblem, x: Any) -> Callable[..., Any]:
    import torch

    return torch.compile(e3nn_eager(problem, x), fullgraph=True)


def cuequivariance(problem: TPProblem, x: Any) -> Callable[..., Any]:
    """Its channelwise or fully connected product with all outputs that the problem has, in its own layout."""
    import cuequivariance as cue
    import cuequivariance_torch as cuet

    modes = {i.connection_mode for i in problem.instructions}
    if len(modes) != 1:
        raise UnsupportedError(f"expected one connection mode, found {sorted(modes)}")
    kind = cuet.ChannelWiseTensorProduct if modes == {"uvu"} else cuet.FullyConnectedTensorProduct
    out = slots(problem)[2]
    if modes == {"uvu"}:
        out = "+".join(dict.fromkeys(f"{slot.mul}x{slot.ir}" for slot in problem.irreps_out))
    irreps = [cue.Irreps("O3", text) for text in (*slots(problem)[:2], out)]
    return kind(
        *irreps,
        layout=cue.ir_mul,
        shared_weights=problem.shared_weights,
        internal_weights=False,
        device=x.device,
        dtype=x.dtype,
    )


def _openequivariance_problem(problem: TPProblem, x: Any) -> Any:
    import numpy as np
    import openequivariance as oeq

    kind = getattr(np, str(x.dtype).removeprefix("torch."))
    irreps = [oeq.Irreps(text) for text in slots(problem)]
    return oeq.TPProblem(
        *irreps,
        rules(problem),
        shared_weights=problem.shared_weights,
        internal_weights=False,
        irrep_dtype=kind,
        weight_dtype=kind,
    )


def openequivariance(problem: TPProblem, x: Any) -> Callable[..., Any]:
    import openequivariance as oeq

    return oeq.TensorProduct(_openequivariance_problem(problem, x)).to(x.device)


PEERS: Mapping[str, Callable[[TPProblem, Any], Callable[..., Any]]] = {
    "e3nn": e3nn_eager,
    "e3nn compiled": e3nn_compiled,
    "cuequivariance": cuequivariance,
    "openequivariance": openequivariance,
}


def gathered(make: Callable[[TPProblem, Any], Callable[..., Any]]) -> Callable[..., Callable[..., Any]]:
    """The convolution by a product of every edge and a sum by receiver, as models without a fused one have it."""

    def convolution(problem: TPProblem, x: Any, rows: Any, cols: Any) -> Callable[..., Any]:
        product = make(problem, x)

        def work(x: Any, y: Any, w: Any) -> Any:
            edges = product(x[cols], y, w)
            return edges.new_zeros(len(x), edges.shape[1]).index_add_(0, rows, edges)

        return work

    return convolution


def openequivariance_fused(problem: TPProblem, x: Any, rows: Any, cols: Any) -> Callable[..., Any]:
    """Its convolution in one kernel, which adds up in any order."""
    import openequivariance as oeq

    convolution = oeq.TensorProductConv(_openequivariance_problem(problem, x), deterministic=False).to(x.device)
    return lambda x, y, w: convolution(x, y, w, rows, cols)


CONVOLUTIONS: Mapping[str, Callable[..., Callable[..., Any]]] = {
    "cuequivariance": gathered(cuequivariance),
    "openequivariance": gathered(openequivariance),
    "openequivariance fused": openequivariance_fused,
}


class Peer:
    """One library's product; its derivatives are autograd's, with what they start from made beforehand."""

    def __init__(self, product: Callable[..., Any]) -> None:
        self.product = product

    def work(self, name: str, held: Mapping[str, Any]) -> Callable[[], Any]:
        """A pass with the operands `held` by name."""
        import torch

        inputs = [held[n].detach().requires_grad_(name != "forward") for n in ("x", "y", "w")]
        if name == "forward":
            return lambda: self.product(*inputs)
        z = self.product(*inputs)
        gz = held["gz"].detach().requires_grad_(name == "double_backward")
        if name == "backward":
            return lambda: torch.autograd.grad(z, inputs, gz, retain_graph=True)
        first = torch.autograd.grad(z, inputs, gz, create_graph=True)
        seconds = [held[n] for n in ("ggx", "ggy", "ggw")]
        return lambda: torch.autograd.grad(first, [*inputs, gz], seconds, retain_graph=True)
