"""trnqc as a planner and as a backend of opt_einsum.

opt_einsum.contract("ij,jk,kl->il", a, b, c, optimize=PathOptimizer())
opt_einsum.contract("ij,jk,kl->il", a, b, c, backend="trnqc.interfaces.opt_einsum")
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trnqc.contraction import einsum as _einsum
from trnqc.contraction import path
from trnqc.contraction.order.paths import Path
from trnqc.contraction.products.arrays import transpose as _transpose
from trnqc.contraction.time_limit import TIME_LIMIT, planning
from trnqc.interfaces.packages import optional

_Planner: Any = optional("opt_einsum.paths").PathOptimizer


class PathOptimizer(_Planner):
    """trnqc's search for the order of least work, as a planner of opt_einsum.

    Parameters
    ----------
    time_limit : float, optional
        Seconds of processor time for one search, None for no limit. The best order so far is used then.

    Examples
    --------
    >>> import numpy as np
    >>> import opt_einsum
    >>> a, b, c = np.ones((2, 30)), np.ones((30, 4)), np.ones((4, 30))
    >>> opt_einsum.contract_path("ab,bc,cd->ad", a, b, c, optimize=PathOptimizer())[0]
    [(0, 1), (0, 1)]
    """

    def __init__(self, time_limit: float | None = TIME_LIMIT) -> None:
        self.time_limit = time_limit

    def __call__(
        self,
        inputs: Sequence[Iterable[str]],
        output: Iterable[str],
        size_dict: Mapping[str, int],
        memory_limit: int | None = None,
    ) -> Path:
        """Return the path. `memory_limit` counts the elements of the largest temporary; -1 stands for no limit."""
        with planning(self.time_limit):
            return path(inputs, output, size_dict, memory_limit)


def einsum(subscripts: str, *operands: Any, **options: Any) -> Any:
    """Return `trnqc.einsum` of the operands."""
    return _einsum(subscripts, *operands, **options)


def tensordot(a: Any, b: Any, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Any:
    """Return the product of two tensors summed over pairs of axes, as `numpy.tensordot` does."""
    if isinstance(axes, int):
        axes = (range(a.ndim - axes, a.ndim), range(axes))
    left, right = ([axis % x.ndim for axis in group] for group, x in zip(axes, (a, b)))
    first, second = list(range(a.ndim)), list(range(a.ndim, a.ndim + b.ndim))
    for i, j in zip(left, right):
        second[j] = first[i]
    kept = [x for axis, x in enumerate(first) if axis not in left]
    kept += [x for axis, x in enumerate(second) if axis not in right]
    return _einsum(a, first, b, second, kept)


def transpose(a: Any, axes: Sequence[int]) -> Any:
    """Return a view of a tensor with its axes in another order."""
    return _transpose(a, axes)
