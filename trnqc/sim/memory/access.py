"""Checks of raw access patterns (``NkiTensor.ap``), and ``NkiTensor.rearrange``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from trnqc.sim.machine.faults import NkiValidationError
from trnqc.sim.memory import views
from trnqc.sim.memory.dynamic import OutOfBounds, VectorOffset, vector_source

if TYPE_CHECKING:
    from trnqc.sim.memory.tensor import NkiTensor


def check_pattern(pattern: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Split [[step, count], ...] into steps and counts, which must be integers with positive counts."""
    pairs = [tuple(p) for p in pattern]
    if not pairs or any(len(p) != 2 or not all(isinstance(n, (int, np.integer)) for n in p) for p in pairs):
        raise NkiValidationError(f"ap pattern must be a list of [step, count] pairs of integers, got {pattern}")
    if any(count < 1 for _, count in pairs):
        raise NkiValidationError(f"ap pattern counts must be positive, got {pattern}")
    return tuple(int(s) for s, _ in pairs), tuple(int(n) for _, n in pairs)


def check_bounds(view: NkiTensor) -> None:
    """Check an access pattern against its tensor, without its runtime offset.

    A pattern that leaves its tensor is refused only by the first instruction that uses it, because kernels build
    patterns for incomplete last tiles before they decide not to use them.
    """
    message = _out_of_bounds(view)
    if message is not None:
        view.dynamic = OutOfBounds(message)


def _out_of_bounds(view: NkiTensor) -> str | None:
    """The error message if the pattern leaves its tensor, else None."""
    storage, free = view.storage, view.partition_stride
    low, high = views.span(view.shape, view.strides)
    total = storage.nbytes // view.dtype.itemsize
    if view.offset + low < 0 or view.offset + high >= total:
        return (
            f"Out-of-bound access for tensor `{view.name}`: ap pattern {view.get_pattern()} at offset {view.offset} "
            f"covers elements [{view.offset + low}, {view.offset + high}] of {total}"
        )
    if not storage.on_chip:
        return None
    if view.ndim < 2:
        raise NkiValidationError(
            f"ap on {storage.buffer.value} needs a partition pair and a free pair, got {view.get_pattern()}"
        )
    if view.shape[0] > 1 and view.strides[0] != free:
        raise NkiValidationError(
            f"ap partition step must be the free size of the tensor, {free}, got {view.strides[0]} on `{view.name}`"
        )
    low, high = views.span(view.shape[1:], view.strides[1:])
    column = view.offset % free
    if column + low < 0 or column + high >= free:
        return (
            f"Out-of-bound access for tensor `{view.name}`: free pattern {view.get_pattern()[1:]} from column {column} "
            f"leaves the {free} elements of a partition"
        )
    return None


def vector_offset(
    base: NkiTensor, offsets: Any, dim: int, scale: int, limit: int, counts: tuple[int, ...]
) -> VectorOffset:
    """Return the runtime row offsets of an indirect access to dimension 0 of an HBM tensor.

    `offsets` is a (P, n) integer SBUF tensor with row indices below `limit`; `dim` must be 0; `scale` are the elements
    from one row to the next; and `counts` are those of the access pattern, the first of which is the number of rows
    read.
    """
    if dim != 0 or base.on_chip:
        raise NkiValidationError(
            f"ap vector_offset needs indirect_dim 0 of an HBM tensor, got dim {dim} in {base.buffer.value}"
        )
    source = vector_source(offsets)
    if source.size < counts[0]:
        raise NkiValidationError(f"ap vector_offset has {source.size} indices for {counts[0]} rows of the pattern")
    return VectorOffset(source, scale, limit, 0)


def rearrange(t: NkiTensor, src: tuple[Any, ...], dst: tuple[Any, ...], sizes: dict[str, int]) -> NkiTensor:
    """Split, permute and merge named dimensions, as ``einops.rearrange`` does.

    In `src` and `dst` a tuple of names stands for one merged dimension. `sizes` has the sizes of the names in split
    dimensions; one name of each dimension may be left out.
    """
    groups = [(g,) if isinstance(g, str) else tuple(g) for g in src]
    names = [n for g in groups for n in g]
    wanted = [n for g in dst for n in ((g,) if isinstance(g, str) else g)]
    if len(groups) != t.ndim or len(set(names)) != len(names) or sorted(names) != sorted(wanted):
        raise NkiValidationError(
            f"rearrange patterns {src} -> {dst} do not name the {t.ndim} dimensions of {t!r} once each"
        )
    for dim in reversed(range(t.ndim)):
        if len(groups[dim]) > 1:
            t = t.reshape_dim(dim, tuple(sizes.get(n, -1) for n in groups[dim]))
    t = t.permute(tuple(names.index(n) for n in wanted))
    for position, g in enumerate(dst):
        width = 1 if isinstance(g, str) else len(g)
        if width > 1:
            t = t.flatten_dims(position, position + width - 1)
    return t
