"""Accumulation state of PSUM, from which ``nc_matmul`` decides whether it overwrites or adds.

The state is kept per element. Most kernels multiply into one region and read it again and again, so the region used
last is represented by a single code and written to the per-element array only when another region is used.
"""

from __future__ import annotations

import numpy as np

FRESH = 0  # nothing was written yet
FILLED = 1  # written by an instruction other than a matmul
OPEN = 2  # a matmul group that is still accumulating
DRAINED = 3  # a matmul group that has been read
REFILLED = 4  # written by another instruction after a matmul group

Key = tuple[int, tuple[int, ...], tuple[int, ...]]  # region of a tile: offset, shape, strides in elements


class PsumState:
    """Accumulation state of one PSUM tile of [partitions, free] elements.

    ``hot`` is the region used last and ``hot_code`` its state; ``codes`` holds the state of all other elements.
    """

    __slots__ = ("codes", "free", "hot", "hot_code", "partitions")

    def __init__(self, partitions: int, free: int):
        self.partitions = partitions
        self.free = free
        self.codes: np.ndarray | None = None
        self.hot: Key | None = None
        self.hot_code = FRESH

    def codes_of(self, key: Key) -> tuple[int, np.ndarray | None]:
        """Return (code, None) if all elements of the region have one state, else (-1, codes of the elements)."""
        if key == self.hot:
            return self.hot_code, None
        if self.hot is None and self.codes is None:
            return FRESH, None
        region = self._region(key)
        first = int(region.flat[0])
        return (first, None) if (region == first).all() else (-1, region)

    def set(self, key: Key, code: int) -> None:
        """Set every element of the region to the state ``code``."""
        if key != self.hot:
            self._flush()
            self.hot = key
        self.hot_code = code

    def mark_read(self, key: Key) -> None:
        """Record a read, which ends the open accumulations of the region."""
        self._move(key, OPEN, DRAINED)

    def mark_filled(self, key: Key) -> None:
        """Record a write by an instruction other than a matmul."""
        code, mixed = self.codes_of(key)
        if mixed is None:
            self.set(key, FILLED if code in (FRESH, FILLED) else REFILLED)
        else:
            mixed[...] = np.where(mixed <= FILLED, FILLED, REFILLED)

    def _move(self, key: Key, old: int, new: int) -> None:
        code, mixed = self.codes_of(key)
        if mixed is not None:
            mixed[mixed == old] = new
        elif code == old:
            self.set(key, new)

    def _region(self, key: Key) -> np.ndarray:
        """The codes of a region as a writable view."""
        self._flush()
        assert self.codes is not None
        offset, shape, strides = key
        return np.ndarray(shape, np.uint8, self.codes, offset, strides)

    def _flush(self) -> None:
        """Write the code of the hot region to the per-element array."""
        if self.codes is None:
            self.codes = np.zeros(self.partitions * self.free, np.uint8)
        if self.hot is not None:
            offset, shape, strides = self.hot
            np.ndarray(shape, np.uint8, self.codes, offset, strides)[...] = self.hot_code
            self.hot = None
