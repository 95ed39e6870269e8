"""`NkiTensor`: a strided view of memory, with the operations that derive another view.

Views share their memory and cost nothing at run time. On-chip tensors keep the partition dimension first, with unit
step, and have at least two dimensions. Tensors have no Python operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from trnqc.sim.machine.faults import NkiValidationError
from trnqc.sim.machine.machine import Region, current
from trnqc.sim.machine.objects import NKIObject
from trnqc.sim.machine.rules import broken
from trnqc.sim.memory import access, views
from trnqc.sim.memory.dtypes import DType, as_dtype
from trnqc.sim.memory.dynamic import OutOfBounds, ScalarOffset, VectorOffset, scalar_source, vector_source
from trnqc.sim.memory.indexing import resolve_key
from trnqc.sim.memory.storage import MemoryRegion, Storage


class NkiTensor(NKIObject):
    """A strided view of a `Storage`; kernels create tensors with ``nl.ndarray``.

    Shape, strides and offset are in elements of ``dtype``, the number format in which the view reads the memory.
    `dynamic` is the part of the address that is known only at run time: a ScalarOffset, VectorOffset, OutOfBounds or
    None.
    """

    __slots__ = ("_array", "dtype", "dynamic", "offset", "shape", "storage", "strides")
    __array_ufunc__ = None
    __iter__ = None

    def __init__(
        self, shape: tuple[int, ...], dtype: Any, storage: Any, buffer: MemoryRegion = MemoryRegion.sbuf, name: str = ""
    ):
        if not isinstance(storage, Storage) or storage.buffer is not buffer:
            raise NkiValidationError("NkiTensor needs a storage of the named buffer; make tensors with nl.ndarray")
        self._set(storage, tuple(shape), views.row_major(shape), 0, as_dtype(dtype), None)

    def _set(
        self,
        storage: Storage,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        offset: int,
        dtype: DType,
        dynamic: ScalarOffset | VectorOffset | OutOfBounds | None,
    ) -> None:
        self.storage = storage
        self.shape = shape
        self.strides = strides
        self.offset = offset
        self.dtype = dtype
        self.dynamic = dynamic
        self._array: np.ndarray | None = None

    def _view(self, shape: Sequence[int], strides: Sequence[int], offset: int) -> NkiTensor:
        new = object.__new__(NkiTensor)
        new._set(self.storage, tuple(shape), tuple(strides), offset, self.dtype, self.dynamic)
        return new

    @property
    def buffer(self) -> MemoryRegion:
        return self.storage.buffer

    @property
    def name(self) -> str:
        return self.storage.name

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def on_chip(self) -> bool:
        return self.storage.on_chip

    @property
    def partition_stride(self) -> int:
        """Elements per partition of the storage, counted in the dtype of this view."""
        storage = self.storage
        return storage.free * storage.dtype.itemsize // self.dtype.itemsize

    @property
    def start_partition(self) -> int:
        return self.storage.base_partition + self.offset // self.partition_stride

    def __repr__(self) -> str:
        return f"NkiTensor(`{self.name}`, shape={self.shape}, dtype={self.dtype}, buffer={self.buffer.value})"

    def __array__(self, *_: object, **__: object) -> np.ndarray:
        raise TypeError("an NkiTensor is device memory and cannot become a NumPy array inside a kernel")

    # -- data ---------------------------------------------------------------------------------------------------------

    def array(self) -> np.ndarray:
        """Return the elements as a NumPy view of the memory, at the current value of a scalar offset."""
        if self._array is not None:
            return self._array
        offset = self.offset if self.dynamic is None else self.dynamic.resolve(self)
        array = self.array_at(offset)
        if self.dynamic is None:
            self._array = array
        return array

    def array_at(self, offset: int) -> np.ndarray:
        """Return the elements as a NumPy view of the memory, starting at element ``offset``."""
        item = self.dtype.itemsize
        strides = tuple([s * item for s in self.strides])
        return np.ndarray(self.shape, self.dtype.numpy, self.storage.raw, offset * item, strides)

    def psum_key(self) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        """Region of the PSUM tile as (offset, shape, strides) in its elements.

        A view with another element size counts as the whole tile.
        """
        storage = self.storage
        if self.dtype.itemsize != storage.dtype.itemsize:
            return 0, (storage.size,), (1,)
        offset = self.offset if self.dynamic is None else self.dynamic.resolve(self)
        return offset, self.shape, self.strides

    def region(self) -> Region:
        """Return the partitions and bytes that the view touches, for instruction records."""
        item, free = self.dtype.itemsize, self.partition_stride
        if not self.on_chip:
            low, high = views.span(self.shape, self.strides)
            span = ((self.offset + low) * item, (self.offset + high + 1) * item)
            return Region(self.buffer.value, id(self.storage), (0, 1), span, self.size, self.dtype.name)
        low, high = views.span(self.shape[1:], self.strides[1:])
        start, column = self.start_partition, self.offset % free
        tile = self.storage.record.id if self.storage.record is not None else 0
        span = ((column + low) * item, (column + high + 1) * item)
        return Region(self.buffer.value, tile, (start, start + self.shape[0]), span, self.size, self.dtype.name)

    # -- queries ------------------------------------------------------------------------------------------------------

    def is_contiguous(self) -> bool:
        """Whether the view is dense in row-major order; on-chip tensors, whether each partition is."""
        first = 1 if self.on_chip else 0
        return views.is_dense(self.shape[first:], self.strides[first:])

    def get_pattern(self) -> list[list[int]]:
        """Return the access pattern [[stride, count], ...] in elements."""
        return [[s, n] for s, n in zip(self.strides, self.shape, strict=True)]

    def is_indirect(self) -> bool:
        """Whether part of the address is known only at run time."""
        return self.dynamic is not None

    # -- views --------------------------------------------------------------------------------------------------------

    def _dim(self, dim: int, what: str, keep_first: bool = False) -> int:
        """Resolve a negative dimension number, and refuse dimension 0 on request where it is fixed."""
        where = dim + self.ndim if dim < 0 else dim
        if not 0 <= where < self.ndim:
            raise NkiValidationError(f"{what} dim must be within [0, {self.ndim}), got {dim}")
        if keep_first and where == 0 and self._first_is_fixed():
            raise NkiValidationError(f"{what} cannot change the partition dimension (dim 0) of {self!r}")
        return where

    def _first_is_fixed(self) -> bool:
        return self.on_chip or isinstance(self.dynamic, VectorOffset)

    def _not_indirect(self, dim: int, what: str) -> None:
        if self.dynamic is not None and dim == self.dynamic.dim:
            raise NkiValidationError(f"{what}: dimension {dim} of `{self.name}` takes part in indirect addressing")

    def __getitem__(self, key: Any) -> NkiTensor:
        return resolve_key(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        broken(
            "tensors cannot be assigned to; copy with nisa.dma_copy or nisa.tensor_copy(dst=..., src=...)",
            "rejected",
            error=TypeError,
        )
        current().assign(self[key], value)

    def slice(self, dim: int, start: int, end: int, step: int = 1) -> NkiTensor:
        """Return elements start, start + step, ... below ``end`` of dimension ``dim``."""
        dim = self._dim(dim, "slice")
        self._not_indirect(dim, "slice")
        views.check_range(self.name, dim, self.shape[dim], start, end, step)
        if dim == 0 and self.on_chip and step != 1:
            raise NkiValidationError(f"slice on the partition dimension must have step 1, got {step}")
        shape, strides = list(self.shape), list(self.strides)
        shape[dim] = -((start - end) // step)
        strides[dim] *= step
        return self._view(shape, strides, self.offset + start * self.strides[dim])

    def select(self, dim: int, index: Any) -> NkiTensor:
        """Take one index of a dimension and remove the dimension.

        ``index`` is an integer, a register or a (1, 1) integer SBUF tensor.
        """
        dim = self._dim(dim, "select")
        if isinstance(index, (int, np.integer)):
            kept = self.slice(dim, int(index), int(index) + 1)
            return kept if dim == 0 and self.on_chip else kept._drop(dim)
        if self.on_chip and dim == 0:
            raise NkiValidationError("select with a runtime index cannot take the partition dimension (dim 0)")
        self._one_dynamic("select")
        new = self._view(self.shape, self.strides, self.offset)
        new.dynamic = ScalarOffset(scalar_source(index), self.strides[dim], self.shape[dim], dim)
        shape, strides = list(self.shape), list(self.strides)
        shape[dim] = 1
        return new._view(shape, strides, self.offset)._drop(dim, dynamic_dim=None)

    def _drop(self, dim: int, dynamic_dim: int | None = -1) -> NkiTensor:
        """Remove a dimension of size 1, unless the view has the smallest rank that its memory allows."""
        if self.ndim == (2 if self.on_chip else 1):
            return self
        shape, strides = list(self.shape), list(self.strides)
        del shape[dim], strides[dim]
        new = self._view(shape, strides, self.offset)
        if new.dynamic is not None:
            new.dynamic = new.dynamic.without_dim(dim, dynamic_dim is None)
        return new

    def _one_dynamic(self, what: str) -> None:
        if self.dynamic is not None:
            raise NkiValidationError(f"{what}: `{self.name}` is indirect already; only one runtime index per tensor")

    def vector_select(self, dim: int, vector_offset: NkiTensor) -> NkiTensor:
        """Select row ``vector_offset[p]`` of an HBM tensor for each partition p.

        ``vector_offset`` is a (P, 1) integer SBUF tensor; ``dim`` must be 0.
        """
        if dim != 0 or self.on_chip:
            raise NkiValidationError(
                f"vector_select needs dim 0 of an HBM tensor, got dim {dim} in {self.buffer.value}"
            )
        self._one_dynamic("vector_select")
        source = vector_source(vector_offset)
        new = self._view((source.shape[0], *self.shape[1:]), self.strides, self.offset)
        new.dynamic = VectorOffset(source, self.strides[0], self.shape[0], 0)
        return new

    def permute(self, dims: Sequence[int]) -> NkiTensor:
        """Reorder the dimensions; dimension 0 of on-chip tensors must stay first."""
        order = tuple(int(d) for d in dims)
        if sorted(order) != list(range(self.ndim)):
            raise NkiValidationError(f"permute dims must be a permutation of range({self.ndim}), got {tuple(dims)}")
        if order[0] != 0 and self._first_is_fixed():
            raise NkiValidationError(f"permute must keep the partition dimension first, got {order}")
        new = self._view([self.shape[d] for d in order], [self.strides[d] for d in order], self.offset)
        if new.dynamic is not None:
            new.dynamic = new.dynamic.permuted(order)
        return new

    def broadcast(self, dim: int, size: int) -> NkiTensor:
        """Repeat a dimension of size 1 ``size`` times; the partition dimension cannot be repeated."""
        dim = self._dim(dim, "broadcast", keep_first=True)
        if self.shape[dim] != 1 or size < 1:
            raise NkiValidationError(f"broadcast needs a dimension of size 1, got size {self.shape[dim]} on dim {dim}")
        shape, strides = list(self.shape), list(self.strides)
        shape[dim], strides[dim] = int(size), 0
        return self._view(shape, strides, self.offset)

    def expand_dim(self, dim: int) -> NkiTensor:
        """Insert a dimension of size 1 before dimension ``dim``."""
        where = dim + self.ndim + 1 if dim < 0 else dim
        if not 0 <= where <= self.ndim or (where == 0 and self._first_is_fixed()):
            raise NkiValidationError(f"expand_dim cannot insert before dim {dim} of {self!r}")
        step = self.strides[where] * self.shape[where] if where < self.ndim else 1
        new = self._view(
            (*self.shape[:where], 1, *self.shape[where:]),
            (*self.strides[:where], step, *self.strides[where:]),
            self.offset,
        )
        if new.dynamic is not None:
            new.dynamic = new.dynamic.with_dim(where)
        return new

    def squeeze_dim(self, dim: int) -> NkiTensor:
        """Remove a dimension of size 1."""
        dim = self._dim(dim, "squeeze_dim", keep_first=True)
        if self.shape[dim] != 1 or self.ndim == (2 if self.on_chip else 1):
            raise NkiValidationError(f"squeeze_dim cannot remove dim {dim} of shape {self.shape}")
        self._not_indirect(dim, "squeeze_dim")
        return self._drop(dim)

    def reshape_dim(self, dim: int, shape: Sequence[int]) -> NkiTensor:
        """Split dimension ``dim`` into the sizes ``shape``; one size may be -1."""
        where = self._dim(dim, "reshape_dim")
        sizes = views.resolve_sizes(shape, self.shape[where], "reshape_dim shape")
        if len(sizes) > 1 and where == 0 and self._first_is_fixed():
            raise NkiValidationError("reshape_dim cannot split the partition dimension (dim 0)")
        inner = tuple(self.strides[where] * s for s in views.row_major(sizes))
        return self._regroup(
            (*self.shape[:where], *sizes, *self.shape[where + 1 :]),
            (*self.strides[:where], *inner, *self.strides[where + 1 :]),
            "reshape_dim",
        )

    def flatten_dims(self, start_dim: int, end_dim: int) -> NkiTensor:
        """Merge dimensions start_dim to end_dim (inclusive), which must be contiguous with each other."""
        start, end = self._dim(start_dim, "flatten_dims"), self._dim(end_dim, "flatten_dims")
        if start > end or (start == 0 and end > 0 and self._first_is_fixed()):
            raise NkiValidationError(f"flatten_dims cannot merge dims {start_dim}..{end_dim} of {self!r}")
        shape = (*self.shape[:start], prod(self.shape[start : end + 1]), *self.shape[end + 1 :])
        return self.reshape(shape)

    def reshape(self, shape: Sequence[int]) -> NkiTensor:
        """Change the shape without a copy; dimension 0 of on-chip tensors keeps its size.

        Raises
        ------
        NkiValidationError
            If the strides of the view do not allow the new shape without a copy.
        """
        sizes = views.resolve_sizes(shape, self.size, "reshape shape")
        if self._first_is_fixed() and sizes[0] != self.shape[0]:
            raise NkiValidationError(f"Partition dim size must be preserved, got {self.shape[0]} -> {sizes[0]}")
        if self._first_is_fixed():
            if len(sizes) < 2:
                raise NkiValidationError(f"reshape: on-chip tensors have at least 2 dimensions, got {sizes}")
            rest = views.reshape_strides(self.shape[1:], self.strides[1:], sizes[1:])
            strides = None if rest is None else (self.strides[0], *rest)
        else:
            strides = views.reshape_strides(self.shape, self.strides, sizes)
        if strides is None:
            raise NkiValidationError(
                f"reshape {self.shape} -> {sizes} needs a copy: the view has strides {self.strides}; copy it first"
            )
        return self._regroup(sizes, strides, "reshape")

    def _regroup(self, shape: Sequence[int], strides: Sequence[int], what: str) -> NkiTensor:
        if isinstance(self.dynamic, ScalarOffset) and self.dynamic.dim is not None:
            raise NkiValidationError(f"{what}: `{self.name}` is addressed by a runtime index and cannot be regrouped")
        return self._view(shape, strides, self.offset)

    def rearrange(
        self, src_pattern: tuple[Any, ...], dst_pattern: tuple[Any, ...], fixed_sizes: dict[str, int] | None = None
    ) -> NkiTensor:
        """Split, reorder and merge named dimensions, as ``einops.rearrange`` does.

        Parameters
        ----------
        src_pattern, dst_pattern : tuple
            Names of the dimensions before and after; a tuple of names stands for one merged dimension.
        fixed_sizes : dict of str to int, optional
            Sizes of the names in split dimensions.
        """
        return access.rearrange(self, src_pattern, dst_pattern, fixed_sizes or {})

    def view(self, dtype: Any) -> NkiTensor:
        """Read the same bytes in another dtype; the last dimension must be dense and its size changes."""
        new_dtype = as_dtype(dtype)
        old, new = self.dtype.itemsize, new_dtype.itemsize
        if self.dynamic is not None:
            raise NkiValidationError("view(dtype) is not available on an indirect view")
        if old != new and self.shape[-1] != 1 and self.strides[-1] != 1:
            raise NkiValidationError(f"view(dtype) needs a dense last dimension, got stride {self.strides[-1]}")
        counts = [*self.strides[:-1], self.offset, self.shape[-1]]
        if any(n * old % new for n in counts):
            raise NkiValidationError(f"view {self.dtype} -> {new_dtype}: sizes {counts} are not whole multiples")
        result = self._view(
            (*self.shape[:-1], self.shape[-1] * old // new),
            (*(s * old // new for s in self.strides[:-1]), 1),
            self.offset * old // new,
        )
        result.dtype = new_dtype
        return result

    reinterpret_cast = view

    def ap(
        self,
        pattern: Sequence[Sequence[int]],
        offset: int | None = None,
        scalar_offset: Any = None,
        vector_offset: Any = None,
        indirect_dim: int = 0,
        dtype: Any = None,
    ) -> NkiTensor:
        """View the memory by a raw access pattern.

        Parameters
        ----------
        pattern : sequence of (int, int)
            [[step, count], ...] in elements of the result's dtype.
        offset : int, optional
            First element of the memory; by default the start of this view.
        scalar_offset : VirtualRegister, NkiScalar or NkiTensor, optional
            Runtime index, a register, scalar or (1, 1) integer SBUF tensor, that moves the whole pattern.
        vector_offset : NkiTensor, optional
            Runtime indices, a (P, 1) integer SBUF tensor, that move each row; for dimension 0 of HBM tensors.
        indirect_dim : int
            Dimension of this view that runtime indices count: each unit is prod(shape[indirect_dim + 1:]) elements.
        dtype : DType, optional
            Dtype of the result; by default that of this view.

        Raises
        ------
        NkiValidationError
            If the pattern is malformed or its runtime index is not supported; a pattern that leaves the tensor is
            refused by the first instruction that uses it.
        """
        new_dtype = self.dtype if dtype is None else as_dtype(dtype)
        steps, counts = access.check_pattern(pattern)
        start = self.offset * self.dtype.itemsize // new_dtype.itemsize if offset is None else int(offset)
        new = object.__new__(NkiTensor)
        new._set(self.storage, counts, steps, start, new_dtype, None)
        if scalar_offset is None and vector_offset is None:
            access.check_bounds(new)
            return new
        if scalar_offset is not None and vector_offset is not None:
            raise NkiValidationError("ap takes at most one of scalar_offset and vector_offset")
        if not 0 <= indirect_dim < self.ndim:
            raise NkiValidationError(f"ap indirect_dim must be within [0, {self.ndim}), got {indirect_dim}")
        scale, limit = prod(self.shape[indirect_dim + 1 :]), self.shape[indirect_dim]
        if vector_offset is not None:
            new.dynamic = access.vector_offset(self, vector_offset, indirect_dim, scale, limit, counts)
            new.strides = (0, *steps[1:])
        else:
            if self.on_chip and indirect_dim == 0:
                raise NkiValidationError("ap scalar_offset cannot move along the partition dimension of on-chip memory")
            new.dynamic = ScalarOffset(scalar_source(scalar_offset), scale, limit, None)
        access.check_bounds(new)
        return new
