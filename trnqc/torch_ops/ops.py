"""Registration of the operators, each by a typed function and a fake that returns an empty result of the same shape.

The products split their operands by precision and have derivatives. Every other kernel whose descriptor names an
operator gets one with the kernel's own arguments. If the native torch-neuronx is installed, its registration
(``nki_op``) is used, so that torch.compile sees the kernel inside the operator. Otherwise ``torch.library`` registers
the same schema.
"""

# No `from __future__ import annotations`: torch reads the schema from the annotations as objects.

import importlib.util
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from nki_kernels.descriptors import NkiKernel, kernels
from nki_kernels.descriptors.descriptor import KernelOperator
from nki_kernels.precision.splits import PRECISIONS
from trnqc.backends.neuron.device import NeuronDevice
from trnqc.backends.nki.accuracy import require_accuracy
from trnqc.backends.nki.launch import launch
from trnqc.errors import InputError, UnsupportedPrecision
from trnqc.torch_ops.products import OPERATORS, gradients, over_a_batch, product, refuse_dual_level, require_tensors
from trnqc.tuning.conditions import logical_cores


def native_registration() -> Callable[..., Any] | None:
    """Return ``torch_neuronx.nki_op`` if the installed torch-neuronx has it, else None."""
    if importlib.util.find_spec("torch_neuronx") is None:
        return None
    try:
        return getattr(importlib.import_module("torch_neuronx"), "nki_op", None)
    except ImportError:  # the public index's stub
        return None


def register(name: str, function: Callable[..., Any], fake: Callable[..., Any]) -> Any:
    """Register a typed function as ``trnqc::name``; ``fake`` returns an empty result of the same shape."""
    native = native_registration()
    if native is not None:
        return native(f"trnqc::{name}", mutates_args={})(function)
    operator = torch.library.custom_op(f"trnqc::{name}", function, mutates_args=())
    operator.register_fake(fake)
    return operator


def split(x: Tensor, precision: str) -> Tensor:
    """Return the parts [parts, ...] of x, as `nki_kernels.precision.splits.split` does for arrays."""
    if precision not in PRECISIONS:
        raise UnsupportedPrecision(f"precision is one of {', '.join(PRECISIONS)}; found {precision!r}")
    form = PRECISIONS[precision]
    if precision == "fp32":
        return x.to(torch.float32)[None].contiguous()
    rest, parts = x.to(torch.float64 if x.dtype == torch.float64 else torch.float32), []
    for _ in range(form.parts):
        part = rest.to(torch.bfloat16) if form.bits == 8 else _significant(rest, form.bits)
        parts.append(part)
        rest = rest - part.to(rest.dtype)
    return torch.stack(parts)


def _significant(x: Tensor, bits: int) -> Tensor:
    """x rounded to at most 8 significant bits, half to even, in bfloat16; by its bits in fp32, which has 24."""
    dropped = 24 - bits
    pattern = x.to(torch.float32).view(torch.int32)
    even = (pattern >> dropped) & 1
    rounded = (pattern + even + (1 << (dropped - 1)) - 1) >> dropped << dropped
    return rounded.view(torch.float32).to(torch.bfloat16)


def _check(a_t: Tensor, b: Tensor, rank: int, name: str) -> None:
    require_tensors(a_t, b)
    if a_t.dim() != rank or b.dim() != rank or a_t.shape[:-1] != b.shape[:-1] or 0 in (*a_t.shape, *b.shape):
        expected = "a_t[K, M], b[K, N]" if rank == 2 else "a_t[Z, K, M], b[Z, K, N]"
        raise InputError(f"{name} takes {expected}, none of them empty; found a_t{list(a_t.shape)}, b{list(b.shape)}")


def require_tensor_accuracy(x: Tensor, precision: str) -> None:
    """Refuse a precision that breaks its promise on the device of a tensor (`trnqc.backends.nki.accuracy`)."""
    require_accuracy(NeuronDevice(x.device, logical_cores()), precision)


def _launched(name: str, a_t: Tensor, b: Tensor, precision: str) -> Tensor:
    parts = split(a_t, precision), split(b, precision)
    require_tensor_accuracy(a_t, precision)
    return launch(kernels()[name], *parts)


def _gemm(a_t: Tensor, b: Tensor, precision: str = "fp32") -> Tensor:
    refuse_dual_level("gemm")
    _check(a_t, b, 2, "gemm")
    return _launched("gemm", a_t, b, precision)


def _gemm_fake(a_t: Tensor, b: Tensor, precision: str = "fp32") -> Tensor:
    _check(a_t, b, 2, "gemm")
    return a_t.new_empty((a_t.shape[1], b.shape[1]), dtype=torch.float32)


def _batched(a_t: Tensor, b: Tensor, precision: str = "fp32") -> Tensor:
    refuse_dual_level("batched_contraction")
    _check(a_t, b, 3, "batched_contraction")
    return _launched("batched_contraction", a_t, b, precision)


def _batched_fake(a_t: Tensor, b: Tensor, precision: str = "fp32") -> Tensor:
    _check(a_t, b, 3, "batched_contraction")
    return a_t.new_empty((a_t.shape[0], a_t.shape[2], b.shape[2]), dtype=torch.float32)


def register_kernel(kernel: NkiKernel, operator: KernelOperator) -> Any:
    """Register an operator that launches a kernel once, with the kernel's own arguments and without derivatives.

    The arguments are tensors, then integers, with the names in the signature of the kernel's reference function.
    """

    def run(*arguments: Any) -> Tensor:
        refuse_dual_level(operator.name)
        return launch(kernel, *arguments).to(torch.float32)

    def fake(*arguments: Any) -> Tensor:
        tensors = arguments[: operator.tensors]
        shape = operator.result_shape(*(tuple(tensor.shape) for tensor in tensors))
        return tensors[0].new_empty(shape, dtype=torch.float32)

    names = tuple(inspect.signature(kernel.reference).parameters)
    types: list[type] = [Tensor] * operator.tensors + [int] * (len(names) - operator.tensors)
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(name, kind, annotation=type_) for name, type_ in zip(names, types)]
    for function in (run, fake):
        function.__signature__ = inspect.Signature(parameters, return_annotation=Tensor)  # type: ignore[attr-defined]
        function.__annotations__ = {**dict(zip(names, types)), "return": Tensor}
    return register(operator.name, run, fake)


OPERATORS["gemm"] = register("gemm", _gemm, _gemm_fake)
OPERATORS["batched_contraction"] = register("batched_contraction", _batched, _batched_fake)
KERNEL_OPERATORS = {
    kernel.name: register_kernel(kernel, kernel.operator) for kernel in kernels().values() if kernel.operator
}
mp2_pair_energy = KERNEL_OPERATORS["mp2_energy"]


def gemm(a_t: Tensor, b: Tensor, precision: str = "fp32") -> Tensor:
    """Multiply the transpose of one matrix with another on the device of the tensors.

    Parameters
    ----------
    a_t, b
        Real tensors [K, M] and [K, N], neither of them empty.
    precision
        "fp32", "bf16" (operands rounded to bf16), or a split of each operand into parts in bf16: "bf16x3" (two parts),
        "bf16x6" (three) or "bf16x15" (five parts of four bits).

    Returns
    -------
    torch.Tensor
        [M, N] in float32, with gradients, forward-mode derivatives and ``torch.func`` transforms of every order. The
        operator ``torch.ops.trnqc.gemm`` itself has gradients only, and refuses levels of dual numbers.

    Raises
    ------
    InputError, UnsupportedPrecision, BackendUnavailable
    """
    _check(a_t, b, 2, "gemm")
    return product(a_t, b, precision)


def batched_contraction(a_t: Tensor, b: Tensor, precision: str = "fp32") -> Tensor:
    """Multiply the transpose of each matrix of a stack with the matrix of another stack.

    Parameters
    ----------
    a_t, b
        Real tensors [Z, K, M] and [Z, K, N], neither of them empty.
    precision
        See `gemm`.

    Returns
    -------
    torch.Tensor
        [Z, M, N] in float32, with derivatives as of `gemm`.

    Raises
    ------
    InputError, UnsupportedPrecision, BackendUnavailable
    """
    _check(a_t, b, 3, "batched_contraction")
    return product(a_t, b, precision)


def _keep_operands(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    a_t, b, ctx.precision = inputs
    ctx.save_for_backward(a_t, b)


def _backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
    a_t, b = ctx.saved_tensors
    return gradients(a_t, b, g, ctx.precision, ctx.needs_input_grad)


for _product in OPERATORS.values():
    _product.register_autograd(_backward, setup_context=_keep_operands)
    _product.register_vmap(over_a_batch)
