"""Conversion of the arrays and tensors of callers to NumPy arrays, with an error where data would be lost.

This module never imports PyTorch, because a caller who passes a tensor has already imported it.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from trnqc.errors import InputError


def is_tensor(x: Any) -> bool:
    """Whether x is a PyTorch tensor, which includes parameters and other subclasses."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def is_pydata(x: Any) -> bool:
    """Whether x is a sparse array of PyData's package sparse, which has no conversion to NumPy of its own."""
    return type(x).__module__.partition(".")[0] == "sparse" and hasattr(x, "fill_value")


def is_traced_by_dynamo() -> bool:
    """Whether ``torch.compile`` is tracing the caller's code."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.compiler.is_dynamo_compiling()


def is_dynamo_there() -> bool:
    """Whether Dynamo has been imported, which is always true within ``torch.compile`` and cheap to test."""
    return "torch._dynamo" in sys.modules


def plain(x: Any, name: str) -> np.ndarray:
    """A plain ``ndarray`` that shares the memory of x, without the attributes of subclasses.

    Raises
    ------
    InputError
        If elements are masked, because sums would include them.
    """
    if isinstance(x, np.ma.MaskedArray) and np.ma.is_masked(x):
        raise InputError(
            f"{name} is a masked array with {int(np.ma.count_masked(x))} masked elements, which sums cannot leave out: "
            "take x.filled(0), or x.data to ignore the mask"
        )
    return np.asarray(x)


def transform_of(x: Any) -> str:
    """The gradient or transform of a tensor that a NumPy computation would lose, in words; empty if there is none.

    As in ``Tensor.numpy``, a gradient is lost only while gradients are recorded (not under ``torch.no_grad``).
    """
    if not is_tensor(x):
        return ""
    torch = sys.modules["torch"]
    if torch._C._functorch.is_functorch_wrapped_tensor(x):
        return "is transformed by torch.func"
    if _has_tangent(x):
        return "carries a tangent of forward-mode differentiation"
    if x.requires_grad and torch.is_grad_enabled():
        return "requires a gradient"
    return ""


def _has_tangent(x: Any) -> bool:
    forward = sys.modules.get("torch.autograd.forward_ad")
    # Dual numbers exist only within a level of forward mode, and `unpack_dual` does not support all layouts.
    if forward is None or forward._current_level < 0:
        return False
    return x.layout is sys.modules["torch"].strided and forward.unpack_dual(x).tangent is not None


def untransformed() -> Any:
    """Context manager in which ``torch.func`` does not wrap results that are computed from unwrapped tensors."""
    return sys.modules["torch"]._C._DisableFuncTorch()


def has_numbers(x: Any) -> bool:
    """Whether elements can be read. Meta and fake tensors, tensors under vmap and traced tensors have none.

    Nor have arrays of JAX while a function of them is traced.
    """
    if not is_tensor(x):
        jax = sys.modules.get("jax")
        return jax is None or not isinstance(x, jax.core.Tracer)
    functorch = sys.modules["torch"]._C._functorch
    while functorch.is_functorch_wrapped_tensor(x):
        if functorch.is_batchedtensor(x):
            return False
        x = functorch.get_unwrapped(x)
    fake, proxies = (sys.modules.get(f"torch.{x}") for x in ("_subclasses.fake_tensor", "fx.experimental.proxy_tensor"))
    if fake is not None and fake.is_fake(x):
        return False
    return not x.is_meta and (proxies is None or proxies.get_proxy_mode() is None)


def host_array(x: Any, name: str, instead: str) -> np.ndarray:
    """The caller's array as a plain NumPy array, which shares its memory if possible.

    Parameters
    ----------
    x
        A PyTorch tensor, or anything that ``np.asarray`` accepts.
    name
        The name of the array in error messages.
    instead
        Advice of the error message for a tensor whose gradient or transform would be lost.

    Raises
    ------
    InputError
        If elements are masked, or if a tensor has no data, is sparse or bfloat16, or would lose a derivative.
    """
    if not is_tensor(x):
        return plain(x, name)
    torch = sys.modules["torch"]
    if lost := transform_of(x):
        raise InputError(f"{name} {lost}, which is lost here: {instead}")
    if not has_numbers(x):
        raise InputError(f"{name} must be an array of real numbers; found a tensor without data ({_kind(x)})")
    if x.layout is not torch.strided:
        raise InputError(f"{name} is a sparse tensor ({x.layout}); take x.to_dense()")
    if x.dtype is torch.bfloat16:
        raise InputError(f"{name} must be an array of numbers that NumPy has; found bfloat16: take x.float()")
    return np.asarray(x.detach().resolve_conj().resolve_neg().cpu().numpy())


def _kind(x: Any) -> str:
    return "device meta" if x.is_meta else type(x).__name__
