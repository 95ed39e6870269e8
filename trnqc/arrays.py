"""Arrays as callers hold them: told apart by type, made plain NumPy arrays, or refused with one clear error.

PyTorch is never imported here: a tensor can only come from a caller who has imported it.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from trnqc.errors import InputError


def is_tensor(x: Any) -> bool:
    """Whether x is a tensor of PyTorch; parameters and other subclasses are."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def is_traced_by_dynamo() -> bool:
    """Whether ``torch.compile`` is reading the caller's code at the moment."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.compiler.is_dynamo_compiling()


def is_dynamo_there() -> bool:
    """Whether Dynamo may be compiling what runs; cheaper than to ask, and true within ``torch.compile``."""
    return "torch._dynamo" in sys.modules


def plain(x: Any, name: str) -> np.ndarray:
    """The array without what subclasses of ``ndarray`` add, sharing its memory.

    Raises
    ------
    InputError
        If elements are masked: no sum would leave them out.
    """
    if isinstance(x, np.ma.MaskedArray) and np.ma.is_masked(x):
        raise InputError(
            f"{name} is a masked array with {int(np.ma.count_masked(x))} masked elements, which sums cannot leave out: "
            "take x.filled(0), or x.data to ignore the mask"
        )
    return np.asarray(x)


def transform_of(x: Any) -> str:
    """What PyTorch is doing with the tensor that a NumPy computation would lose, in words; empty if nothing.

    As for ``Tensor.numpy``, a gradient is lost only where gradients are recorded (not under ``torch.no_grad``).
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
    # Nothing can be a dual number outside of a level, and the tangent of some layouts cannot be asked for.
    if forward is None or forward._current_level < 0:
        return False
    return x.layout is sys.modules["torch"].strided and forward.unpack_dual(x).tangent is not None


def untransformed() -> Any:
    """Within it, ``torch.func`` does not wrap what is computed from tensors below its transforms."""
    return sys.modules["torch"]._C._DisableFuncTorch()


def has_numbers(x: Any) -> bool:
    """Whether elements can be looked at: not those of meta and fake tensors, under vmap, or while a graph is traced."""
    if not is_tensor(x):
        return True
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
    """What the caller handed in as a plain NumPy array, sharing its memory where that can be.

    Parameters
    ----------
    x
        A NumPy array or what ``np.asarray`` takes, or a tensor of PyTorch.
    name
        What the error calls it.
    instead
        What to do with a tensor whose gradient or transformation would be lost, for the error.

    Raises
    ------
    InputError
        If elements are masked, or a tensor has no data, is sparse or bfloat16, or has a derivative that would be lost.
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
