"""Matrix products by the operators, with derivatives of every order and mode and support for ``torch.func.vmap``.

An operator of ``torch.library`` supports reverse-mode derivatives only. Its forward-mode derivative would silently be
zero, and ``torch.func.grad`` rejects it. An autograd function supports all of them. It is used only inside a transform,
because ``torch.compile`` needs the operator.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from trnqc.errors import InputError, UnsupportedError

# Whether this thread runs `ProductFunction.forward`, which handles tangents when it calls an operator.
_inside = threading.local()
# The operators of products by name, filled when they are registered.
OPERATORS: dict[str, Any] = {}


def product(a_t: Tensor, b: Tensor, precision: str) -> Tensor:
    """Return the product [M, N] of a_t[K, M] and b[K, N], or of stacks of such matrices."""
    require_tensors(a_t, b)
    if not torch.compiler.is_compiling() and (
        torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0
    ):
        return ProductFunction.apply(a_t, b, precision)  # type: ignore[no-untyped-call]
    return _operator(a_t)(a_t, b, precision)


def _operator(a_t: Tensor) -> Callable[..., Tensor]:
    return OPERATORS["gemm" if a_t.dim() == 2 else "batched_contraction"]


def require_tensors(*tensors: Any) -> None:
    """Raise InputError unless all are real, strided tensors, the only ones that the kernels handle."""
    for x in tensors:
        if not isinstance(x, Tensor):
            raise InputError(
                f"the operators take tensors of PyTorch; found {type(x).__name__}: torch.as_tensor makes one"
            )
        if x.layout is not torch.strided or x.is_complex():
            raise InputError(f"the operators take real, strided tensors; found {x.dtype} of layout {x.layout}")


def refuse_dual_level(name: str) -> None:
    """Raise UnsupportedError if an operator is called directly at a level of dual numbers: it would drop tangents."""
    if forward_ad._current_level >= 0 and not getattr(_inside, "forward", False):
        raise UnsupportedError(
            f"the operator trnqc::{name} has no forward-mode derivative and would drop tangents: call "
            f"trnqc.torch_ops.{name}" + ("" if name in OPERATORS else " outside of forward-mode differentiation")
        )


def gradients(a_t: Tensor, b: Tensor, g: Tensor, precision: str, needed: tuple[bool, ...]) -> tuple[Any, Any, None]:
    """Return the gradients d a_t = b g.T and d b = a_t g of out = a_t.T @ b for the gradient g of out."""
    d_a = d_b = None
    if needed[0]:
        d_a = product(b.mT.contiguous(), g.mT.contiguous(), precision).to(a_t.dtype)
    if needed[1]:
        d_b = product(a_t.mT.contiguous(), g.contiguous(), precision).to(b.dtype)
    return d_a, d_b, None


class ProductFunction(torch.autograd.Function):
    """Autograd function that calls the operators."""

    @staticmethod
    def forward(a_t: Tensor, b: Tensor, precision: str) -> Tensor:
        before, _inside.forward = getattr(_inside, "forward", False), True
        try:
            return _operator(a_t)(a_t, b, precision)
        finally:
            _inside.forward = before

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        a_t, b, ctx.precision = inputs
        ctx.save_for_backward(a_t, b)
        ctx.save_for_forward(a_t, b)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, g: Tensor | None) -> tuple[Any, Any, None]:
        if g is None:
            return None, None, None
        a_t, b = ctx.saved_tensors
        return gradients(a_t, b, g, ctx.precision, ctx.needs_input_grad)

    @staticmethod
    def jvp(ctx: Any, a_t: Tensor | None, b: Tensor | None, _: None) -> Tensor:
        # PyTorch calls this function with forward mode disabled, so tangents of an outer level would be zero. Enable
        # it, and remove the tangents of this level from the saved tensors.
        with forward_ad._set_fwd_grad_enabled(True):
            left, right = (forward_ad.unpack_dual(x).primal for x in ctx.saved_tensors)
            factors = [(x, y) for x, y in ((a_t, right), (left, b)) if x is not None and y is not None]
            return reduce(torch.add, (product(x, y, ctx.precision) for x, y in factors))

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], a_t: Tensor, b: Tensor, precision: str) -> tuple[Tensor, int]:
        return over_a_batch(info, in_dims, a_t, b, precision)


def over_a_batch(info: Any, in_dims: tuple[Any, ...], a_t: Tensor, b: Tensor, precision: str) -> tuple[Tensor, int]:
    """Apply vmap: join all samples into one stack of matrices for `batched_contraction`."""
    n = info.batch_size
    left, right = (x.expand(n, *x.shape) if dim is None else x.movedim(dim, 0) for x, dim in zip((a_t, b), in_dims))
    if left.dim() == 3:
        return product(left.contiguous(), right.contiguous(), precision), 0
    stack = product(left.flatten(0, 1).contiguous(), right.flatten(0, 1).contiguous(), precision)
    return stack.unflatten(0, (n, -1)), 0
