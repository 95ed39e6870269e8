"""MACE: the `conv_tp` of interaction blocks. A block with the attribute `conv_fusion` passes it the edges."""

from __future__ import annotations

from typing import Any

from e3nn import o3
from torch import Tensor, nn

from trnqc.cg.problem.problem import TPProblem, from_e3nn
from trnqc.cg.torch.modules import TensorProductConv
from trnqc.errors import UnsupportedError


class Convolution(o3.TensorProduct):
    """The `conv_tp` of a block, which includes the sum over edges."""

    def forward(self, x: Tensor, y: Tensor, weights: Tensor, edge_index: Tensor) -> Tensor:
        """Return the messages [nodes, d3]. edge_index is int64 [2, edges] and contains senders and receivers."""
        return self.fused(x, y, weights, edge_index[1], edge_index[0])


def prepare(model: nn.Module) -> list[tuple[str, nn.Module, TPProblem]]:
    """Return (name, block, problem) of each interaction block that is not swapped yet."""
    from mace.modules.blocks import InteractionBlock

    swaps = []
    for name, block in _blocks(model, InteractionBlock):
        if isinstance(block.conv_tp, Convolution):
            continue
        if type(block.conv_tp) is not o3.TensorProduct or hasattr(block, "conv_fusion"):
            raise UnsupportedError(
                f"{name}.conv_tp: expected e3nn's TensorProduct, found {type(block.conv_tp)} with conv_fusion = "
                f"{getattr(block, 'conv_fusion', None)!r}: build the model without cuEquivariance and OpenEquivariance"
            )
        swaps.append((f"{name}.conv_tp", block, from_e3nn(block.conv_tp, label=name)))
    if not swaps and not _blocks(model, InteractionBlock):
        raise UnsupportedError(f"expected interaction blocks with a conv_tp, found none in {type(model)}")
    return swaps


def swap(block: Any, problem: TPProblem) -> None:
    """Replace the `conv_tp` of a block by a `Convolution`."""
    block.conv_tp.__class__ = Convolution
    block.conv_tp.fused = TensorProductConv(problem)
    block.conv_fusion = "trnqc"


def undo(model: nn.Module) -> list[str]:
    """Restore e3nn's `conv_tp` in all swapped blocks and return their names."""
    from mace.modules.blocks import InteractionBlock

    names = []
    for name, block in _blocks(model, InteractionBlock):
        if isinstance(block.conv_tp, Convolution):
            del block.conv_tp.fused
            block.conv_tp.__class__ = o3.TensorProduct
            del block.conv_fusion
            names.append(f"{name}.conv_tp")
    return names


def _blocks(model: nn.Module, kind: type) -> list[tuple[str, Any]]:
    return [(name, block) for name, block in model.named_modules() if isinstance(block, kind)]
