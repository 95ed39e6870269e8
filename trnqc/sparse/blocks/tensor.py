"""`BlockTensor`: dense blocks on a grid of block boundaries, of which only some are stored.

blocks by coordinates, or a dense array and sizes -> pattern and one array of all values -> blocks, dense array
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np

from trnqc.errors import OperandError
from trnqc.host.memory import require_memory
from trnqc.sparse.blocks.charges import BlockCharges
from trnqc.sparse.blocks.homes import BlockCopy, dense_homes, plain_homes
from trnqc.sparse.blocks.pattern import BlockPattern, Sizes, every_block
from trnqc.sparse.tensors.checks import plain_array

Coordinates = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class BlockTensor:
    """A tensor of dense blocks of which only some are stored. The others are zero.

    `BlockTensor.from_blocks` and `BlockTensor.from_dense` construct it. It is immutable.

    Attributes
    ----------
    pattern
        Sizes of the blocks of each mode, coordinates of the stored blocks, quantum numbers.
    values
        The elements of all stored blocks in the order of the pattern, each block in C order. Read only.

    Examples
    --------
    >>> import numpy as np
    >>> x = BlockTensor.from_blocks({(0, 0): np.ones((2, 3)), (1, 1): np.ones((1, 2))})
    >>> x
    BlockTensor 3x5, 2 of 4 blocks, 8 elements (53.33%), float64
    >>> x.to_dense()
    array([[1., 1., 1., 0., 0.],
           [1., 1., 1., 0., 0.],
           [0., 0., 0., 1., 1.]])
    """

    pattern: BlockPattern
    values: np.ndarray

    def __post_init__(self) -> None:
        if self.values.shape != (self.pattern.size,):
            raise OperandError(
                f"the pattern has {self.pattern.size} elements; found values of shape {self.values.shape}"
            )
        # The caller's array stays writable.
        object.__setattr__(self, "values", self.values.view())
        self.values.setflags(write=False)

    @staticmethod
    def from_blocks(
        blocks: Mapping[Coordinates, Any] | Iterable[tuple[Coordinates, Any]],
        sizes: Sequence[Sequence[int] | None] | None = None,
        charges: BlockCharges | None = None,
    ) -> BlockTensor:
        """Return the tensor of these blocks.

        Parameters
        ----------
        blocks
            Array by block coordinates, as a mapping or as pairs. The arrays are copied.
        sizes
            For each mode the extents of its blocks. Without it, or where it is None, extents are those of the blocks.
        charges
            Quantum numbers.

        Raises
        ------
        OperandError
            If two blocks have the same coordinates, a block has another shape than its place, sizes cannot be
            inferred, or a block breaks the rule of the quantum numbers.
        """
        items = [
            (_coordinates(at), plain_array(block, f"block {at}"))
            for at, block in (blocks.items() if isinstance(blocks, Mapping) else blocks)
        ]
        items.sort(key=lambda item: item[0])
        for (at, _), (after, _) in pairwise(items):
            if at == after:
                raise OperandError(f"blocks must not overlap; found two blocks at {at}")
        grid = _sizes(items, sizes)
        ndim = len(grid)
        for at, block in items:
            if len(at) != ndim or any(not 0 <= n < len(mode) for n, mode in zip(at, grid)):
                raise OperandError(f"blocks are at coordinates below {tuple(map(len, grid))}; found {at}")
            expected = tuple(mode[n] for n, mode in zip(at, grid))
            if block.shape != expected:
                raise OperandError(f"block {at} must have the shape {expected}; found {block.shape}")
        dtype = block_dtype(np.result_type(*{block.dtype for _, block in items}) if items else np.dtype(float))
        coordinates = np.array([at for at, _ in items], np.int64).reshape(len(items), ndim)
        if charges is not None:
            charges.check(grid, coordinates)
        values = np.concatenate([block.reshape(-1) for _, block in items]) if items else np.empty(0)
        return BlockTensor(BlockPattern(grid, coordinates, charges), values.astype(dtype, copy=False))

    @staticmethod
    def from_dense(
        array: Any,
        sizes: Sequence[Sequence[int]],
        threshold: float = 0.0,
        charges: BlockCharges | None = None,
    ) -> BlockTensor:
        """Return the tensor of those blocks of an array that have an element larger than a threshold.

        Parameters
        ----------
        array
            The array.
        sizes
            For each mode the extents of its blocks.
        threshold
            Blocks whose largest absolute value is at most this are dropped. NaN is larger.
        charges
            Quantum numbers. A block that they forbid and that is not dropped is an error.

        Raises
        ------
        OperandError
            If sizes do not add up to the shape, or a block breaks the rule of the quantum numbers.
        """
        dense = plain_array(array, "the array")
        grid = _checked(sizes)
        if tuple(map(sum, grid)) != dense.shape:
            raise OperandError(
                f"sizes must add up to the shape {dense.shape}; those given add up to {tuple(map(sum, grid))}"
            )
        pattern = every_block(grid)
        values = dense.reshape(-1).take(pattern.in_dense())
        magnitudes = np.abs(values)
        largest = np.maximum.reduceat(magnitudes, pattern.offsets[:-1]) if len(pattern) else magnitudes
        kept = ~(largest <= threshold)
        coordinates = pattern.coordinates[kept]
        if charges is not None:
            charges.check(grid, coordinates)
        stored = values[np.repeat(kept, np.diff(pattern.offsets))]
        return BlockTensor(
            BlockPattern(grid, coordinates, charges), stored.astype(block_dtype(dense.dtype), copy=False)
        )

    @property
    def ndim(self) -> int:
        """Number of modes."""
        return self.pattern.ndim

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of the modes."""
        return self.pattern.shape

    @property
    def sizes(self) -> Sizes:
        """For each mode the extents of its blocks."""
        return self.pattern.sizes

    @property
    def charges(self) -> BlockCharges | None:
        """Quantum numbers, if there are any."""
        return self.pattern.charges

    @property
    def dtype(self) -> np.dtype:
        """The type of the elements."""
        return self.values.dtype

    @property
    def nnz(self) -> int:
        """Number of elements of the stored blocks."""
        return self.pattern.size

    @cached_property
    def blocks(self) -> Mapping[Coordinates, np.ndarray]:
        """The stored blocks by their coordinates, as views that are read only."""
        begins, shapes = self.pattern.offsets.tolist(), self.pattern.block_shapes.tolist()
        return MappingProxyType(
            {
                tuple(at): self.values[begins[n] : begins[n + 1]].reshape(shapes[n])
                for n, at in enumerate(self.pattern.coordinates.tolist())
            }
        )

    def to_dense(self) -> np.ndarray:
        """Return the array in C order, with zeros for blocks that are not stored. Raises MemoryLimit."""
        extents = math.prod(self.shape)
        require_memory(extents * self.dtype.itemsize, f"the dense array of shape {self.shape}")
        copied = BlockCopy(plain_homes(self.pattern), dense_homes(self.pattern), extents)
        made = copied.run(self.values)
        # A copy that moves nothing gives the values themselves.
        return (made.copy() if copied.nothing else made).reshape(self.shape)

    def conj(self) -> BlockTensor:
        """Return the complex conjugate, with the directions of all quantum numbers reversed."""
        charges = None if self.charges is None else self.charges.conj()
        return BlockTensor(replace(self.pattern, charges=charges), np.conjugate(self.values))

    def without_charges(self) -> BlockTensor:
        """Return the same blocks without quantum numbers."""
        return BlockTensor(replace(self.pattern, charges=None), self.values)

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.shape)) or "scalar"
        places, extents = math.prod(map(len, self.sizes)), math.prod(self.shape)
        fill = f"{self.nnz / extents if extents else 1.0:.2%}"
        charges = f", {self.charges}" if self.charges else ""
        counts = f"{len(self.pattern)} of {places} blocks, {self.nnz} elements ({fill})"
        return f"BlockTensor {shape}, {counts}, {self.dtype}{charges}"


def block_dtype(dtype: np.dtype) -> np.dtype:
    """Return the type in which elements are stored: float and complex types of NumPy as they are, integers as float64.

    Raises OperandError for other types.
    """
    if dtype.kind in "biu":
        return np.dtype(np.float64)
    if dtype.kind not in "fc" or np.dtype(dtype).itemsize > (8 if dtype.kind == "f" else 16):
        raise OperandError(f"elements must be real or complex numbers of at most 64 bits each; found dtype {dtype}")
    return dtype.newbyteorder("=")


def _coordinates(at: Any) -> Coordinates:
    numbers = at if isinstance(at, tuple) else (at,)
    if not all(isinstance(n, int | np.integer) for n in numbers):
        raise OperandError(f"coordinates of a block are a tuple of integers; found {at!r}")
    return tuple(int(n) for n in numbers)


def _checked(sizes: Sequence[Sequence[int]]) -> Sizes:
    grid = tuple(tuple(int(extent) for extent in mode) for mode in sizes)
    if any(extent < 1 for mode in grid for extent in mode):
        raise OperandError(f"sizes of blocks must be at least 1; found {grid}")
    return grid


def _sizes(items: Sequence[tuple[Coordinates, np.ndarray]], sizes: Sequence[Sequence[int] | None] | None) -> Sizes:
    """Return the sizes of all modes; those that are not given are those of the blocks."""
    if sizes is None:
        if not items:
            raise OperandError("sizes of a tensor without blocks cannot be inferred: pass sizes")
        sizes = [None] * len(items[0][0])
    return _checked([_inferred(items, axis) if mode is None else mode for axis, mode in enumerate(sizes)])


def _inferred(items: Sequence[tuple[Coordinates, np.ndarray]], axis: int) -> list[int]:
    known: dict[int, int] = {}
    for at, block in items:
        if len(at) <= axis or block.ndim <= axis:
            raise OperandError(f"mode {axis} of block {at} is missing: its shape is {block.shape}")
        if known.setdefault(at[axis], block.shape[axis]) != block.shape[axis]:
            raise OperandError(
                f"blocks of mode {axis} at {at[axis]} have the extents {known[at[axis]]} and {block.shape[axis]}"
            )
    if not known:
        raise OperandError("sizes of a tensor without blocks cannot be inferred: pass sizes")
    missing = [n for n in range(max(known) + 1) if n not in known]
    if missing:
        raise OperandError(f"the size of block {missing[0]} of mode {axis} cannot be inferred: pass sizes")
    return [known[n] for n in range(len(known))]
