"""Symmetric contractions as PyTorch modules: coefficients of polynomials from the weights, then the operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from trnqc.cg.problem.contraction import ContractionProblem, contraction_problem, contraction_text
from trnqc.cg.torch.contraction_operators import CONTRACTION
from trnqc.cg.torch.storage import widened
from trnqc.cg.torch.transforms import traced
from trnqc.errors import OperandError, UnsupportedError


class PolynomialContraction(nn.Module):
    """B[n, c, M] = sum_t C[element of n, t, c] m_t(x[n, c]) with C = S W, for passed weights W.

    The folding S is [terms, weights], by default that of the problem.
    """

    # TorchScript cannot read annotations that are text.
    if TYPE_CHECKING:
        folding: Tensor

    def __init__(self, problem: ContractionProblem, folding: np.ndarray | None = None) -> None:
        super().__init__()
        self.problem = problem
        self._text, self._channels, self._dims = contraction_text(problem), problem.channels, problem.dims
        self._widths = [slot.ir.dim for slot in problem.irreps_out]
        # In double precision; `folding` has the dtype and the device of the weights.
        self._exact = torch.from_numpy(np.array(problem.folding if folding is None else folding))
        self.register_buffer("folding", self._exact.to(torch.get_default_dtype()), persistent=False)

    def forward(self, x: Tensor, elements: Tensor, weight: Tensor) -> Tensor:
        """Return B [nodes, dimension of irreps_out]; in a slot, the component is the fastest index.

        The features x are [nodes, channels, components], elements int64 [nodes], weight [elements, weights, channels].
        """
        return self._scripted(x, elements, weight) if torch.jit.is_scripting() else self._called(x, elements, weight)

    def _scripted(self, x: Tensor, elements: Tensor, weight: Tensor) -> Tensor:
        """Compute the contraction in TorchScript, whose operators check the operands."""
        if elements.is_cuda:
            c, numbers = torch.matmul(self.folding, weight), elements
        else:
            present, numbers = torch.unique(elements, return_inverse=True)
            c = torch.matmul(self.folding, weight[present])
        x = x.transpose(1, 2)
        along = x.new_empty([0, x.size(0), x.size(1), x.size(2)])
        return self._joined(torch.ops.trnqc.cg_contraction_value(c, x, along, numbers, self._text))

    @torch.jit.unused
    def _called(self, x: Tensor, elements: Tensor, weight: Tensor) -> Tensor:
        self._check(x, weight)
        if not traced() and not x.is_cuda:
            # Only the coefficients of the elements that occur are computed. For a GPU the host would have to wait.
            present, elements = torch.unique(elements, return_inverse=True)
            self._check_elements(present, len(weight))
            weight = weight[present]
        # The coefficients are few. They are never rounded to half precision, under autocast neither.
        with torch.autocast(x.device.type, enabled=False):
            weight = widened(weight)
            c = torch.matmul(self.folding.to(weight.dtype), weight)
        x = x.transpose(1, 2)
        b: Tensor = CONTRACTION.apply("value", c, x, x.new_empty(0, *x.shape), elements, self._text)
        return self._joined(b)

    def _joined(self, b: Tensor) -> Tensor:
        """Return B [nodes, dimension of irreps_out] from B [nodes, components, channels]."""
        return torch.cat([part.transpose(1, 2).flatten(1) for part in b.split(self._widths, 1)], dim=-1)

    @torch.jit.unused
    def _check(self, x: Tensor, weight: Tensor) -> None:
        if x.dim() != 3 or x.shape[1:] != (self._channels, self._dims[0]):
            raise OperandError(f"x: expected [nodes, {self._channels}, {self._dims[0]}], found {list(x.shape)}")
        if weight.dim() != 3 or weight.shape[1:] != (self.folding.shape[1], self._channels):
            raise OperandError(
                f"weight: expected [elements, {self.folding.shape[1]}, {self._channels}], found {list(weight.shape)}"
            )

    @staticmethod
    def _check_elements(present: Tensor, count: int) -> None:
        wrong = present[(present < 0) | (present >= count)]
        if len(wrong):
            raise OperandError(f"elements: expected numbers from 0 to {count - 1}, found {int(wrong[0])}")

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        """Convert the module, as by ``.to(dtype)``, without rounding twice."""
        done = super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.folding = self._exact.to(widened(self.folding))
        return done


class SymmetricContraction(PolynomialContraction):
    """Symmetric contraction of the channels of nodes with weights for each element, like that of MACE.

    Parameters
    ----------
    irreps_in, irreps_out
        The irreps of x and of the results, with equal multiplicities.
    correlation : int or sequence of int
        The largest number of factors, for all slots of the results or for each.
    irrep_normalization : {"component"}, optional
    path_normalization : {"element"}, optional
        MACE ignores both and always normalises in this way, so other values raise an error.
    internal_weights : bool, optional
        Whether the module holds the weights as the parameter `weight` (the default).
    shared_weights : bool, optional
        Accepted for compatibility: the weights are those of an element, not of a node.
    num_elements : int, optional
        The number of elements, 1 by default.

    Raises
    ------
    IrrepsError
        If slots have different multiplicities.
    InputError
        If there is not one degree of at least 1 for each slot of the results.
    UnsupportedError
        For another normalisation.

    Notes
    -----
    With the coupling tensors U of MACE (Batatia et al. 2022, arXiv:2206.07697, eq. 10 and 11),

        B[n, c, M] = sum_v sum_k W[element of n, v, k, c] sum_{i1..iv} U_v[M, i1..iv, k] x[n, c, i1] ... x[n, c, iv].

    `weight` has the shape [num_elements, weights, channels]. The weights of a channel are ordered by output, then by
    degree from 1 on, then by path.
    """

    if TYPE_CHECKING:
        weight: Tensor

    # TorchScript compiles the forward function only.
    __jit_unused_properties__ = ("irreps_in", "irreps_out", "weight_numel")

    def __init__(
        self,
        irreps_in: Any,
        irreps_out: Any,
        correlation: int | Sequence[int],
        irrep_normalization: str | None = "component",
        path_normalization: str | None = "element",
        internal_weights: bool | None = None,
        shared_weights: bool | None = None,
        num_elements: int | None = None,
    ) -> None:
        if irrep_normalization not in (None, "component") or path_normalization not in (None, "element"):
            raise UnsupportedError(
                "expected irrep_normalization = 'component' and path_normalization = 'element', found "
                f"{irrep_normalization!r} and {path_normalization!r}"
            )
        super().__init__(contraction_problem(irreps_in, irreps_out, correlation))
        self.internal_weights, self.num_elements = internal_weights is not False, num_elements or 1
        self._slots = [slot.dim for slot in self.problem.irreps_in]
        if self.internal_weights:
            scales = [np.full(weights.count, 1 / weights.count) for weights in self.problem.weights]
            scale = torch.tensor(np.concatenate(scales), dtype=torch.get_default_dtype())
            normal = torch.randn(self.num_elements, self.problem.weight_numel, self._channels)
            self.weight = nn.Parameter(normal * scale[:, None])

    @property
    def irreps_in(self) -> Any:
        """The irreps of x."""
        return self.problem.irreps_in

    @property
    def irreps_out(self) -> Any:
        """The irreps of the results."""
        return self.problem.irreps_out

    @property
    def weight_numel(self) -> int:
        """The number of weights of a channel for one element."""
        return self.problem.weight_numel

    def forward(self, x: Tensor, elements: Tensor, weight: Tensor | None = None) -> Tensor:
        """Compute the contraction.

        Parameters
        ----------
        x : Tensor
            [nodes, channels, components], with the components of all slots one after the other, or
            [nodes, dimension of irreps_in].
        elements : Tensor
            Numbers of the elements of the nodes, an integer tensor [nodes], or one-hot vectors [nodes, num_elements].
        weight : Tensor, optional
            [num_elements, weights, channels]; omitted if the module holds its weights.

        Returns
        -------
        Tensor
            [nodes, dimension of irreps_out]

        Raises
        ------
        OperandError
            For another shape or dtype, an element without weights, or vectors that are not one-hot.
        """
        if torch.jit.is_scripting():
            numbers = elements if elements.dim() == 1 else torch.argmax(elements, dim=1)
            return self._scripted(self._by_channel(x), numbers, self._scripted_weight(weight))
        return self._called(self._by_channel(x), element_numbers(elements), self._weight(weight))

    def _scripted_weight(self, weight: Tensor | None) -> Tensor:
        if weight is not None:
            return weight
        # TorchScript evaluates hasattr when it compiles, and skips the branch of modules that have no such tensor.
        if hasattr(self, "weight"):
            return self.weight
        raise RuntimeError("weight: expected a tensor, found none")

    @torch.jit.unused
    def _weight(self, weight: Tensor | None) -> Tensor:
        if weight is None and not self.internal_weights:
            raise OperandError(
                f"weight: expected [{self.num_elements}, {self.weight_numel}, {self._channels}], found none"
            )
        return self.weight if weight is None else weight

    def _by_channel(self, x: Tensor) -> Tensor:
        if x.dim() != 2 or x.shape[1] != sum(self._slots):
            return x
        slots = x.split(self._slots, dim=1)
        return torch.cat([part.reshape(x.shape[0], self._channels, -1) for part in slots], dim=-1)

    def extra_repr(self) -> str:
        return f"{self.problem}, elements={self.num_elements}"


def element_numbers(elements: Tensor) -> Tensor:
    """Return the numbers of the elements, int64 [nodes], from numbers or from one-hot vectors. Raises OperandError."""
    if not elements.is_floating_point() and elements.dim() == 1:
        return elements.to(torch.int64)
    if elements.dim() != 2:
        raise OperandError(f"elements: expected integers [nodes] or one-hot vectors, found {list(elements.shape)}")
    if not traced():
        one_hot = (((elements == 1).sum(dim=1) == 1) & ((elements != 0).sum(dim=1) == 1)).all()
        if elements.is_cuda:
            torch._assert_async(one_hot, "elements: expected one-hot vectors")  # The host does not wait.
        elif not bool(one_hot):
            raise OperandError("elements: expected one-hot vectors, found vectors with other numbers")
    return elements.argmax(dim=1)
