"""Matrix products of the operators with derivatives of every order and mode, and over batches of ``torch.func.vmap``.

An operator of ``torch.library`` takes a reverse-mode derivative only: its forward-mode derivative would be zero without
a word, and ``torch.func.grad`` refuses it. An autograd function has all of them; it is taken under transforms alone, as
``torch.compile`` wants the operator.
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

# Whether this thread is in the forward function below, so that a call of an operator loses no tangent.
_inside = threading.local()
# By name: the operators, which register themselves.
OPERATORS: dict[str, Any] = {}


def product(a_t: Tensor, b: Tensor, precision: str) -> Tensor:
    """a_t[K, M], b[K, N] -> [M, N], or stacks of them."""
    require_tensors(a_t, b)
    if not torch.compiler.is_compiling() and (
        torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0
    ):
        return Product.apply(a_t, b, precision)  # type: ignore[no-untyped-call]
    return _operator(a_t)(a_t, b, precision)


def _operator(a_t: Tensor) -> Callable[..., Tensor]:
    return OPERATORS["gemm" if a_t.dim() == 2 else "batched_contraction"]


def require_tensors(*tensors: Any) -> None:
    """Raise InputError for what is no real, strided tensor: the kernels would drop imaginary parts and layouts."""
    for x in tensors:
        if not isinstance(x, Tensor):
            raise InputError(
                f"the operators take tensors of PyTorch; found {type(x).__name__}: torch.as_tensor makes one"
            )
        if x.layout is not torch.strided or x.is_complex():
            raise InputError(f"the operators take real, strided tensors; found {x.dtype} of layout {x.layout}")


def refuse_dual_level(name: str) -> None:
    """Raise UnsupportedError where an operator by itself runs at a level of dual numbers, whose tangents it drops."""
    if forward_ad._current_level >= 0 and not getattr(_inside, "forward", False):
        raise UnsupportedError(
            f"the operator trnqc::{name} has no forward-mode derivative and would drop tangents: call "
            f"trnqc.torch_ops.{name}" + ("" if name in OPERATORS else " outside of forward-mode differentiation")
        )


def gradients(a_t: Tensor, b: Tensor, g: Tensor, precision: str, needed: tuple[bool, ...]) -> tuple[Any, Any, None]:
    """For out = a_t.T @ b with derivative g: d a_t = b g.T and d b = a_t g, each again a product of transposes."""
    d_a = d_b = None
    if needed[0]:
        d_a = product(b.mT.contiguous(), g.mT.contiguous(), precision).to(a_t.dtype)
    if needed[1]:
        d_b = product(a_t.mT.contiguous(), g.contiguous(), precision).to(b.dtype)
    return d_a, d_b, None


class Product(torch.autograd.Function):
    """The operators as an autograd function."""

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
        # PyTorch calls this with forward mode switched off, so that tangents of an outer level would be zero; those of
        # this level have to go before it is switched on.
        with forward_ad._set_fwd_grad_enabled(True):
            left, right = (forward_ad.unpack_dual(x).primal for x in ctx.saved_tensors)
            factors = [(x, y) for x, y in ((a_t, right), (left, b)) if x is not None and y is not None]
            return reduce(torch.add, (product(x, y, ctx.precision) for x, y in factors))

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], a_t: Tensor, b: Tensor, precision: str) -> tuple[Tensor, int]:
        return over_a_batch(info, in_dims, a_t, b, precision)


def over_a_batch(info: Any, in_dims: tuple[Any, ...], a_t: Tensor, b: Tensor, precision: str) -> tuple[Tensor, int]:
    """vmap: one stack of matrices, which `batched_contraction` multiplies."""
    n = info.batch_size
    left, right = (x.expand(n, *x.shape) if dim is None else x.movedim(dim, 0) for x, dim in zip((a_t, b), in_dims))
    if left.dim() == 3:
        return product(left.contiguous(), right.contiguous(), precision), 0
    stack = product(left.flatten(0, 1).contiguous(), right.flatten(0, 1).contiguous(), precision)
    return stack.unflatten(0, (n, -1)), 0
