"""Tensor products and their convolutions over a graph as PyTorch modules.

The operators (operators.py) check the tensors and define the behaviour under autocast.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from trnqc.cg.problem.problem import TPProblem
from trnqc.cg.torch.operators import BATCH, CONVOLUTION, NKI_CONVOLUTION
from trnqc.cg.torch.product_module import ProductModule
from trnqc.errors import EdgeIndexError, InputError, OperandError, UnsupportedError

# Number of positional arguments of TPProblem after the first, up to and including `internal_weights`.
_INTERNAL = 9
# Device types of tensors on Trainium, natively and by PyTorch/XLA.
TRAINIUM = ("neuron", "xla")


class TensorProduct(ProductModule):
    """z = x ⊗ y with weights, row by row; differentiable in x, y and the weights to any order.

    Parameters
    ----------
    problem : TPProblem
        The tensor product. In its place, the arguments of e3nn's ``o3.TensorProduct`` can be passed, with e3nn's
        default for internal weights.
    torch_op, use_opaque : bool, optional
        Arguments of OpenEquivariance, accepted for compatibility. Only its defaults, True and False, are supported.

    Raises
    ------
    OperandError, UnsupportedPrecision
    CompilerError
        If the kernels cannot be built, at the first call.
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
            # As in e3nn, a module without internal weights has an empty `weight`.
            self.register_buffer("weight", torch.empty(0), persistent=False)

    def forward(self, x: Tensor, y: Tensor, weight: Tensor | Sequence[Tensor] | None = None) -> Tensor:
        """Compute the product.

        Parameters
        ----------
        x : Tensor
            [..., d1]; the leading dimensions of all operands are broadcast.
        y : Tensor
            [..., d2]
        weight : Tensor or sequence of Tensor, optional
            [..., weight_numel], or [weight_numel] if shared, or one tensor of the path's shape for each path that has
            weights. Omitted if the problem has no weights or internal weights.

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
        """Return the matrix [..., d1, d3] for which ``x @ right(y)`` is the product, like the method of e3nn."""
        w, x = self._weights(weight, y), torch.eye(self._dims[0], dtype=y.dtype, device=y.device)
        return self(x, y[..., None, :], w if self.problem.shared_weights else w[..., None, :])


def _check_tensors(x: Any, y: Any) -> None:
    """Raise OperandError for an operand that is no dense tensor; the operators check types and shapes."""
    for name, operand in (("x", x), ("y", y)):
        if not isinstance(operand, Tensor) or operand.is_nested:
            kind = "a nested tensor" if isinstance(operand, Tensor) else type(operand).__name__
            raise OperandError(f"{name}: expected a dense torch.Tensor, found {kind}")


def _common(tensors: Sequence[Tensor]) -> torch.Size:
    """Return the broadcast leading dimensions of the operands. Raises OperandError."""
    try:
        if all(tensor.dim() for tensor in tensors):
            return torch.broadcast_shapes(*(tensor.shape[:-1] for tensor in tensors))
    except RuntimeError:
        pass
    shapes = ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in zip("xyw", tensors))
    raise OperandError(f"expected leading dimensions that can be broadcast; found {shapes}")


class TensorProductConv(ProductModule):
    """Graph convolution: z[n] is the sum of x[sender of e] ⊗ y[e] over the edges e that node n receives.

    The messages of the edges are never all stored at once.

    Parameters
    ----------
    problem : TPProblem
        The tensor product.
    deterministic : bool, optional
        Whether results are bitwise reproducible. On a CPU they always are, for any number of threads. On a GPU, sums
        over edges otherwise use atomic additions, whose order varies from run to run.
    kahan : bool, optional
        Whether sums over edges are compensated (Kahan). This needs `deterministic` and paths of mode uvu only.
    torch_op, use_opaque : bool, optional
        Arguments of OpenEquivariance, accepted for compatibility. Only its defaults, True and False, are supported.
    backend : {"auto", "simulator", "neuron"}, optional
        What computes the convolution: "auto" is the device of the operands; the others are NKI kernels on the simulator
        or on Trainium, for paths of mode uvu in float32. Operands on a Trainium device stay there.

    Raises
    ------
    OperandError
        If `problem` is no TPProblem.
    InputError
        For another backend.
    UnsupportedError
        For an unsupported combination of options.
    """

    def __init__(
        self,
        problem: TPProblem,
        deterministic: bool = False,
        kahan: bool = False,
        torch_op: bool = True,
        use_opaque: bool = False,
        backend: str = "auto",
    ) -> None:
        super().__init__(problem, torch_op, use_opaque)
        if backend not in ("auto", "simulator", "neuron"):
            raise InputError(f"backend: expected auto, simulator or neuron; found {backend!r}")
        if kahan and backend != "auto":
            raise UnsupportedError(f"kahan: expected backend='auto' with it, found {backend!r}")
        if kahan and not deterministic:
            raise UnsupportedError("kahan: expected deterministic=True with it, found False")
        if kahan and (others := {i.connection_mode for i in self.problem.instructions} - {"uvu"}):
            raise UnsupportedError(f"kahan: expected paths of mode uvu, found {', '.join(sorted(others))} as well")
        self.deterministic, self.kahan, self.backend = deterministic, kahan, backend

    def forward(
        self,
        x: Tensor,
        y: Tensor,
        weights: Tensor | None,
        rows: Tensor,
        cols: Tensor,
        sender_perm: Tensor | None = None,
    ) -> Tensor:
        """Compute the convolution.

        Parameters
        ----------
        x : Tensor
            [nodes, d1]
        y : Tensor
            [edges, d2]
        weights : Tensor, optional
            [edges, weight_numel], or [weight_numel] if shared. None if the problem has no weights or internal weights.
        rows, cols : Tensor
            int64 [edges], the receiver and the sender of each edge, in any order.
        sender_perm : Tensor, optional
            Ignored; accepted for compatibility with OpenEquivariance. The order by sender is computed here and cached.

        Returns
        -------
        Tensor
            z [nodes, d3]

        Raises
        ------
        EdgeIndexError
            For edges of another type, or node numbers out of range.
        """
        if torch.jit.is_scripting():
            assert self.backend == "auto", "TorchScript runs convolutions of backend='auto' only"
            w = self._scripted_weights(weights, y)
            return torch.ops.trnqc.cg_conv_forward(x, y, w, rows, cols, self._text, self.deterministic, self.kahan)
        return self._convolve(x, y, weights, rows, cols)

    @torch.jit.unused
    def _convolve(self, x: Tensor, y: Tensor, weights: Any, rows: Tensor, cols: Tensor) -> Tensor:
        _check_tensors(x, y)
        w = self._weights(weights, y)
        for name, index in (("rows", rows), ("cols", cols)):
            if not isinstance(index, Tensor):
                raise EdgeIndexError(f"{name}: expected a torch.Tensor of int64, found {type(index).__name__}")
        backend = "neuron" if self.backend == "auto" and x.device.type in TRAINIUM else self.backend
        if backend != "auto":
            if self.kahan:
                raise UnsupportedError(f"kahan: expected operands on a CPU or a GPU with it, found {x.device}")
            return NKI_CONVOLUTION.apply("forward", x, y, w, rows, cols, self._text, backend)
        return CONVOLUTION.apply("forward", x, y, w, rows, cols, self._text, self.deterministic, self.kahan)
