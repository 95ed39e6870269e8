"""Tensor products and their convolutions over a graph as PyTorch modules.

They hold a problem and no weights: weights are an operand, as e3nn has them with ``internal_weights=False``. Every
tensor is checked in the operators (operators.py), which also say what is computed under autocast.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from trnqc.cg.handle import text_of
from trnqc.cg.irreps import Irreps
from trnqc.cg.operators import BATCH, CONVOLUTION
from trnqc.cg.problem import TPProblem
from trnqc.errors import OperandError, UnsupportedError, UnsupportedPrecision


class _Product(nn.Module):
    """What both modules are: a problem; pickled with it, so that a loaded module builds its kernels when called."""

    def __init__(self, problem: TPProblem) -> None:
        super().__init__()
        if not isinstance(problem, TPProblem):
            raise OperandError(f"expected a TPProblem, found {type(problem).__name__}: from_e3nn makes one of e3nn's")
        self._set(problem)

    def _set(self, problem: TPProblem) -> None:
        self.problem = problem
        self._text = text_of(problem)

    @property
    def weight_numel(self) -> int:
        """Weights of an edge, or of all where they are shared."""
        return self.problem.weight_numel

    @property
    def irreps_in1(self) -> Irreps:
        """Those of x."""
        return self.problem.irreps_in1

    @property
    def irreps_in2(self) -> Irreps:
        """Those of y."""
        return self.problem.irreps_in2

    @property
    def irreps_out(self) -> Irreps:
        """Those of z."""
        return self.problem.irreps_out

    def reorder_weights_from_e3nn(self, weights: Tensor, has_batch_dim: bool = True) -> Tensor:
        """Weights of e3nn's module of the same problem in the order of this one, which is e3nn's: they are returned
        as they are, [..., weight_numel], or [weight_numel] without has_batch_dim.

        Raises OperandError for another number of weights.
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
        """``.to(dtype)``, ``.double()`` and such change the dtype of a problem that was made for one."""
        done = super()._apply(fn, recurse)
        if self.problem.dtype is not None:
            wanted = str(fn(torch.empty(0, dtype=getattr(torch, self.problem.dtype))).dtype).removeprefix("torch.")
            if wanted not in ("float32", "float64"):
                raise UnsupportedPrecision(f"expected float32 or float64, found {wanted}; autocast takes half floats")
            if wanted != self.problem.dtype:
                self._set(self.problem.changed(dtype=wanted))
        return done

    def _weights(self, weights: Tensor | None, like: Tensor) -> Tensor:
        """The operand, or no weights at all for a problem that has none."""
        if weights is not None:
            return weights
        if self.problem.weight_numel:
            raise OperandError(f"w: expected {self.problem.weight_numel} weights, found none")
        return like.new_empty((0,) if self.problem.shared_weights else (*like.shape[:-1], 0))


class TensorProduct(_Product):
    """z = x ⊗ y with weights, row by row; differentiable in x, y and the weights to any order.

    Raises OperandError and UnsupportedPrecision; CompilerError where the kernels cannot be built.
    """

    def forward(self, x: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
        """z [..., d3] of x [..., d1], y [..., d2] and weights [..., weight_numel], or [weight_numel] if shared.

        The leading dimensions are the same; weights may be left out where the problem has none.
        """
        w = self._weights(weights, y)
        if x.dim() == 2 and y.dim() == 2:
            return BATCH.apply("forward", x, y, w, self._text)
        lead = x.shape[:-1]
        own = not self.problem.shared_weights
        if x.dim() == 0 or y.shape[:-1] != lead or (own and w.shape[:-1] != lead):
            raise OperandError(
                f"expected the same leading dimensions; found x {list(x.shape)}, y {list(y.shape)}, w {list(w.shape)}"
            )
        x, y, w = (t.reshape(-1, t.shape[-1]) if t is not w or own else t for t in (x, y, w))
        return BATCH.apply("forward", x, y, w, self._text).reshape(*lead, -1)


class TensorProductConv(_Product):
    """z[n] = sum over edges e that n receives of x[sender of e] ⊗ y[e]; messages are never held all at once.

    deterministic: equal bits at every run; on a CPU that is always so, for any number of threads. On a GPU sums are
    otherwise added up by hardware, in any order. kahan: sums over edges are compensated, which needs a fixed order and
    paths of mode uvu alone.
    """

    def __init__(self, problem: TPProblem, deterministic: bool = False, kahan: bool = False) -> None:
        super().__init__(problem)
        if kahan and not deterministic:
            raise UnsupportedError("kahan: expected deterministic=True with it, found False")
        if kahan and (found := {i.connection_mode for i in self.problem.instructions} - {"uvu"}):
            raise UnsupportedError(f"kahan: expected paths of mode uvu, found {', '.join(sorted(found))} as well")
        self.deterministic, self.kahan = deterministic, kahan

    def forward(
        self,
        x: Tensor,
        y: Tensor,
        weights: Tensor | None,
        rows: Tensor,
        cols: Tensor,
        sender_perm: Tensor | None = None,
    ) -> Tensor:
        """z [nodes, d3] of x [nodes, d1], y [edges, d2] and weights [edges, weight_numel], or [weight_numel] if shared.

        rows, cols: int64 [edges], the receiver and the sender of each edge, in any order. sender_perm: taken and not
        read, for callers that sort edges themselves; the order by sender is found here and kept for equal edges.
        Raises EdgeIndexError for edges of another type or beyond the nodes.
        """
        w = self._weights(weights, y)
        return CONVOLUTION.apply("forward", x, y, w, rows, cols, self._text, self.deterministic, self.kahan)
