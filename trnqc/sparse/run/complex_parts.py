"""Networks over complex operands, as sums of the real networks of their real and imaginary parts.

    A B = (Re A + i Im A) (Re B + i Im B)    ->    Re A Re B - Im A Im B + i (Re A Im B + Im A Re B)

All parts of an operand have the same stored elements, so that one plan computes all 2^n real networks of n complex
operands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from trnqc.sparse.tensors.checks import is_complex
from trnqc.sparse.tensors.storage import FLOAT64, SparseTensor, from_coo

if TYPE_CHECKING:
    from trnqc.sparse.run.plan import Plan


def with_pattern(tensor: SparseTensor) -> SparseTensor:
    """Return a real tensor with the stored elements of a complex one, for which its parts can be planned.

    No element is 1, so that the plan does not take it for a 0/1 map.
    """
    assert tensor.values is not None
    return replace(tensor, values=np.where(tensor.values != 0, 0.5, 0.0), dtype=FLOAT64, _counts={})


def terms(parts: Sequence[tuple[Any, ...]]) -> Iterator[tuple[list[Any], int, int]]:
    """Yield the operands of each real network, the part of the result that it adds to (0 or 1), and its sign.

    `parts` has for each operand its real and its imaginary part, or only itself if it is real.
    """
    for chosen in product(*(range(len(each)) for each in parts)):
        power = sum(chosen) % 4
        yield [each[n] for each, n in zip(parts, chosen)], power % 2, 1 if power < 2 else -1


def computed_by_parts(plan: Plan, operands: Sequence[SparseTensor], threads: int) -> SparseTensor | np.ndarray:
    """Compute the result of a plan in complex128, as `Plan.computed` does in float64."""
    parts = [x.parts if is_complex(x) else (x,) for x in operands]
    results = [(plan.computed(plan.operands.exchanged(x), threads), part, sign) for x, part, sign in terms(parts)]
    tensors = [(x, part, sign) for x, part, sign in results if isinstance(x, SparseTensor)]
    if tensors:
        return _of_elements(tensors)
    total = np.zeros(results[0][0].shape, np.complex128)
    for result, part, sign in results:
        half = total.imag if part else total.real
        half += sign * np.asarray(result)
    return total


def _of_elements(results: Sequence[tuple[SparseTensor, int, int]]) -> SparseTensor:
    """Add the elements of real results, whose patterns may differ."""
    coordinates, values = [], []
    for result, part, sign in results:
        at, numbers = result.elements()
        coordinates.append(at)
        values.append(np.zeros(len(numbers), np.complex128))
        half = values[-1].imag if part else values[-1].real
        half[:] = sign * numbers
    first = results[0][0]
    return from_coo(first.shape, np.concatenate(coordinates, axis=1), np.concatenate(values), first.order, first.kinds)
