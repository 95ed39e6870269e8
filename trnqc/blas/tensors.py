"""The operations as PyTorch operators, with gradients of every order, fakes and ``torch.func.vmap``.

    tensors on the CPU      -> NumPy arrays -> the backend that was asked for -> tensor
    tensors on a device     -> kernels launched on the tensors where they are

The operators are ``torch.ops.trnqc.blas_gemm``, and so on for symm, syrk, trsm and cholesky. Each takes its matrices,
c, alpha and beta if it is a product, its flags, and the names of a backend and a precision.
"""

# No `from __future__ import annotations`: torch reads the schema from the annotations as objects.

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from trnqc.backends.neuron.tensors import TensorDevice
from trnqc.backends.nki.blas import NkiBlas
from trnqc.backends.nki.device import PRECISIONS
from trnqc.backends.nki.vendor import to_tensor
from trnqc.blas import forms
from trnqc.blas.calls import FORMS, Asked, BlasCall, compute
from trnqc.blas.choice import Choice, choose
from trnqc.errors import InputError, UnsupportedError, UnsupportedPrecision
from trnqc.torch_ops.ops import register, require_tensor_accuracy, split


def run(call: BlasCall, asked: Asked) -> Tensor:
    """Compute a call of tensors; arrays among them become tensors of the same device."""
    if forward_ad._current_level >= 0 and not torch.compiler.is_compiling():
        raise UnsupportedError("trnqc.blas has gradients, but no forward-mode derivatives: use torch.autograd.grad")
    tensors = [x for x in (*call.matrices, call.c) if isinstance(x, Tensor)]
    devices = {x.device for x in tensors}
    if len(devices) > 1:
        raise InputError(f"tensors must be on one device; found {', '.join(sorted(map(str, devices)))}")
    for x in tensors:
        if x.layout is not torch.strided or x.is_complex():
            raise InputError(f"trnqc.blas takes real, strided tensors; found {x.dtype} of layout {x.layout}")
    device = devices.pop()
    choice = _choice(_on_host(device), asked.backend, asked.precision, asked.target_error)
    matrices = [torch.as_tensor(x, device=device) for x in call.matrices]
    scaling = call.scaling if call.c is None else (torch.as_tensor(call.c, device=device), *call.scaling[1:])
    return OPERATORS[call.name](*matrices, *scaling, *call.flags, choice.backend, choice.precision)


def _on_host(device: torch.device) -> bool:
    return device.type in ("cpu", "meta")


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _choice(on_host: bool, backend: str, precision: str | None, target_error: float | None) -> Choice:
    """The choice of a call; tensors on an accelerator are not moved. Dynamo takes it as a constant."""
    if on_host:
        return choose(backend, precision, target_error)
    if backend not in ("auto", "neuron"):
        raise InputError(f"tensors on a Trainium device are computed there; found backend {backend!r}")
    return choose("neuron", precision, target_error)


def _compute(call: BlasCall, backend: str, precision: str) -> Tensor:
    first = call.matrices[0]
    if _on_host(first.device):
        matrices = tuple(x.detach() for x in call.matrices)
        scaling = call.scaling if call.c is None else (call.c.detach(), *call.scaling[1:])
        plain = BlasCall(call.name, matrices, scaling, call.flags)
        return to_tensor(compute(plain, Choice(backend, precision, "")))
    if precision not in PRECISIONS:
        raise UnsupportedPrecision(f"a Trainium device computes in {', '.join(PRECISIONS)}; found {precision!r}")
    return on_device(call, precision)


def on_device(call: BlasCall, precision: str) -> Tensor:
    """Compute a call by kernels on the device of its tensors, or on the host inside `torch_ops.host_kernels`."""
    require_tensor_accuracy(call.matrices[0], precision)
    blas = NkiBlas(TensorDevice(call.matrices[0].device), precision, split)
    result: Tensor = FORMS[call.name](blas, *call.matrices, *call.scaling, *call.flags)
    return result


def _empty(like: Tensor, shape: tuple[Any, ...], precision: str) -> Tensor:
    return like.new_empty(shape, dtype=torch.float64 if precision == "fp64" else torch.float32)


def _gemm(
    a: Tensor, b: Tensor, c: Tensor | None, alpha: float, beta: float, trans_a: bool, trans_b: bool,
    backend: str, precision: str,
) -> Tensor:  # fmt: skip
    return _compute(BlasCall("gemm", (a, b), (c, alpha, beta), (trans_a, trans_b)), backend, precision)


def _gemm_fake(
    a: Tensor, b: Tensor, c: Tensor | None, alpha: float, beta: float, trans_a: bool, trans_b: bool,
    backend: str, precision: str,
) -> Tensor:  # fmt: skip
    M, N = a.shape[-1 if trans_a else -2], b.shape[-2 if trans_b else -1]
    return _empty(a, (*a.shape[:-2], M, N), precision)


def _symm(
    a: Tensor, b: Tensor, c: Tensor | None, alpha: float, beta: float, left: bool, lower: bool,
    backend: str, precision: str,
) -> Tensor:  # fmt: skip
    return _compute(BlasCall("symm", (a, b), (c, alpha, beta), (left, lower)), backend, precision)


def _symm_fake(
    a: Tensor, b: Tensor, c: Tensor | None, alpha: float, beta: float, left: bool, lower: bool,
    backend: str, precision: str,
) -> Tensor:  # fmt: skip
    return _empty(a, tuple(b.shape), precision)


def _syrk(
    a: Tensor, c: Tensor | None, alpha: float, beta: float, trans: bool, lower: bool, backend: str, precision: str
) -> Tensor:
    return _compute(BlasCall("syrk", (a,), (c, alpha, beta), (trans, lower)), backend, precision)


def _syrk_fake(
    a: Tensor, c: Tensor | None, alpha: float, beta: float, trans: bool, lower: bool, backend: str, precision: str
) -> Tensor:
    n = a.shape[1 if trans else 0]
    return _empty(a, (n, n), precision)


def _trsm(
    a: Tensor, b: Tensor, lower: bool, trans: bool, unit_diagonal: bool, left: bool, backend: str, precision: str
) -> Tensor:
    return _compute(BlasCall("trsm", (a, b), (), (lower, trans, unit_diagonal, left)), backend, precision)


def _trsm_fake(
    a: Tensor, b: Tensor, lower: bool, trans: bool, unit_diagonal: bool, left: bool, backend: str, precision: str
) -> Tensor:
    return _empty(a, tuple(b.shape), precision)


def _cholesky(a: Tensor, lower: bool, backend: str, precision: str) -> Tensor:
    return _compute(BlasCall("cholesky", (a,), (), (lower,)), backend, precision)


def _cholesky_fake(a: Tensor, lower: bool, backend: str, precision: str) -> Tensor:
    return _empty(a, tuple(a.shape), precision)


OPERATORS = {
    "gemm": register("blas_gemm", _gemm, _gemm_fake),
    "symm": register("blas_symm", _symm, _symm_fake),
    "syrk": register("blas_syrk", _syrk, _syrk_fake),
    "trsm": register("blas_trsm", _trsm, _trsm_fake),
    "cholesky": register("blas_cholesky", _cholesky, _cholesky_fake),
}


class _Saved:
    """The arguments of an operator in its backward pass: tensors saved by autograd, and plain values."""

    def __init__(self, ctx: Any):
        self.tensors, (self.alpha, self.beta, *self.flags, self.backend, self.precision) = ctx.saved_tensors, ctx.plain
        self.has_c, self.dtype_of_c = ctx.has_c, ctx.dtype_of_c

    def gemm(self, a: Tensor, b: Tensor, trans_a: bool = False, trans_b: bool = False) -> Tensor:
        """alpha op(a) op(b)."""
        return OPERATORS["gemm"](a, b, None, self.alpha, 0.0, trans_a, trans_b, self.backend, self.precision)

    def of_c(self, g: Tensor) -> Tensor | None:
        """The gradient of c, given that of the elements that c has a part in."""
        return (self.beta * g).to(self.dtype_of_c) if self.has_c else None


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    """Keep the matrices and the options; c is not needed, because the result is linear in it."""
    plain = next(i for i, x in enumerate(inputs) if isinstance(x, float))
    *matrices, c = inputs[:plain]
    ctx.save_for_backward(*matrices)
    ctx.plain, ctx.has_c, ctx.dtype_of_c = inputs[plain:], c is not None, None if c is None else c.dtype


def _gemm_backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
    """From d out = alpha (d op(a) op(b) + op(a) d op(b)) + beta dc."""
    saved = _Saved(ctx)
    (a, b), (trans_a, trans_b) = saved.tensors, saved.flags
    d_a = saved.gemm(b, g, trans_b, True) if trans_a else saved.gemm(g, b, False, not trans_b)
    d_b = saved.gemm(g, a, True, trans_a) if trans_b else saved.gemm(a, g, not trans_a)
    return (d_a.to(a.dtype), d_b.to(b.dtype), saved.of_c(g), *[None] * 6)


def _symm_backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
    """Every element off the diagonal that is stored stands for two of the symmetric matrix."""
    saved = _Saved(ctx)
    (a, b), (left, lower) = saved.tensors, saved.flags
    options = (None, saved.alpha, 0.0, left, lower, saved.backend, saved.precision)
    d_b = OPERATORS["symm"](a, g, *options)
    d_s = saved.gemm(g, b, False, True) if left else saved.gemm(b, g, True)
    d_a = forms.triangle(d_s + d_s.mT, lower) - torch.diag_embed(torch.diagonal(d_s))
    return (d_a.to(a.dtype), d_b.to(b.dtype), saved.of_c(g), *[None] * 6)


def _syrk_backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
    """With G the triangle of g: d op(a) = alpha (G + G.T) op(a)."""
    saved = _Saved(ctx)
    (a,), (trans, lower) = saved.tensors, saved.flags
    g = forms.triangle(g, lower)
    both = g + g.mT
    d_a = saved.gemm(a, both) if trans else saved.gemm(both, a)
    return (d_a.to(a.dtype), saved.of_c(g), *[None] * 6)


def _save_solution(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    a, b, *ctx.plain = inputs
    ctx.save_for_backward(a, output)
    ctx.dtype_of_b = b.dtype


def _trsm_backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
    """From op(a) dx + d op(a) x = db: the gradient of b solves the transposed system, and that of a is its product."""
    a, x = ctx.saved_tensors
    lower, trans, unit_diagonal, left, backend, precision = ctx.plain
    d_b = OPERATORS["trsm"](a, g, lower, not trans, unit_diagonal, left, backend, precision)
    first, second = (d_b, x) if left else (x.mT, d_b.mT)
    if trans:
        first, second = second, first
    d_a = OPERATORS["gemm"](first, second, None, -1.0, 0.0, False, True, backend, precision)
    d_a = forms.triangle(d_a, lower)
    if unit_diagonal:
        d_a = d_a - torch.diag_embed(torch.diagonal(d_a))
    return (d_a.to(a.dtype), d_b.to(ctx.dtype_of_b), *[None] * 6)


def _save_factor(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    a, *ctx.plain = inputs
    ctx.save_for_backward(output)
    ctx.dtype_of_a = a.dtype


def _cholesky_backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
    """From dl = l phi(l^-1 da l^-T): the symmetric gradient is l^-T phi(l.T g) l^-1, made symmetric.

    phi takes the lower triangle with half of the diagonal (I. Murray, arXiv:1602.07527). Every element off the diagonal
    that is read stands for two of the symmetric matrix.
    """
    (factor,) = ctx.saved_tensors
    lower, backend, precision = ctx.plain
    factor, g = (factor, g) if lower else (factor.mT, g.mT)
    end = (backend, precision)
    phi = OPERATORS["gemm"](factor, forms.triangle(g, True), None, 1.0, 0.0, True, False, *end)
    phi = forms.triangle(phi, True) - 0.5 * torch.diag_embed(torch.diagonal(phi))
    half = OPERATORS["trsm"](factor, phi, True, True, False, True, *end)
    d_s = OPERATORS["trsm"](factor, half, True, False, False, False, *end)
    d_a = forms.triangle(d_s + d_s.mT, lower) - torch.diag_embed(torch.diagonal(d_s))
    return d_a.to(ctx.dtype_of_a), None, None, None


def _samples(info: Any, in_dims: tuple[Any, ...], args: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """The arguments of each sample of a vmap."""
    return [
        tuple(x if dim is None else x.select(dim, i) for x, dim in zip(args, in_dims)) for i in range(info.batch_size)
    ]


def _one_by_one(name: str) -> Callable[..., tuple[Tensor, int]]:
    def rule(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Tensor, int]:
        return torch.stack([OPERATORS[name](*sample) for sample in _samples(info, in_dims, args)]), 0

    return rule


def _gemm_vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Tensor, int]:
    """All samples in one stack of matrices."""
    n, matrices = info.batch_size, zip(args[:3], in_dims)
    a, b, c = (x if x is None or dim is None else x.movedim(dim, 0) for x, dim in matrices)
    a, b, c = (x if x is None or dim is not None else x.expand(n, *x.shape) for x, dim in zip((a, b, c), in_dims))
    if a.dim() == 3:
        return OPERATORS["gemm"](a, b, c, *args[3:]), 0
    a, b, c = (x if x is None else x.flatten(0, 1) for x in (a, b, c))
    return OPERATORS["gemm"](a, b, c, *args[3:]).unflatten(0, (n, -1)), 0


for _name, _setup, _backward, _vmap in [
    ("gemm", _save, _gemm_backward, _gemm_vmap),
    ("symm", _save, _symm_backward, _one_by_one("symm")),
    ("syrk", _save, _syrk_backward, _one_by_one("syrk")),
    ("trsm", _save_solution, _trsm_backward, _one_by_one("trsm")),
    ("cholesky", _save_factor, _cholesky_backward, _one_by_one("cholesky")),
]:
    OPERATORS[_name].register_autograd(_backward, setup_context=_setup)
    OPERATORS[_name].register_vmap(_vmap)
