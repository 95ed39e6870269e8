"""Strided-view arithmetic: pure functions on shapes, strides and offsets, all counted in elements."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

from trnqc.sim.machine.faults import NkiValidationError

Dims = tuple[int, ...]


def row_major(shape: Sequence[int]) -> Dims:
    """Strides of a dense row-major tensor, in elements."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether the view is row-major without gaps; dimensions of size 1 may have any stride."""
    step = 1
    for n, stride in zip(reversed(shape), reversed(strides), strict=True):
        if n != 1 and stride != step:
            return False
        step *= n
    return True


def span(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, int]:
    """Lowest and highest element position of the view, relative to its first element."""
    low = high = 0
    for n, stride in zip(shape, strides, strict=True):
        reach = (n - 1) * stride
        low, high = (low + reach, high) if reach < 0 else (low, high + reach)
    return low, high


def reshape_strides(shape: Sequence[int], strides: Sequence[int], new: Sequence[int]) -> Dims | None:
    """Strides that give a view another shape over the same elements, or None if the reshape needs a copy.

    The dimensions of both shapes are matched from the left in the smallest groups of equal size. The old dimensions of
    a group must be mergeable: each stride equals the next stride times the next size.
    """
    old = [(n, s) for n, s in zip(shape, strides, strict=True) if n != 1]
    out: list[int] = []
    i = j = 0
    while i < len(old) or j < len(new):
        i0, j0 = i, j
        size_old = size_new = 1
        if i < len(old):
            size_old, i = old[i][0], i + 1
        if j < len(new):
            size_new, j = new[j], j + 1
        while size_old != size_new:
            if size_old < size_new:
                size_old, i = size_old * old[i][0], i + 1
            else:
                size_new, j = size_new * new[j], j + 1
        group = old[i0:i]
        if any(a[1] != b[0] * b[1] for a, b in pairwise(group)):
            return None
        inner = group[-1][1] if group else 1
        out += [inner * step for step in row_major(new[j0:j])]
    return tuple(out)


def resolve_sizes(shape: Sequence[int], total: int, what: str) -> Dims:
    """Replace one -1 in ``shape`` so that the product is ``total``; ``what`` names the argument in errors."""
    sizes = [int(n) for n in shape]
    if sizes.count(-1) == 1:
        known = -prod(sizes)
        if known > 0 and total % known == 0:
            sizes[sizes.index(-1)] = total // known
    if any(n <= 0 for n in sizes) or prod(sizes) != total:
        raise NkiValidationError(f"{what} must keep the number of elements ({total}), got {tuple(shape)}")
    return tuple(sizes)


def check_range(name: str, dim: int, size: int, start: int, end: int, step: int) -> None:
    """Check the slice ``start:end:step`` against a dimension of ``size`` elements of the tensor ``name``."""
    if not 0 <= start < size or end > size:
        raise NkiValidationError(
            f"Out-of-bound access for tensor `{name}` on dimension {dim}: index range [{start}, {end - 1}] exceed "
            f"dimension size of {size}."
        )
    if start >= end or step < 1:
        raise NkiValidationError(
            f"slice of tensor `{name}` on dimension {dim} must have start < end and step >= 1, got {start}:{end}:{step}"
        )
