"""Tensors in half precision: they are stored in float16 or bfloat16, and computed in float32.

Operators convert operands before they call an engine, and round each result once. Autograd keeps the tensors in half
precision. The largest error of a result, relative to float32, is half a unit in the last place: 2^-8 for bfloat16 and
2^-11 for float16, whose largest number is 65504.
"""

# No `from __future__ import annotations`, as in operators.py.

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from trnqc.errors import UnsupportedPrecision

# Types that are computed as they are, by the names that the engines use.
COMPUTED = {torch.float32: "float32", torch.float64: "float64"}
HALVES = (torch.float16, torch.bfloat16)
# Number of rows of a batch that are converted and computed at a time. Some hundred kilobytes to a few megabytes, which
# fit in the second or the third level of the cache.
ROWS = 256


def check_type(x: Tensor) -> None:
    """Raise UnsupportedPrecision unless x has a type that can be stored."""
    if x.dtype not in COMPUTED and x.dtype not in HALVES:
        names = "float32, torch.float64, torch.float16 or torch.bfloat16"
        raise UnsupportedPrecision(f"x: expected torch.{names}, found {x.dtype}")


def widened(tensor: Tensor) -> Tensor:
    """Return the tensor in the type in which it is computed."""
    return tensor.float() if tensor.dtype in HALVES else tensor


def rounded(results: Any, dtype: torch.dtype) -> Any:
    """Return a tensor, or a tuple of tensors, in the type of the operands."""
    if isinstance(results, Tensor):
        return results if results.dtype == dtype else results.to(dtype)
    return tuple(rounded(result, dtype) for result in results)


def by_blocks(call: Callable[..., Any], tensors: Sequence[Tensor], summed: Sequence[bool]) -> Any:
    """Call a function of float32 rows for blocks of half-precision rows, so that what is converted stays in the cache.

    Operands with one dimension are the same for all rows; `summed` says which results are sums over rows. Results are
    in half precision.
    """
    dtype, rows = tensors[0].dtype, tensors[0].shape[0]
    constant = {n: tensor.float() for n, tensor in enumerate(tensors) if tensor.dim() == 1}
    results: list[Tensor] = []
    for begin in range(0, max(rows, 1), ROWS):
        block = slice(begin, begin + ROWS)
        part = call(*(constant[n] if n in constant else tensor[block].float() for n, tensor in enumerate(tensors)))
        if not begin:
            results = [p if s else p.new_empty((rows, p.shape[1]), dtype=dtype) for p, s in zip(part, summed)]
        for whole, piece, of_sum in zip(results, part, summed):
            if not of_sum:
                whole[block] = piece
            elif begin:
                whole += piece
    return tuple(result.to(dtype) for result in results)


def all_widened(tensors: Iterable[Tensor]) -> list[Tensor]:
    return [widened(tensor) for tensor in tensors]
