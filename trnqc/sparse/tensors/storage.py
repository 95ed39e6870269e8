"""A sparse tensor as a tree of levels (compressed sparse fibres), any of which may be dense.

An element that is not stored is zero and is never multiplied. A zero of a dense level is multiplied, so that its
product with an infinity is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from trnqc.errors import InputError, OperandError
from trnqc.host.memory import require_memory
from trnqc.sparse.network.nest import Kind
from trnqc.sparse.tensors.checks import as_double, checked_coordinates, checked_layout, is_valid_level, plain_array
from trnqc.sparse.tensors.levels import Compressed, Dense, Level, join, ordered, pack

if TYPE_CHECKING:
    import scipy.sparse
    import torch


FLOAT64: np.dtype = np.dtype(np.float64)
# The types in which values are held.
DOUBLES = (FLOAT64, np.dtype(np.complex128))


@dataclass(frozen=True, eq=False)
class SparseTensor:
    """A sparse tensor.

    `from_coo`, `from_dense`, `from_scipy`, `from_pydata`, `from_torch` and `read_tns` construct it.

    Attributes
    ----------
    shape
        The extents of the modes.
    order
        The modes, outermost level first.
    levels
        One level for each mode, in this order.
    values
        float64 or complex128, one value for each position of the last level; None for a 0/1 map, whose stored elements
        are all 1.
    dtype
        The type in which elements are returned.
    """

    shape: tuple[int, ...]
    order: tuple[int, ...]
    levels: tuple[Level, ...]
    values: np.ndarray | None
    dtype: np.dtype = FLOAT64
    _counts: dict[tuple[int, ...], int] = field(default_factory=dict, repr=False)

    @property
    def ndim(self) -> int:
        """Number of modes."""
        return len(self.shape)

    @cached_property
    def kinds(self) -> tuple[Kind, ...]:
        """The kind of each level, outermost first."""
        return tuple("dense" if isinstance(level, Dense) else "compressed" for level in self.levels)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of positions of each level, outermost first."""
        counts = [1]
        for level in self.levels:
            counts.append(counts[-1] * level.size if isinstance(level, Dense) else len(level.coordinates))
        return tuple(counts[1:])

    @property
    def size(self) -> int:
        """Number of positions of the last level, each of which has a value."""
        return self.sizes[-1] if self.levels else 1

    @cached_property
    def nnz(self) -> int:
        """Number of stored elements, not counting the zeros with which a dense last level is padded."""
        if self.values is None or "compressed" in self.kinds[-1:]:
            return self.size
        return int(np.count_nonzero(self.values))

    @property
    def fill(self) -> float:
        """The fraction of all elements that is stored; 1 for a tensor of size 0."""
        return self.nnz / math.prod(self.shape) if math.prod(self.shape) else 1.0

    @cached_property
    def ones(self) -> bool:
        """Whether every stored element is 1. Values are then needed only if the last level is dense."""
        if self.values is None:
            return True
        # The first value answers for most tensors. It may be a zero that is not stored.
        return self.values[:1].tolist() in ([], [0.0], [1.0]) and bool((self._stored() == 1).all())

    @cached_property
    def parts(self) -> tuple[SparseTensor, SparseTensor]:
        """The real and the imaginary part of a complex tensor in float64, with the same stored elements."""
        assert self.values is not None and self.values.dtype.kind == "c"
        halves = (np.ascontiguousarray(half) for half in (self.values.real, self.values.imag))
        real, imaginary = (replace(self, values=half, dtype=FLOAT64, _counts={}) for half in halves)
        return real, imaginary

    @property
    def bytes(self) -> int:
        """Memory of levels and values."""
        arrays = [a for x in self.levels if isinstance(x, Compressed) for a in (x.positions, x.coordinates)]
        return sum(a.nbytes for a in arrays) + (0 if self.values is None else self.values.nbytes)

    def __str__(self) -> str:
        levels = " ".join(f"{mode}:{kind}" for mode, kind in zip(self.order, self.kinds, strict=True))
        shape = "x".join(map(str, self.shape)) or "scalar"
        map_ = ", 0/1 map" * (self.values is None)
        return f"SparseTensor {shape}, {self.nnz} elements ({self.fill:.2%}), levels ({levels}){map_}, {self.bytes} B"

    def nonzeros(self, modes: Sequence[int]) -> int:
        """Return the number of distinct coordinates that the stored elements have in some modes; counted once."""
        key = tuple(sorted(set(modes)))
        if key not in self._counts:
            self._counts[key] = self._distinct(key)
        return self._counts[key]

    def _distinct(self, modes: tuple[int, ...]) -> int:
        extents = [self.shape[mode] for mode in modes]
        if not modes or self.nnz in (0, math.prod(self.shape)):
            return min(self.nnz, math.prod(extents))
        depth = 1 + max((self.order.index(mode) for mode in modes), default=-1)
        coordinates = self._coordinates(modes, depth)
        keys, bound = join(coordinates, extents)
        if bound <= max(2**26, 8 * len(keys)):
            seen = np.zeros(bound, bool)
            seen[keys] = True
            return int(np.count_nonzero(seen))
        keys.sort()
        return 1 + int(np.count_nonzero(np.diff(keys)))

    def _coordinates(self, modes: Sequence[int], depth: int) -> np.ndarray:
        """Return coordinates, int64 [modes, n], of the positions of level `depth` with stored elements below."""
        at = self._occupied(depth)
        by_mode = {}
        for mode, level in zip(self.order[depth - 1 :: -1] if depth else (), self.levels[depth - 1 :: -1]):
            if isinstance(level, Dense):
                at, by_mode[mode] = np.divmod(at, level.size)
            else:
                by_mode[mode] = level.coordinates[at]
                at = np.repeat(np.arange(len(level.positions) - 1), np.diff(level.positions))[at]
        coordinates = np.empty((len(modes), len(at)), np.int64)
        for row, mode in zip(coordinates, modes):
            row[:] = by_mode[mode]
        return coordinates

    def _occupied(self, depth: int) -> np.ndarray:
        """Return the positions of level `depth` (counted from 1) with a stored element below, in increasing order."""
        size = self.sizes[depth - 1] if depth else 1
        below = next((level for level in self.levels[depth:] if isinstance(level, Compressed)), None)
        leaves = np.diff(below.positions) if below else self.values
        if leaves is None or not size or (below is None and "compressed" in self.kinds[-1:]):
            return np.arange(size)
        return np.flatnonzero(np.not_equal(leaves, 0).reshape(size, -1).any(axis=1))

    def to_coo(self) -> tuple[np.ndarray, np.ndarray]:
        """Return coordinates and values of the stored elements, sorted by the levels in `order`.

        Returns
        -------
        (numpy.ndarray, numpy.ndarray)
            Coordinates int64 [ndim, nnz] and values [nnz] of `dtype`.
        """
        coordinates, values = self.elements()
        return coordinates, rounded(values, self.dtype)

    def elements(self) -> tuple[np.ndarray, np.ndarray]:
        """Return coordinates and values as `to_coo` does, but with values in float64 or complex128."""
        return self._coordinates(range(self.ndim), self.ndim), self._stored()

    def _stored(self) -> np.ndarray:
        if self.values is None:
            return np.ones(self.nnz)
        return self.values if "compressed" in self.kinds[-1:] else self.values[self.values != 0]

    def to_dense(self) -> np.ndarray:
        """Return the array in C order. Raises MemoryLimit."""
        return rounded(self._dense(), self.dtype)

    def _dense(self) -> np.ndarray:
        dtype = FLOAT64 if self.values is None else self.values.dtype
        require_memory(math.prod(self.shape) * dtype.itemsize, f"the dense array of shape {self.shape}")
        if "compressed" not in self.kinds and self.values is not None:
            stored = self.values.reshape([self.shape[mode] for mode in self.order])
            return np.asarray(stored.transpose(np.argsort(self.order)), order="C")
        result = np.zeros(self.shape, dtype)
        coordinates, values = self.elements()
        result[tuple(coordinates)] = values
        return result

    def to_scipy(self) -> scipy.sparse.coo_array:
        """Return SciPy's coordinate array of the stored elements.

        It has float32 elements for float16, which SciPy does not support. More than two modes need SciPy 1.15.
        """
        import scipy.sparse

        coordinates, values = self.to_coo()
        values = values.astype(np.float32) if values.dtype == np.float16 else values
        return scipy.sparse.coo_array((values, tuple(coordinates)), shape=self.shape)

    def to_pydata(self, format: Literal["coo", "gcxs"] = "coo") -> Any:
        """Return the array of PyData's package sparse of the stored elements, COO or GCXS, of `dtype`."""
        import sparse

        if format not in ("coo", "gcxs"):
            raise InputError(f"format is 'coo' or 'gcxs'; found {format!r}")
        compressed: list[Kind] = ["compressed"] * self.ndim
        coordinates, values = self.repack(range(self.ndim), compressed).to_coo()
        coo = sparse.COO(coordinates, values.copy(), shape=self.shape, has_duplicates=False, sorted=True)
        return coo if format == "coo" else coo.asformat("gcxs")

    def to_torch(self) -> torch.Tensor:
        """Return PyTorch's coalesced sparse COO tensor of the stored elements, of `dtype` on the CPU."""
        import torch

        compressed: list[Kind] = ["compressed"] * self.ndim
        coordinates, values = self.repack(range(self.ndim), compressed).to_coo()
        at, numbers = torch.from_numpy(coordinates), torch.from_numpy(values.copy())
        return torch.sparse_coo_tensor(at, numbers, self.shape, is_coalesced=True, check_invariants=False)

    def repack(self, order: Sequence[int], kinds: Sequence[Kind]) -> SparseTensor:
        """Return the same elements in other levels; the tensor itself if it has these levels already.

        A 0/1 map gets values only if a dense last level pads it with zeros.

        Parameters
        ----------
        order
            Modes, outermost level first.
        kinds
            ``"dense"`` or ``"compressed"`` for each level.

        Raises
        ------
        OperandError
            If `order` or `kinds` are invalid.
        MemoryLimit
            If a dense level exceeds the memory.
        """
        if tuple(order) == self.order and tuple(kinds) == self.kinds:
            return self
        if "compressed" not in (*kinds, *self.kinds):
            return replace(from_dense(self._dense(), order, kinds), dtype=self.dtype)
        coordinates, values = self.elements()
        packed = from_coo(self.shape, coordinates, None if self.values is None else values, order, kinds)
        return replace(packed, dtype=self.dtype)

    def check(self) -> SparseTensor:
        """Check levels that other code has constructed, and return the tensor itself.

        Raises
        ------
        OperandError
            If levels or values are malformed.
        """
        checked_layout(self.shape, self.order, self.kinds, "dense")
        parents = 1
        for mode, level, size in zip(self.order, self.levels, self.sizes):
            if not is_valid_level(level, self.shape[mode], parents):
                raise OperandError(
                    f"the level of mode {mode} (extent {self.shape[mode]}) under {parents} parents is malformed"
                )
            parents = size
        if self.values is not None and (self.values.shape != (parents,) or self.values.dtype not in DOUBLES):
            raise OperandError(
                f"values must be float64 or complex128 [{parents}]; found {self.values.dtype} {list(self.values.shape)}"
            )
        return self


def from_coo(
    shape: Sequence[int],
    coordinates: Any,
    values: Any = None,
    order: Sequence[int] | None = None,
    kinds: Sequence[Kind] | None = None,
) -> SparseTensor:
    """Pack a tensor given by its elements.

    Parameters
    ----------
    shape
        The extents of the modes.
    coordinates
        Integers [ndim, nnz]. Values at equal coordinates are added in their order.
    values
        Real or complex numbers [nnz]; zeros are kept. Without values, or with bool values, of which only True is
        stored, the tensor is a 0/1 map.
    order
        Modes, outermost level first; by default 0, 1, ...
    kinds
        ``"dense"`` or ``"compressed"`` for each level; by default all compressed.

    Raises
    ------
    OperandError
        If coordinates are out of range, lengths differ, or values are no numbers.
    MemoryLimit
        If a dense level exceeds the memory.

    Examples
    --------
    >>> print(from_coo((2, 3), [[0, 1, 1], [2, 0, 0]], [1.0, 2.0, 3.0]))
    SparseTensor 2x3, 2 elements (33.33%), levels (0:compressed 1:compressed), 72 B
    """
    shape = tuple(int(extent) for extent in shape)
    order, kinds = checked_layout(shape, order, kinds, "compressed")
    rows = checked_coordinates(shape, coordinates)
    dtype = FLOAT64
    if values is not None:
        values = plain_array(values, "values")
        if values.shape != (rows.shape[1],):
            raise OperandError(f"{rows.shape[1]} coordinates need as many values; found an array {list(values.shape)}")
        if values.dtype == bool:
            rows, values = rows[:, values], None
        else:
            dtype, values = floating(values.dtype), as_double(values)
    extents = [shape[mode] for mode in order]
    sorted_rows, values = ordered([rows[mode] for mode in order], extents, values, rows.shape[1])
    elements = len(sorted_rows[0]) if shape else min(rows.shape[1], 1)
    return SparseTensor(shape, order, *pack(extents, kinds, sorted_rows, values, elements), dtype)


def from_dense(array: Any, order: Sequence[int] | None = None, kinds: Sequence[Kind] | None = None) -> SparseTensor:
    """Pack an array.

    Parameters
    ----------
    array
        Real or complex numbers, or bool for a 0/1 map. Compressed levels store the elements that are not zero.
    order, kinds
        See `from_coo`. By default all levels are dense, and compressed for a 0/1 map. If all levels are dense in C
        order, the tensor shares the memory of the array if possible.

    Raises
    ------
    OperandError, MemoryLimit
        See `from_coo`.
    """
    array = plain_array(array, "the array")
    order, kinds = checked_layout(array.shape, order, kinds, "compressed" if array.dtype == bool else "dense")
    if "compressed" in kinds:
        nonzero = np.array(np.nonzero(array), np.int64).reshape(array.ndim, -1)
        return from_coo(array.shape, nonzero, array[tuple(nonzero)], order, kinds)
    values = np.ascontiguousarray(as_double(array).transpose(order).reshape(-1))
    levels = tuple(Dense(array.shape[mode]) for mode in order)
    return SparseTensor(array.shape, order, levels, values, floating(array.dtype))


def floating(dtype: np.dtype) -> np.dtype:
    """Return the type of results for operands of a type: the type itself if it is real or complex, else float64."""
    return dtype.newbyteorder("=") if dtype.kind in "fc" else FLOAT64


def rounded(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Convert float64 or complex128 numbers to a smaller type; numbers that overflow become infinite."""
    with np.errstate(over="ignore"):
        return values.astype(dtype, copy=False)
