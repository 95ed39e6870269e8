"""What each PSUM location holds: nothing yet, data from a copy, an open accumulation, or one that was read already.

``nc_matmul`` decides with it whether it overwrites or adds. The state is kept per element; since most kernels
multiply into and read one same region again and again, the region in use is held apart as a single code.
"""

from __future__ import annotations

import numpy as np

FRESH, FILLED, OPEN, DRAINED, REFILLED = range(5)

Key = tuple[int, tuple[int, ...], tuple[int, ...]]  # offset, shape, strides in elements


class PsumState:
    """Accumulation state of one PSUM tile of [partitions, free] elements."""

    __slots__ = ("codes", "free", "hot", "hot_code", "partitions")

    def __init__(self, partitions: int, free: int):
        self.partitions = partitions
        self.free = free
        self.codes: np.ndarray | None = None
        self.hot: Key | None = None
        self.hot_code = FRESH

    def codes_of(self, key: Key) -> tuple[int, np.ndarray | None]:
        """(code, None) where the region is all of one state, else (-1, the codes of its elements)."""
        if key == self.hot:
            return self.hot_code, None
        if self.hot is None and self.codes is None:
            return FRESH, None
        region = self._region(key)
        first = int(region.flat[0])
        return (first, None) if (region == first).all() else (-1, region)

    def set(self, key: Key, code: int) -> None:
        """Give every element of the region one state."""
        if key != self.hot:
            self._flush()
            self.hot = key
        self.hot_code = code

    def mark_read(self, key: Key) -> None:
        """A read ends the open accumulations of the region."""
        self._move(key, OPEN, DRAINED)

    def mark_filled(self, key: Key) -> None:
        """A write by anything but a matmul."""
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
        """The elements of a region; writing to it writes the state."""
        self._flush()
        assert self.codes is not None
        offset, shape, strides = key
        return np.ndarray(shape, np.uint8, self.codes, offset, strides)

    def _flush(self) -> None:
        if self.codes is None:
            self.codes = np.zeros(self.partitions * self.free, np.uint8)
        if self.hot is not None:
            offset, shape, strides = self.hot
            np.ndarray(shape, np.uint8, self.codes, offset, strides)[...] = self.hot_code
            self.hot = None
