"""NequIP: the `TensorProductScatter` of interaction blocks. Its e3nn product remains for the state dict."""

from __future__ import annotations

from typing import Any

from nequip.nn._tp_scatter_base import TensorProductScatter
from torch import Tensor, nn

from trnqc.cg.problem.problem import TPProblem, from_e3nn
from trnqc.cg.torch.modules import TensorProductConv
from trnqc.errors import UnsupportedError


class Scatter(TensorProductScatter):
    """The product of a block, which includes the sum over edges."""

    def forward(self, x: Tensor, edge_attr: Tensor, edge_weight: Tensor, edge_dst: Tensor, edge_src: Tensor) -> Tensor:
        """Return the messages [nodes, d3]. edge_dst and edge_src are the receivers and senders, int64 [edges]."""
        return self.fused(x, edge_attr, edge_weight, edge_dst, edge_src)


def prepare(model: nn.Module) -> list[tuple[str, nn.Module, TPProblem]]:
    """Return (name, layer, problem) of each layer that is not swapped yet."""
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
    """Change a layer to a `Scatter`."""
    layer.__class__ = Scatter
    layer.fused = TensorProductConv(problem)


def undo(model: nn.Module) -> list[str]:
    """Restore NequIP's class in all swapped layers and return their names."""
    names = []
    for name, layer in _layers(model):
        if isinstance(layer, Scatter):
            del layer.fused
            layer.__class__ = TensorProductScatter
            names.append(name)
    return names


def _layers(model: nn.Module) -> list[tuple[str, Any]]:
    return [(name, layer) for name, layer in model.named_modules() if isinstance(layer, TensorProductScatter)]
