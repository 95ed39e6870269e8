"""NequIP: the `TensorProductScatter` of interaction blocks; its e3nn product stays for the state dict."""

from __future__ import annotations

from typing import Any

from nequip.nn._tp_scatter_base import TensorProductScatter
from torch import Tensor, nn

from trnqc.cg.problem.problem import TPProblem, from_e3nn
from trnqc.cg.torch.modules import TensorProductConv
from trnqc.errors import UnsupportedError


class Scatter(TensorProductScatter):
    """A block's product with the sum over edges in it."""

    fused: TensorProductConv

    def forward(self, x: Tensor, edge_attr: Tensor, edge_weight: Tensor, edge_dst: Tensor, edge_src: Tensor) -> Tensor:
        """Messages [nodes, d3]; edge_dst receive, edge_src send, int64 [edges]."""
        return self.fused(x, edge_attr, edge_weight, edge_dst, edge_src)


def prepare(model: nn.Module) -> list[tuple[str, nn.Module, TPProblem]]:
    """(name, layer, problem) of every layer that was not swapped before."""
    layers = _layers(model)
    if not layers:
        raise UnsupportedError(f"expected layers of NequIP's TensorProductScatter, found none in {type(model)}")
    swaps = []
    for name, layer in layers:
        if isinstance(layer, Scatter):
            continue
        if type(layer) is not TensorProductScatter:
            raise UnsupportedError(
                f"{name}: expected NequIP's TensorProductScatter, found {type(layer)}: build the model without "
                "cuEquivariance and OpenEquivariance"
            )
        swaps.append((name, layer, from_e3nn(layer.tp, label=name)))
    return swaps


def swap(layer: Any, problem: TPProblem) -> None:
    """Make a layer ours."""
    layer.__class__ = Scatter
    layer.fused = TensorProductConv(problem)


def undo(model: nn.Module) -> list[str]:
    """Make every layer that is ours NequIP's again."""
    names = []
    for name, layer in _layers(model):
        if isinstance(layer, Scatter):
            del layer.fused
            layer.__class__ = TensorProductScatter
            names.append(name)
    return names


def _layers(model: nn.Module) -> list[tuple[str, Any]]:
    return [(name, layer) for name, layer in model.named_modules() if isinstance(layer, TensorProductScatter)]
