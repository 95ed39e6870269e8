"""Operators under the transforms of torch.func and with the dual numbers of torch.autograd.forward_ad.

An operator of torch.library supports reverse-mode derivatives only. Its forward-mode derivative would silently be zero,
and ``torch.func.grad`` rejects it. An autograd function with ``setup_context``, ``jvp`` and ``vmap`` supports all of
them. Its calls take longer, and torch.compile needs the operator, so it is used only inside a transform.
"""

# No `from __future__ import annotations`, as in operators.py.

import threading
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from trnqc.errors import UnsupportedError

# Whether this thread is inside the forward function of one of the autograd functions below.
_inside = threading.local()


def active() -> bool:
    """Whether a transform of torch.func or a level of dual numbers is active, and nothing is being compiled."""
    if torch.compiler.is_compiling():
        return False
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def traced() -> bool:
    """Whether numbers in tensors cannot be read: a program is being traced, or a transform is active."""
    return torch.compiler.is_compiling() or active() or get_proxy_mode() is not None


def refuse_dual_level() -> None:
    """Raise UnsupportedError if an operator is called directly at a level of dual numbers: it would drop tangents."""
    if forward_ad._current_level >= 0 and not getattr(_inside, "function", False):
        raise UnsupportedError(
            "expected a call by trnqc.cg.TensorProduct or TensorProductConv at a level of dual numbers, found one of "
            "the operator: operators of torch.library, and programs that torch.compile or torch.export made of them, "
            "have no forward-mode derivatives; call the module as it is"
        )


def function_of(family: Any, direction: str) -> type[torch.autograd.Function]:
    """Return an autograd function that takes the arguments of the operator for one direction of a `Family`."""

    def forward(*args: Any) -> Any:
        before = getattr(_inside, "function", False)
        _inside.function = True
        try:
            return family.operators[direction](*args)
        finally:
            _inside.function = before

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_forward(*family.keep(direction, ctx, inputs))

    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Any, ...]:
        return family.gradients(direction, ctx.saved_tensors, ctx.options, grad_outputs)

    def jvp(ctx: Any, *tangents: Any) -> Any:
        # PyTorch calls this function with forward mode disabled, so tangents of an outer level would be zero. Enable
        # it, and remove the tangents of this level from the saved tensors.
        with forward_ad._set_fwd_grad_enabled(True):
            saved = [forward_ad.unpack_dual(t).primal for t in ctx.saved_tensors]
            return family.tangents(direction, saved, ctx.options, tangents)

    def vmap(info: Any, in_dims: Sequence[int | None], *args: Any) -> tuple[Any, Any]:
        return family.batched(family.functions[direction].apply, direction, info.batch_size, in_dims, args)

    methods = (forward, setup_context, backward, jvp, vmap)
    return type(f"Cg_{direction}", (torch.autograd.Function,), {f.__name__: staticmethod(f) for f in methods})
