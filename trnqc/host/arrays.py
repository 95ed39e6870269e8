"""Arrays that begin at a cache line, and large ones whose memory is used again.

The page faults of a new array of tens of megabytes take longer than the kernel that fills it. A `Pool` lends blocks of
memory, in huge pages where the system has them; a block returns to the pool when the last array or tensor on it is
gone.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import weakref
from collections import deque
from math import prod
from typing import Any

import numpy as np

from trnqc.errors import MemoryLimit
from trnqc.host.memory import require_memory

# Bytes from which on arrays come from the pool: NumPy's allocator keeps the memory of smaller ones itself.
LARGE = 1 << 20
# Bytes of a huge page on x86-64 and AArch64.
HUGE_PAGE = 1 << 21
# Bytes of a cache line. Vectors that cross from one to the next are written at half the speed.
LINE = 64
# Sizes are rounded up by at most the STEPS-th part of themselves, so that batches of almost the same size share blocks.
STEPS = 8
# Bytes that blocks which are not lent may hold.
KEPT = 1 << 30


def zeros(shape: int | tuple[int, ...], dtype: Any = np.float64) -> np.ndarray:
    """An array of zeros that begins at a cache line."""
    shape = shape if isinstance(shape, tuple) else (shape,)
    size = prod(shape) * np.dtype(dtype).itemsize
    return _at_a_line(np.zeros(size + LINE, np.uint8), shape, dtype)


def _at_a_line(raw: np.ndarray, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return np.ndarray(shape, dtype, raw, offset=-raw.ctypes.data % LINE)


class Pool:
    """Blocks of memory that are lent as arrays.

    Any thread may take blocks. They may return at any point of any thread, even inside a call of the pool, so that
    shared state is changed by single operations of a deque only.

    Parameters
    ----------
    kept
        Bytes that idle blocks may hold; the oldest blocks beyond that are freed.
    """

    def __init__(self, kept: int = KEPT) -> None:
        self.kept = kept
        self._idle: deque[mmap.mmap] = deque()
        self._lent: dict[int, weakref.ref[Any]] = {}

    @property
    def idle(self) -> int:
        """Bytes that idle blocks hold."""
        return sum(len(block) for block in tuple(self._idle))

    def empty(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """An array of undefined content that begins at a cache line.

        Raises
        ------
        MemoryLimit
            If the machine has less memory than that; the message gives both sizes.
        """
        size = prod(shape) * np.dtype(dtype).itemsize
        if size < LARGE:
            return _at_a_line(np.empty(size + LINE, np.uint8), shape, dtype)
        require_memory(size, f"an array of {' x '.join(map(str, shape))} {np.dtype(dtype)}", "split the batch")
        return np.frombuffer(self._lend(rounded(size)), dtype, prod(shape)).reshape(shape)

    def release(self) -> None:
        """Return the idle blocks to the system."""
        self._idle.clear()

    def _lend(self, size: int) -> Any:
        block = self._take(size) or _mapped(size)
        # Every array on the block refers to this object, however it was sliced, so that it lives as long as the last of
        # them.
        lent = _bytes(size).from_buffer(block)
        number = id(lent)
        self._lent[number] = weakref.ref(lent, lambda _: self._back(number, block))
        return lent

    def _take(self, size: int) -> mmap.mmap | None:
        for block in reversed(list(self._idle)):
            if len(block) == size:
                try:
                    self._idle.remove(block)
                except ValueError:
                    # Another thread has taken it.
                    continue
                return block
        return None

    def _back(self, number: int, block: mmap.mmap) -> None:
        self._lent.pop(number, None)
        self._idle.append(block)
        while self.idle > self.kept:
            try:
                self._idle.popleft()
            except IndexError:
                return


def rounded(size: int) -> int:
    """Bytes of the block for an array: whole huge pages, and for long arrays at most an eighth more than needed."""
    step = max(HUGE_PAGE, 1 << max(0, size.bit_length() - STEPS.bit_length()))
    return -(-size // step) * step


@functools.cache
def _bytes(size: int) -> type[ctypes.Array[ctypes.c_char]]:
    return ctypes.c_char * size


def _mapped(size: int) -> mmap.mmap:
    try:
        block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryLimit(f"the system gives no {size / 2**30:.1f} GiB of memory ({error}): split the batch") from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        # A system without huge pages refuses; then only the first use of the block is slower.
        with contextlib.suppress(OSError):
            block.madvise(mmap.MADV_HUGEPAGE)
    return block


# The pool of this process.
POOL = Pool()


def empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array from the pool of this process, see `Pool.empty`."""
    return POOL.empty(shape, dtype)
