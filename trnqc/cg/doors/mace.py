"""MACE: the `conv_tp` of interaction blocks and the `symmetric_contractions` of product blocks.

An interaction block with the attribute `conv_fusion` passes the edges to its `conv_tp`. Trainium has no kernel of
symmetric contractions, so that operands on other devices than CPUs and GPUs are contracted by MACE's own code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from e3nn import o3
from e3nn.util.codegen import CodeGenMixin
from e3nn.util.jit import compile_mode
from mace.modules.blocks import EquivariantProductBasisBlock, InteractionBlock
from mace.modules.symmetric_contraction import SymmetricContraction
from torch import Tensor, nn

from trnqc.cg.problem.contraction import contraction_problem, folding_of
from trnqc.cg.problem.problem import TPProblem, from_e3nn
from trnqc.cg.torch.contraction import PolynomialContraction, element_numbers
from trnqc.cg.torch.modules import TensorProductConv
from trnqc.errors import UnsupportedError

# What replaces a layer: the problem of a convolution, or a contraction.
Replacement = TPProblem | PolynomialContraction


class MaceConvolution(o3.TensorProduct):
    """The `conv_tp` of a block, which includes the sum over edges."""

    def forward(self, x: Tensor, y: Tensor, weights: Tensor, edge_index: Tensor) -> Tensor:
        """Return the messages [nodes, d3]. edge_index is int64 [2, edges] and contains senders and receivers."""
        return self.fused(x, y, weights, edge_index[1], edge_index[0])


@compile_mode("script")
class MaceContraction(CodeGenMixin, nn.Module):
    """The `symmetric_contractions` of a block.

    It is no subclass of MACE's class, whose instances `mace.tools.compile.simplify` replaces by what it traces.
    """

    # TorchScript cannot read annotations that are text.
    if TYPE_CHECKING:
        fused: PolynomialContraction
        contractions: Any

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return B of x [nodes, channels, components] and of the one-hot elements y [nodes, elements]."""
        if not (x.is_cpu or x.is_cuda):
            return torch.cat([contraction(x, y) for contraction in self.contractions], dim=-1)
        return self.fused(x, self._elements(y), self._weights())

    def _elements(self, y: Tensor) -> Tensor:
        return torch.argmax(y, dim=1) if torch.jit.is_scripting() else element_numbers(y)

    def _weights(self) -> Tensor:
        """Return the weights [elements, weights, channels]; MACE's are by descending degree for each output."""
        ordered: list[Tensor] = []
        for contraction in self.contractions:
            own = [contraction.weights_max]
            for weights in contraction.weights:
                own.append(weights)
            own.reverse()
            ordered.extend(own)
        return torch.cat(ordered, dim=1)


def prepare(model: nn.Module) -> list[tuple[str, Any, Replacement]]:
    """Return (name, block, replacement) of each convolution and contraction that is not swapped yet."""
    blocks = _blocks(model, InteractionBlock)
    if not blocks:
        raise UnsupportedError(f"expected interaction blocks with a conv_tp, found none in {type(model)}")
    products = _blocks(model, EquivariantProductBasisBlock)
    return [
        *((f"{name}.conv_tp", block, _convolution(name, block)) for name, block in blocks if not _is_swapped(block)),
        *(
            (f"{name}.symmetric_contractions", block, _contraction(name, block.symmetric_contractions))
            for name, block in products
            if not isinstance(block.symmetric_contractions, MaceContraction)
        ),
    ]


def _is_swapped(block: Any) -> bool:
    return isinstance(block.conv_tp, MaceConvolution)


def _convolution(name: str, block: Any) -> TPProblem:
    if type(block.conv_tp) is not o3.TensorProduct or hasattr(block, "conv_fusion"):
        raise UnsupportedError(
            f"{name}.conv_tp: expected e3nn's TensorProduct, found {type(block.conv_tp)} with conv_fusion = "
            f"{getattr(block, 'conv_fusion', None)!r}: build the model without cuEquivariance and OpenEquivariance"
        )
    return from_e3nn(block.conv_tp, label=name)


def _contraction(name: str, layer: Any) -> PolynomialContraction:
    if type(layer) is not SymmetricContraction:
        raise UnsupportedError(
            f"{name}.symmetric_contractions: expected MACE's SymmetricContraction, found {type(layer)}: build the "
            "model without cuEquivariance"
        )
    problem = contraction_problem(layer.irreps_in, layer.irreps_out, [c.correlation for c in layer.contractions])
    # The coupling tensors of the model itself: they may be rounded to single precision, or in a reduced basis.
    tensors = [c.U_tensors(n).detach().cpu().numpy() for c in layer.contractions for n in range(1, c.correlation + 1)]
    return PolynomialContraction(problem, folding_of(problem, tensors)).to(layer.contractions[0].weights_max)


def swap(block: Any, replacement: Replacement) -> None:
    """Replace the `conv_tp` of a block by MaceConvolution, or its `symmetric_contractions` by MaceContraction."""
    if isinstance(replacement, TPProblem):
        block.conv_tp.__class__ = MaceConvolution
        block.conv_tp.fused = TensorProductConv(replacement)
        block.conv_fusion = "trnqc"
    else:
        block.symmetric_contractions.__class__ = MaceContraction
        block.symmetric_contractions.fused = replacement


def undo(model: nn.Module) -> list[str]:
    """Restore the layers of e3nn and MACE in all swapped blocks and return their names."""
    names = []
    for name, block in _blocks(model, InteractionBlock):
        if _is_swapped(block):
            del block.conv_tp.fused
            block.conv_tp.__class__ = o3.TensorProduct
            del block.conv_fusion
            names.append(f"{name}.conv_tp")
    for name, block in _blocks(model, EquivariantProductBasisBlock):
        if isinstance(block.symmetric_contractions, MaceContraction):
            del block.symmetric_contractions.fused
            block.symmetric_contractions.__class__ = SymmetricContraction
            names.append(f"{name}.symmetric_contractions")
    return names


def _blocks(model: nn.Module, kind: type) -> list[tuple[str, Any]]:
    return [(name, block) for name, block in model.named_modules() if isinstance(block, kind)]
