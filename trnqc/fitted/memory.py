"""Bytes for fitted integrals below PySCF's memory limits, and the widths of blocks that follow from them."""

from __future__ import annotations

from pyscf import lib

# The share of the memory below PySCF's max_memory that arrays of fitted integrals may take.
SHARE_OF_MEMORY = 0.9
# Fitting functions in a block if memory allows it, so that the blocks of all threads stay in the cache.
COMFORTABLE_BLOCK = 64
# Smallest number of blocks of fitting functions for each thread, so that the threads end at about the same time.
BLOCKS_OF_A_THREAD = 4


def bytes_left(max_memory: float) -> float:
    """Return the bytes left below PySCF's max_memory, which is in MB and limits the whole process."""
    return 1e6 * max(max_memory - lib.current_memory()[0], 0)


def memory_left(max_memory: float) -> float:
    """Return the bytes that fitted integrals may take below PySCF's max_memory."""
    return SHARE_OF_MEMORY * bytes_left(max_memory)


def preferred_width(naux: int, threads: int, smallest: int, most: int = COMFORTABLE_BLOCK) -> int:
    """Return the fitting functions in a block if memory is not limited; `smallest` is the size of the largest shell."""
    return max(smallest, min(most, -(-naux // (BLOCKS_OF_A_THREAD * threads))))
