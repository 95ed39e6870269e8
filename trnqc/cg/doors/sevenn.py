"""SevenNet: the `IrrepsConvolution` of interaction blocks. Its e3nn product remains for the state dict."""

from __future__ import annotations

from typing import Any

import torch
from e3nn.o3 import TensorProduct
from e3nn.util.jit import compile_mode
from sevenn import _keys as keys
from sevenn.nn.convolution import IrrepsConvolution, IrrepsScatterGatterFusedConvolution
from torch import Tensor, nn

from trnqc.cg.problem.problem import TPProblem, from_e3nn
from trnqc.cg.torch.modules import TensorProductConv
from trnqc.errors import UnsupportedError

# All classes of SevenNet's convolutions, also those that call other libraries.
LAYERS = (IrrepsConvolution, IrrepsScatterGatterFusedConvolution)


@compile_mode("script")
class SevenNetConvolution(IrrepsConvolution):
    """The convolution of a block, which includes gather and the sum over edges."""

    def forward(self, data: dict[str, Tensor]) -> dict[str, Tensor]:
        """Replace the features of the nodes by the messages that they receive, divided by the denominator."""
        x, index = data[self.key_x], data[self.key_edge_idx]
        if self.is_parallel:
            x = torch.cat([x, data[keys.NODE_FEATURE_GHOST]])
        weight = self.weight_nn(data[self.key_weight_input])
        x = self.fused(x, data[self.key_filter], weight, index[0], index[1]).div(self.denominator)
        if self.is_parallel:
            x = torch.tensor_split(x, data[keys.NLOCAL])[0]
        data[self.key_x] = x
        return data


def prepare(model: nn.Module) -> list[tuple[str, nn.Module, TPProblem]]:
    """Return (name, layer, problem) of each layer that is not swapped yet."""
    layers = [(name, layer) for name, layer in model.named_modules() if isinstance(layer, LAYERS)]
    if not layers:
        raise UnsupportedError(f"expected layers of SevenNet's IrrepsConvolution, found none in {type(model)}")
    swaps = []
    for name, layer in layers:
        if isinstance(layer, SevenNetConvolution):
            continue
        if type(layer) is not IrrepsConvolution or type(layer.convolution) is not TensorProduct:
            raise UnsupportedError(
                f"{name}: expected SevenNet's IrrepsConvolution with e3nn's TensorProduct, found {type(layer)} with "
                f"{type(layer.convolution)}: build the model without cuEquivariance, OpenEquivariance and FlashTP"
            )
        swaps.append((name, layer, from_e3nn(layer.convolution, label=name)))
    return swaps


def swap(layer: Any, problem: TPProblem) -> None:
    """Change a layer to a `SevenNetConvolution`."""
    layer.__class__ = SevenNetConvolution
    layer.fused = TensorProductConv(problem)


def undo(model: nn.Module) -> list[str]:
    """Restore SevenNet's class in all swapped layers and return their names."""
    names = []
    for name, layer in model.named_modules():
        if isinstance(layer, SevenNetConvolution):
            del layer.fused
            layer.__class__ = IrrepsConvolution
            names.append(name)
    return names
