"""Networks over complex tensors of PyTorch, as sums of real networks, with their derivatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from trnqc.arrays import is_tensor, untransformed
from trnqc.sparse.run.complex_parts import terms
from trnqc.sparse.run.derivatives import differentiable, result_type
from trnqc.sparse.tensors.checks import is_complex
from trnqc.sparse.tensors.convert import as_tensor, example
from trnqc.sparse.tensors.torch_values import assembled, places, sorted_elements, values_of

if TYPE_CHECKING:
    from trnqc.sparse.run.plan import Plan


def computed_by_parts(plan: Plan, operands: Sequence[Any], threads: int) -> torch.Tensor:
    """Compute the result of a plan, of which at least one operand is complex and one a tensor of PyTorch."""
    parts = [_parts(x) for x in operands]
    results = [
        (differentiable(plan, chosen, plan.operands.exchanged([as_tensor(x) for x in chosen]), threads), part, sign)
        for chosen, part, sign in terms(parts)
    ]
    dtype, like = result_type(operands), results[0][0]
    if like.layout is torch.strided:
        halves = [torch.stack([sign * x for x, part, sign in results if part == half]).sum(0) for half in (0, 1)]
        return torch.complex(*halves).to(dtype)
    with untransformed():
        stored = [places(example(x).detach()) for x, *_ in results]
        indices, where = torch.cat(stored, dim=1).unique(dim=1, return_inverse=True)
    # A real result is a part of the complex one; the patterns of all of them may differ.
    halves = [values_of(like).new_zeros(indices.shape[1]) for _ in range(2)]
    for (x, part, sign), at in zip(results, where.split([one.shape[1] for one in stored])):
        halves[part] = halves[part].index_add(0, at, sign * values_of(x))
    return assembled(torch.complex(*halves).to(dtype), indices, tuple(like.shape))


def _parts(operand: Any) -> tuple[Any, ...]:
    """Return the real and the imaginary part of a complex operand in float64, a real operand itself."""
    if not is_complex(operand):
        return (operand,)
    if not is_tensor(operand):
        return as_tensor(operand).parts
    if operand.layout is torch.strided:
        return operand.real.to(torch.float64), operand.imag.to(torch.float64)
    values, indices = sorted_elements(operand)
    real, imaginary = values.real.to(torch.float64), values.imag.to(torch.float64)
    return assembled(real, indices, tuple(operand.shape)), assembled(imaginary, indices, tuple(operand.shape))
