"""The common part of the PyTorch modules of tensor products: the problem, its weights, and conversion of dtypes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from trnqc.cg.problem.instructions import PathInstruction
from trnqc.cg.problem.irreps import Irreps
from trnqc.cg.problem.problem import TPProblem
from trnqc.cg.problem.text import text_of
from trnqc.errors import OperandError, UnsupportedError, UnsupportedPrecision


class ProductModule(nn.Module):
    """Base class of both modules.

    Only the problem and weights are pickled; kernels are built at the first call. Of OpenEquivariance's `torch_op` and
    `use_opaque`, only the defaults, True and False, are supported.
    """

    # TorchScript compiles the forward function only.
    __jit_unused_properties__ = (
        *("weight_numel", "instructions", "shared_weights", "internal_weights"),
        *("irreps_in1", "irreps_in2", "irreps_out"),
    )

    def __init__(self, problem: TPProblem, torch_op: bool = True, use_opaque: bool = False) -> None:
        super().__init__()
        if not isinstance(problem, TPProblem):
            raise OperandError(f"expected a TPProblem, found {type(problem).__name__}; from_e3nn converts one of e3nn")
        if not torch_op or use_opaque:
            raise UnsupportedError(
                f"expected torch_op=True and use_opaque=False, found {torch_op} and {use_opaque}: products are "
                "operators of torch.library"
            )
        self._set(problem)
        if problem.internal_weights:
            dtype = getattr(torch, problem.dtype) if problem.dtype else None
            self.weight = nn.Parameter(torch.randn(problem.weight_numel, dtype=dtype))

    def _set(self, problem: TPProblem) -> None:
        self.problem = problem
        self._text = text_of(problem)
        # Cached properties of the problem take a lock, which torch.compile cannot trace.
        self._dims, self._numel = problem.dims, problem.weight_numel
        self._internal, self._shared = problem.internal_weights, problem.shared_weights

    @property
    def weight_numel(self) -> int:
        """Number of weights of one row or edge, or of all together if they are shared."""
        return self.problem.weight_numel

    @property
    def instructions(self) -> tuple[PathInstruction, ...]:
        """The paths of the problem."""
        return self.problem.instructions

    @property
    def shared_weights(self) -> bool:
        """Whether all rows have the same weights."""
        return self.problem.shared_weights

    @property
    def internal_weights(self) -> bool:
        """Whether the module holds its weights as the parameter `weight`."""
        return self.problem.internal_weights

    def weight_view_for_instruction(self, instruction: int, weight: Tensor | None = None) -> Tensor:
        """Return the weights of one path as a view.

        Parameters
        ----------
        instruction : int
            Number of the path.
        weight : Tensor, optional
            Weights [..., weight_numel], by default those of the module.

        Returns
        -------
        Tensor
            Weights [..., *path_shape].

        Raises
        ------
        OperandError
            For a path without weights.
        """
        path = self.instructions[instruction]
        if not path.has_weight:
            raise OperandError(f"expected an instruction with weights, found instruction {instruction}: {path}")
        w = self._weights(weight, None)
        return w[..., path.weight_slice].view(*w.shape[:-1], *path.path_shape)

    def weight_views(self, weight: Tensor | None = None, yield_instruction: bool = False) -> Iterator[Any]:
        """Iterate over the views of all paths with weights, as (number, path, view) if `yield_instruction` is True."""
        for n, path in enumerate(self.instructions):
            if path.has_weight:
                view = self.weight_view_for_instruction(n, weight)
                yield (n, path, view) if yield_instruction else view

    @property
    def irreps_in1(self) -> Irreps:
        """The irreps of x."""
        return self.problem.irreps_in1

    @property
    def irreps_in2(self) -> Irreps:
        """The irreps of y."""
        return self.problem.irreps_in2

    @property
    def irreps_out(self) -> Irreps:
        """The irreps of z."""
        return self.problem.irreps_out

    def reorder_weights_from_e3nn(self, weights: Tensor, has_batch_dim: bool = True) -> Tensor:
        """Convert weights from e3nn's order; both orders are the same, so the weights are returned unchanged.

        Parameters
        ----------
        weights : Tensor
            [..., weight_numel], or [weight_numel] if `has_batch_dim` is False.
        has_batch_dim : bool, optional
            Whether the weights have leading dimensions.

        Raises
        ------
        OperandError
            For weights of another shape.
        """
        if weights.shape[-1:] != (self.weight_numel,) or (weights.dim() == 1) == has_batch_dim:
            expected = f"[..., {self.weight_numel}]" if has_batch_dim else f"[{self.weight_numel}]"
            raise OperandError(f"weights: expected shape {expected}, found {list(weights.shape)}")
        return weights

    def reorder_weights_to_e3nn(self, weights: Tensor, has_batch_dim: bool = True) -> Tensor:
        """The inverse of `reorder_weights_from_e3nn`."""
        return self.reorder_weights_from_e3nn(weights, has_batch_dim)

    def extra_repr(self) -> str:
        return str(self.problem)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        """Convert the module, as by ``.to(dtype)`` or ``.double()``, and change the dtype of a problem that has one."""
        done = super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.problem.dtype is not None:
            wanted = str(fn(torch.empty(0, dtype=getattr(torch, self.problem.dtype))).dtype).removeprefix("torch.")
            if wanted not in ("float32", "float64"):
                raise UnsupportedPrecision(f"expected float32 or float64, found {wanted}; autocast takes half floats")
            if wanted != self.problem.dtype:
                self._set(self.problem.changed(dtype=wanted))
        return done

    def _scripted_weights(self, weights: Tensor | None, like: Tensor) -> Tensor:
        """Return the weights of the operand or of the module in TorchScript; the operator checks them."""
        if weights is not None:
            return weights
        # TorchScript evaluates hasattr when it compiles, and skips the branch of modules that have no such tensor.
        if hasattr(self, "weight"):  # noqa: SIM102
            if self._internal:
                return self.weight
        return like.new_empty([0] if self._shared else [like.shape[0], 0])

    @torch.jit.unused
    def _weights(self, weights: Any, like: Tensor | None) -> Tensor:
        """Return the weights of the operand, joined if given by path; the module's weights if it is None."""
        if isinstance(weights, Tensor):
            return weights
        if isinstance(weights, list | tuple):
            return self._joined(weights)
        if weights is not None:
            raise OperandError(f"w: expected a torch.Tensor, found {type(weights).__name__}")
        if self.problem.internal_weights:
            return self.weight
        if self._numel or like is None:
            raise OperandError(f"w: expected {self._numel} weights, found none")
        return like.new_empty((0,) if self.problem.shared_weights else (*like.shape[:-1], 0))

    def _joined(self, weights: Sequence[Tensor]) -> Tensor:
        paths = [path for path in self.instructions if path.has_weight]
        shapes = [tuple(w.shape) for w in weights]
        cuts = [w.dim() - len(path.path_shape) for w, path in zip(weights, paths)]
        if len(weights) != len(paths) or any(s[max(0, c) :] != p.path_shape for s, c, p in zip(shapes, cuts, paths)):
            raise OperandError(f"w: expected shapes [..., *{[path.path_shape for path in paths]}], found {shapes}")
        return torch.cat([w.flatten(cut) for w, cut in zip(weights, cuts)], dim=-1)
