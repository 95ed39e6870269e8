"""Runtime addressing: one index for a whole view, or one index per row.

The indices are read when the instruction runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from trnqc.sim.machine.faults import NkiValidationError
from trnqc.sim.memory import views

if TYPE_CHECKING:
    from trnqc.sim.memory.tensor import NkiTensor


class ScalarOffset:
    """A runtime index in [0, ``limit``) that moves a view by index * ``scale`` elements.

    `source` is a register, a scalar, or a one-element integer tensor. `dim` is the indexed dimension of the view; None
    if the view no longer has it, and for raw access patterns.
    """

    __slots__ = ("dim", "limit", "scale", "source")

    def __init__(self, source: Any, scale: int, limit: int, dim: int | None):
        self.source, self.scale, self.limit, self.dim = source, scale, limit, dim

    def index(self) -> int:
        """Read the current index."""
        source = self.source
        if hasattr(source, "storage"):
            return int(source.array().flat[0])
        if source.value is None:
            raise NkiValidationError("scalar_offset register is read before anything was moved or loaded into it")
        return source.value

    def fits(self, view: NkiTensor, index: int) -> bool:
        """Whether the view, moved by the index, stays inside the tensor, and on chip inside each partition."""
        if not 0 <= index < self.limit:
            return False
        start = view.offset + index * self.scale
        low, high = views.span(view.shape, view.strides)
        if start + low < 0 or (start + high) * view.dtype.itemsize >= view.storage.nbytes:
            return False
        if not view.storage.on_chip:
            return True
        low, high = views.span(view.shape[1:], view.strides[1:])
        column = view.offset % view.partition_stride + index * self.scale
        return column + low >= 0 and column + high < view.partition_stride

    def resolve(self, view: NkiTensor) -> int:
        """Return the element offset of the view for the current index; raise NkiValidationError out of bounds."""
        index = self.index()
        if not self.fits(view, index):
            raise NkiValidationError(
                f"Out-of-bound access for tensor `{view.name}`: runtime index {index} (times {self.scale} elements, "
                f"dimension size {self.limit}) moves the pattern {view.get_pattern()} outside {view.storage.shape}"
            )
        return view.offset + index * self.scale

    def check_dry(self, view: NkiTensor) -> bool:
        """Whether the index is known in a dry run; a known index is checked against the bounds."""
        if hasattr(self.source, "storage") and not self.source.storage.known:
            return False
        self.resolve(view)
        return True

    def permuted(self, order: tuple[int, ...]) -> ScalarOffset:
        dim = None if self.dim is None else order.index(self.dim)
        return ScalarOffset(self.source, self.scale, self.limit, dim)

    def without_dim(self, gone: int, own: bool) -> ScalarOffset:
        if self.dim is None or own:
            return ScalarOffset(self.source, self.scale, self.limit, None)
        return ScalarOffset(self.source, self.scale, self.limit, self.dim - (gone < self.dim))

    def with_dim(self, new: int) -> ScalarOffset:
        dim = None if self.dim is None else self.dim + (new <= self.dim)
        return ScalarOffset(self.source, self.scale, self.limit, dim)


class VectorOffset:
    """Runtime indices in [0, ``limit``) that place row p of a view index[p] * ``scale`` elements into an HBM tensor.

    `source` is a (P, n) integer SBUF tensor, ``scale`` the elements from one row of the HBM tensor to the next, and
    `dim` the indexed dimension of the view.
    """

    __slots__ = ("dim", "limit", "scale", "source")

    def __init__(self, source: NkiTensor, scale: int, limit: int, dim: int):
        self.source, self.scale, self.limit, self.dim = source, scale, limit, dim

    def resolve(self, view: NkiTensor) -> int:
        raise NkiValidationError(
            f"`{view.name}` is addressed row by row (vector_offset), which only nisa.dma_copy, dma_compute and "
            "dma_transpose take"
        )

    def positions(self, view: NkiTensor) -> tuple[np.ndarray, np.ndarray]:
        """Return the element positions in the storage, in the shape of the view, and a mask of the rows in bounds.

        Index tensors with several columns are read column by column.
        """
        rows = self.source.array().T.reshape(-1)[: view.shape[0]].astype(np.int64)
        inner = np.zeros(view.shape[1:], np.int64)
        for axis, (n, stride) in enumerate(zip(view.shape[1:], view.strides[1:], strict=True)):
            steps = np.arange(n, dtype=np.int64) * stride
            inner = inner + steps.reshape([-1 if d == axis else 1 for d in range(view.ndim - 1)])
        starts = view.offset + rows * self.scale
        total = view.storage.nbytes // view.dtype.itemsize
        inside = (rows >= 0) & (rows < self.limit) & (starts + inner.min() >= 0) & (starts + inner.max() < total)
        return starts.reshape([-1] + [1] * (view.ndim - 1)) + inner, inside

    def check_dry(self, view: NkiTensor) -> bool:
        """Whether the indices are known in a dry run."""
        return self.source.storage.known

    def permuted(self, order: tuple[int, ...]) -> VectorOffset:
        return self

    def without_dim(self, gone: int, own: bool) -> VectorOffset:
        return self

    def with_dim(self, new: int) -> VectorOffset:
        return self


class OutOfBounds:
    """Address of a view that leaves its tensor; an instruction that uses the view raises ``message``."""

    __slots__ = ("dim", "message", "source")

    def __init__(self, message: str):
        self.message, self.source, self.dim = message, None, None

    def resolve(self, view: NkiTensor) -> int:
        raise NkiValidationError(self.message)

    check_dry = resolve

    def permuted(self, order: tuple[int, ...]) -> OutOfBounds:
        return self

    def without_dim(self, gone: int, own: bool) -> OutOfBounds:
        return self

    def with_dim(self, new: int) -> OutOfBounds:
        return self


def scalar_source(index: Any) -> Any:
    """Check that a scalar offset is a register, a scalar, or a one-element integer tensor in SBUF."""
    if hasattr(index, "storage"):
        if index.size != 1 or index.buffer.value != "sbuf" or not index.dtype.is_int:
            raise NkiValidationError(
                "scalar_offset must be a register or a (1, 1) integer tensor in sbuf, "
                f"got {index.shape} {index.dtype} in {index.buffer.value}"
            )
        return index
    if not hasattr(index, "writer") or getattr(index, "is_comparison", False):
        raise NkiValidationError(
            "scalar_offset must be a register or a (1, 1) integer tensor in sbuf, or in NKI 0.7 a scalar that is not "
            f"the result of a comparison, got {index!r}"
        )
    return index


def vector_source(offsets: Any) -> NkiTensor:
    """Check that a vector offset is a (P, n) integer tensor in SBUF."""
    if (
        not hasattr(offsets, "storage")
        or offsets.buffer.value != "sbuf"
        or not offsets.dtype.is_int
        or offsets.ndim != 2
    ):
        actual = (
            f"{offsets.shape} {offsets.dtype} in {offsets.buffer.value}"
            if hasattr(offsets, "storage")
            else repr(offsets)
        )
        raise NkiValidationError(f"vector_offset must be a (P, 1) integer tensor in sbuf, got {actual}")
    return offsets
