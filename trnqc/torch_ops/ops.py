"""Registration: typed function -> operator with a fake implementation and, for the products, derivatives.

Where the native torch-neuronx is installed, its own registration (``nki_op``) is used, so that torch.compile sees the
kernel inside the operator; elsewhere ``torch.library`` with the same schema.
"""

# No `from __future__ import annotations`: torch reads the schema from the annotations as objects.

import importlib.util
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from nki_kernels import batched_contraction as batched_kernels
from nki_kernels import gemm as gemm_kernels
from nki_kernels import mp2_energy as mp2_kernels
from trnqc.backends.neuron.launch import launch
from trnqc.backends.nki.device import PRECISIONS
from trnqc.errors import InputError, UnsupportedPrecision
from trnqc.torch_ops.products import OPERATORS, gradients, over_a_batch, product, refuse_dual_level, require_tensors


def native_registration() -> Callable | None:
    """``torch_neuronx.nki_op`` where the installed torch-neuronx has it."""
    if importlib.util.find_spec("torch_neuronx") is None:
        return None
    try:
        return getattr(importlib.import_module("torch_neuronx"), "nki_op", None)
    except ImportError:  # the public index's stub
        return None


def register(name: str, function: Callable, fake: Callable) -> Any:
    """The operator ``trnqc::name`` over a typed function; ``fake`` gives its result's shape without data."""
    native = native_registration()
    if native is not None:
        return native(f"trnqc::{name}", mutates_args={})(function)
    operator = torch.library.custom_op(f"trnqc::{name}", function, mutates_args=())
    operator.register_fake(fake)
    return operator


def split(x: Tensor, precision: str) -> Tensor:
    """[parts, ...]: x rounded to fp32 or bf16, or for bf16x3 the high and low parts of x = high + low in bf16."""
    if precision not in PRECISIONS:
        raise UnsupportedPrecision(f"precision is one of {', '.join(PRECISIONS)}, got {precision!r}")
    if precision == "fp32":
        return x.to(torch.float32)[None].contiguous()
    high = x.to(torch.bfloat16)
    if precision == "bf16":
        return high[None].contiguous()
    return torch.stack([high, (x - high.to(x.dtype)).to(torch.bfloat16)])


def _check(a_t: Tensor, b: Tensor, rank: int, name: str) -> None:
    require_tensors(a_t, b)
    if a_t.dim() != rank or b.dim() != rank or a_t.shape[:-1] != b.shape[:-1] or 0 in (*a_t.shape, *b.shape):
        expected = "a_t[K, M], b[K, N]" if rank == 2 else "a_t[Z, K, M], b[Z, K, N]"
        raise InputError(f"{name} takes {expected}, none of them empty; got a_t{list(a_t.shape)}, b{list(b.shape)}")


def _gemm(a_t: Tensor, b: Tensor, precision: str = "fp32") -> Tensor:
    refuse_dual_level("gemm")
    _check(a_t, b, 2, "gemm")
    return launch(gemm_kernels.gemm, gemm_kernels.reference_gemm, split(a_t, precision), split(b, precision))


def _gemm_fake(a_t: Tensor, b: Tensor, precision: str = "fp32") -> Tensor:
    _check(a_t, b, 2, "gemm")
    return a_t.new_empty((a_t.shape[1], b.shape[1]), dtype=torch.float32)


def _batched(a_t: Tensor, b: Tensor, precision: str = "fp32") -> Tensor:
    refuse_dual_level("batched_contraction")
    _check(a_t, b, 3, "batched_contraction")
    return launch(
        batched_kernels.batched_contraction,
        batched_kernels.reference_batched_contraction,
        split(a_t, precision),
        split(b, precision),
    )


def _batched_fake(a_t: Tensor, b: Tensor, precision: str = "fp32") -> Tensor:
    _check(a_t, b, 3, "batched_contraction")
    return a_t.new_empty((a_t.shape[0], a_t.shape[2], b.shape[2]), dtype=torch.float32)


def _pair_energy(
    bt: Tensor,
    ev_row: Tensor,
    ev_col: Tensor,
    e_pair: Tensor,
    work: Tensor,
    bounds: Tensor,
    nvir: int,
    naux: int,
    kchunk: int,
) -> Tensor:
    refuse_dual_level("mp2_pair_energy")
    tensors = (bt, ev_row, ev_col, e_pair, work, bounds)
    kernel, reference = mp2_kernels.mp2_energy, mp2_kernels.reference_mp2_energy
    return launch(kernel, reference, *tensors, nvir, naux, kchunk).to(torch.float32)


def _pair_energy_fake(
    bt: Tensor,
    ev_row: Tensor,
    ev_col: Tensor,
    e_pair: Tensor,
    work: Tensor,
    bounds: Tensor,
    nvir: int,
    naux: int,
    kchunk: int,
) -> Tensor:
    items, group = e_pair.shape
    return e_pair.new_empty((items, mp2_kernels.P, group, 2), dtype=torch.float32)


OPERATORS["gemm"] = register("gemm", _gemm, _gemm_fake)
OPERATORS["batched_contraction"] = register("batched_contraction", _batched, _batched_fake)
mp2_pair_energy = register("mp2_pair_energy", _pair_energy, _pair_energy_fake)


def gemm(a_t: Tensor, b: Tensor, precision: str = "fp32") -> Tensor:
    """Multiply the transpose of one matrix with another on the device of the tensors.

    Parameters
    ----------
    a_t, b
        [K, M] and [K, N], real, none of them empty.
    precision
        "fp32", "bf16x3" or "bf16".

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
    """Multiply stacks of matrices, a_t [Z, K, M] and b [Z, K, N] -> [Z, M, N]; the rest as in `gemm`."""
    _check(a_t, b, 3, "batched_contraction")
    return product(a_t, b, precision)


def _keep_operands(ctx: Any, inputs: tuple, output: Tensor) -> None:
    a_t, b, ctx.precision = inputs
    ctx.save_for_backward(a_t, b)


def _backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
    a_t, b = ctx.saved_tensors
    return gradients(a_t, b, g, ctx.precision, ctx.needs_input_grad)


for _product in OPERATORS.values():
    _product.register_autograd(_backward, setup_context=_keep_operands)
    _product.register_vmap(over_a_batch)
