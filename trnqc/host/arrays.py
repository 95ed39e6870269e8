"""Arrays that begin at a cache line, and large ones in memory that is lent again.

A fresh array of tens of megabytes costs more in page faults than the kernel that fills it. A `Pool` lends blocks, of
huge pages where the system has them; a block comes back when the last array or tensor on it is gone.
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

# Smaller results come from the allocator of NumPy, which keeps such memory itself.
LARGE = 1 << 20
HUGE_PAGE = 1 << 21
# Bytes of a cache line: vectors that cross two are written at half the speed.
LINE = 64
# Sizes are rounded up to a fraction of themselves, so that batches of almost one size share blocks.
STEPS = 8
# Bytes that idle blocks may hold.
KEPT = 1 << 30


def zeros(shape: int | tuple[int, ...], dtype: Any = np.float64) -> np.ndarray:
    """Zeros that begin where a cache line does, which suits vectors."""
    shape = shape if isinstance(shape, tuple) else (shape,)
    size = prod(shape) * np.dtype(dtype).itemsize
    return _at_a_line(np.zeros(size + LINE, np.uint8), shape, dtype)


def _at_a_line(raw: np.ndarray, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return np.ndarray(shape, dtype, raw, offset=-raw.ctypes.data % LINE)


class Pool:
    """Blocks that are lent as arrays. kept: bytes that idle blocks may hold; those beyond it, oldest first, are freed.

    Any thread may take blocks, and they may come back at any point of any thread, even within a call of the pool: what
    is shared is only changed by single operations of a deque.
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
        """An array of any contents that begins where a cache line does.

        Raises MemoryLimit, with both figures, when the machine has not that much.
        """
        size = prod(shape) * np.dtype(dtype).itemsize
        if size < LARGE:
            return _at_a_line(np.empty(size + LINE, np.uint8), shape, dtype)
        require_memory(size, f"an array of {' x '.join(map(str, shape))} {np.dtype(dtype)}", "split the batch")
        return np.frombuffer(self._lend(rounded(size)), dtype, prod(shape)).reshape(shape)

    def release(self) -> None:
        """Give the idle blocks back to the system."""
        self._idle.clear()

    def _lend(self, size: int) -> Any:
        block = self._take(size) or _mapped(size)
        # Every array on the block holds this object, however it was sliced: its end is the end of the last of them.
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
                    # Another thread was faster.
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
    """Bytes of the block for a result: whole huge pages, at most an eighth more than needed if it is long."""
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
        # Refused by a system without huge pages: the block is as good, only its first use is slower.
        with contextlib.suppress(OSError):
            block.madvise(mmap.MADV_HUGEPAGE)
    return block


POOL = Pool()


def empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """`Pool.empty` of the pool that this process shares."""
    return POOL.empty(shape, dtype)
