"""Tensor products and their convolutions over a graph as PyTorch modules.

They hold a problem, and its weights where it has `internal_weights`; otherwise weights are an operand. Every tensor is
checked in the operators (operators.py), which also say what is computed under autocast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from trnqc.cg.problem.irreps import Irreps
from trnqc.cg.problem.problem import Instruction, TPProblem
from trnqc.cg.problem.text import text_of
from trnqc.cg.torch.operators import BATCH, CONVOLUTION
from trnqc.errors import EdgeIndexError, OperandError, UnsupportedError, UnsupportedPrecision

# Number of TPProblem's arguments after the first up to `internal_weights`.
_INTERNAL = 9


class _Product(nn.Module):
    """What both modules are: a problem; pickled with it, so that a loaded module builds its kernels when called.

    torch_op, use_opaque: OpenEquivariance's choices for its own code, with its defaults.
    """

    def __init__(self, problem: TPProblem, torch_op: bool = True, use_opaque: bool = False) -> None:
        super().__init__()
        if not isinstance(problem, TPProblem):
            raise OperandError(f"expected a TPProblem, found {type(problem).__name__}: from_e3nn makes one of e3nn's")
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

    @property
    def weight_numel(self) -> int:
        """Weights of an edge, or of all where they are shared."""
        return self.problem.weight_numel

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """Those of the problem."""
        return self.problem.instructions

    @property
    def shared_weights(self) -> bool:
        """Whether all rows have the same weights."""
        return self.problem.shared_weights

    @property
    def internal_weights(self) -> bool:
        """Whether the module holds its weights, as the parameter `weight`."""
        return self.problem.internal_weights

    def weight_view_for_instruction(self, instruction: int, weight: Tensor | None = None) -> Tensor:
        """The weights of one path, in its shape after the leading dimensions; a view of `weight` or of the module's.

        Raises OperandError for a path that has none.
        """
        path = self.instructions[instruction]
        if not path.has_weight:
            raise OperandError(f"expected an instruction with weights, found instruction {instruction}: {path}")
        w = self._weights(weight, None)
        return w[..., path.weight_slice].view(*w.shape[:-1], *path.path_shape)

    def weight_views(self, weight: Tensor | None = None, yield_instruction: bool = False) -> Iterator[Any]:
        """The views of all paths with weights; with `yield_instruction` as (number, instruction, view)."""
        for n, path in enumerate(self.instructions):
            if path.has_weight:
                view = self.weight_view_for_instruction(n, weight)
                yield (n, path, view) if yield_instruction else view

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
        done = super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.problem.dtype is not None:
            wanted = str(fn(torch.empty(0, dtype=getattr(torch, self.problem.dtype))).dtype).removeprefix("torch.")
            if wanted not in ("float32", "float64"):
                raise UnsupportedPrecision(f"expected float32 or float64, found {wanted}; autocast takes half floats")
            if wanted != self.problem.dtype:
                self._set(self.problem.changed(dtype=wanted))
        return done

    def _weights(self, weights: Any, like: Tensor | None) -> Tensor:
        """The operand, one tensor a path joined; else the module's own, or none at all for a problem without."""
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


class TensorProduct(_Product):
    """z = x ⊗ y with weights, row by row; differentiable in x, y and the weights to any order.

    Parameters
    ----------
    problem : TPProblem
        Or, in its place, the arguments of e3nn's ``o3.TensorProduct``, with internal weights as e3nn has them.

    Raises
    ------
    OperandError, UnsupportedPrecision
    CompilerError
        Where the kernels cannot be built, at the first call.
    """

    def __init__(
        self, problem: Any, *arguments: Any, torch_op: bool = True, use_opaque: bool = False, **options: Any
    ) -> None:
        if arguments or options:
            if len(arguments) < _INTERNAL:
                options = {"internal_weights": None, **options}
            problem = TPProblem(problem, *arguments, **options)
        super().__init__(problem, torch_op, use_opaque)
        if not self.internal_weights:
            # As in e3nn, there is always a `weight`.
            self.register_buffer("weight", torch.empty(0), persistent=False)

    def forward(self, x: Tensor, y: Tensor, weight: Tensor | Sequence[Tensor] | None = None) -> Tensor:
        """The product.

        Parameters
        ----------
        x : Tensor
            [..., d1]; the leading dimensions of all operands are broadcast.
        y : Tensor
            [..., d2]
        weight : Tensor or sequence of Tensor, optional
            [..., weight_numel], or [weight_numel] if shared, or one tensor for each path that has weights, in its
            shape. To be left out where the problem has none, or where they are internal.

        Returns
        -------
        Tensor
            z [..., d3]
        """
        _check_tensors(x, y)
        w = self._weights(weight, y)
        if x.dim() == y.dim() == 2 and x.shape[0] == y.shape[0] and (w.dim() == 1 or w.shape[0] == x.shape[0]):
            return BATCH.apply("forward", x, y, w, self._text)
        own = not self.problem.shared_weights
        lead = _common([x, y, *[w] * own])
        rows = [t.expand(*lead, t.shape[-1]).reshape(prod(lead), t.shape[-1]) for t in (x, y, *[w] * own)]
        z = BATCH.apply("forward", *rows, *[] if own else [w], self._text)
        return z.reshape(*lead, z.shape[-1])

    def right(self, y: Tensor, weight: Tensor | Sequence[Tensor] | None = None) -> Tensor:
        """The matrix [..., d1, d3] of the product with y, as e3nn's method: ``x @ right(y)`` is the product."""
        w, x = self._weights(weight, y), torch.eye(self._dims[0], dtype=y.dtype, device=y.device)
        return self(x, y[..., None, :], w if self.problem.shared_weights else w[..., None, :])


def _check_tensors(x: Any, y: Any) -> None:
    """Raise OperandError for an operand that is no tensor; the operators check what the tensors are."""
    for name, operand in (("x", x), ("y", y)):
        if not isinstance(operand, Tensor) or operand.is_nested:
            found = "a nested tensor" if isinstance(operand, Tensor) else type(operand).__name__
            raise OperandError(f"{name}: expected a dense torch.Tensor, found {found}")


def _common(tensors: Sequence[Tensor]) -> torch.Size:
    """The leading dimensions of the operands, broadcast. Raises OperandError."""
    try:
        if all(tensor.dim() for tensor in tensors):
            return torch.broadcast_shapes(*(tensor.shape[:-1] for tensor in tensors))
    except RuntimeError:
        pass
    found = ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in zip("xyw", tensors))
    raise OperandError(f"expected leading dimensions that can be broadcast; found {found}")


class TensorProductConv(_Product):
    """z[n] = sum over edges e that n receives of x[sender of e] ⊗ y[e]; messages are never held all at once.

    deterministic: equal bits at every run; on a CPU that is always so, for any number of threads. On a GPU sums are
    otherwise added up by hardware, in any order. kahan: sums over edges are compensated, which needs a fixed order and
    paths of mode uvu alone. torch_op, use_opaque: OpenEquivariance's choices for its own code, with its defaults.
    """

    def __init__(
        self,
        problem: TPProblem,
        deterministic: bool = False,
        kahan: bool = False,
        torch_op: bool = True,
        use_opaque: bool = False,
    ) -> None:
        super().__init__(problem, torch_op, use_opaque)
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
        _check_tensors(x, y)
        w = self._weights(weights, y)
        for name, index in (("rows", rows), ("cols", cols)):
            if not isinstance(index, Tensor):
                raise EdgeIndexError(f"{name}: expected a torch.Tensor of int64, found {type(index).__name__}")
        return CONVOLUTION.apply("forward", x, y, w, rows, cols, self._text, self.deterministic, self.kahan)
