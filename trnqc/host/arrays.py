"""Arrays that begin at a cache line, and large arrays whose memory is reused.

The page faults of a new array of tens of megabytes take longer than the kernel that fills it. A `Pool` therefore lends
blocks of memory, in huge pages if the system has them. A block returns to the pool when the last array or tensor that
uses it is deleted.
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

# Size in bytes from which on arrays come from the pool. NumPy's allocator itself reuses the memory of smaller arrays.
LARGE = 1 << 20
# Size of a huge page on x86-64 and AArch64, in bytes.
HUGE_PAGE = 1 << 21
# Size in bytes from which on arrays of zeros are in huge pages: faulting in pages of 4 kB takes longer than filling.
HUGE = 1 << 25
# Size of a cache line in bytes. A vector that extends over two cache lines is written at half the speed.
LINE = 64
# Sizes are rounded up by at most 1 / STEPS of themselves, so that batches of similar sizes can use the same blocks.
STEPS = 8
# The largest total size of blocks that are not lent, in bytes.
MOST_IDLE = 1 << 30


def zeros(shape: int | tuple[int, ...], dtype: Any = np.float64) -> np.ndarray:
    """An array of zeros that begins at a cache line, in huge pages if it is large and the system has them.

    Raises
    ------
    MemoryLimit
        If a large array cannot be allocated.
    """
    shape = shape if isinstance(shape, tuple) else (shape,)
    size = prod(shape) * np.dtype(dtype).itemsize
    if size >= HUGE:
        # The system hands out new memory filled with zeros.
        return np.frombuffer(_mapped(rounded(size)), dtype, prod(shape)).reshape(shape)
    return _at_a_line(np.zeros(size + LINE, np.uint8), shape, dtype)


def _at_a_line(raw: np.ndarray, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return np.ndarray(shape, dtype, raw, offset=-raw.ctypes.data % LINE)


class Pool:
    """Blocks of memory that are lent as arrays.

    Any thread may take blocks. A block may return at any time on any thread, even during a call of the pool. Shared
    state is therefore changed only by single operations of a deque, which are atomic.

    Parameters
    ----------
    most_idle
        The largest total size of idle blocks in bytes. If it is exceeded, the oldest blocks are freed.
    """

    def __init__(self, most_idle: int = MOST_IDLE) -> None:
        self.most_idle = most_idle
        self._idle: deque[mmap.mmap] = deque()
        self._lent: dict[int, weakref.ref[Any]] = {}

    @property
    def idle(self) -> int:
        """The total size of the idle blocks in bytes."""
        return sum(len(block) for block in tuple(self._idle))

    def empty(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """An array with undefined contents that begins at a cache line.

        Raises
        ------
        MemoryLimit
            If the array is larger than the memory of this machine. The message contains both sizes.
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
        # All arrays on the block, including slices of them, refer to this object. It is deleted with the last of them.
        lent = _bytes(size).from_buffer(block)
        number = id(lent)
        self._lent[number] = weakref.ref(lent, lambda _: self._return(number, block))
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

    def _return(self, number: int, block: mmap.mmap) -> None:
        self._lent.pop(number, None)
        self._idle.append(block)
        while self.idle > self.most_idle:
            try:
                self._idle.popleft()
            except IndexError:
                return


def rounded(size: int) -> int:
    """The size of the block for an array in bytes: whole huge pages, and for large arrays at most 1/8 too much."""
    step = max(HUGE_PAGE, 1 << max(0, size.bit_length() - STEPS.bit_length()))
    return -(-size // step) * step


@functools.cache
def _bytes(size: int) -> type[ctypes.Array[ctypes.c_char]]:
    return ctypes.c_char * size


def _mapped(size: int) -> mmap.mmap:
    try:
        block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryLimit(f"cannot allocate {size / 2**30:.1f} GiB of memory ({error}): split the batch") from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        # A system without huge pages raises an error. Then the first use of the block is slower.
        with contextlib.suppress(OSError):
            block.madvise(mmap.MADV_HUGEPAGE)
    return block


# The pool of this process.
POOL = Pool()


def empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array from the pool of this process; see `Pool.empty`."""
    return POOL.empty(shape, dtype)


def release_freed_memory() -> None:
    """Return memory that earlier stages have freed to the system: idle blocks of the pool, and what glibc keeps.

    glibc keeps freed arrays of up to 32 MB for every thread, and this memory adds up from stage to stage.
    """
    POOL.release()
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)
