"""A pool of threads whose matrix products and whose loops in PySCF stay on the thread that runs them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from pyscf import lib

from trnqc.host.blas import single_threaded


@contextmanager
def single_threaded_pool(threads: int) -> Iterator[ThreadPoolExecutor]:
    """Open a pool of `threads` threads, on each of which BLAS and PySCF's loops run on a single thread.

    The limit of BLAS holds for the process. OpenMP keeps a number for every thread, so each thread of the pool sets it.
    """
    with (
        single_threaded(),
        ThreadPoolExecutor(threads, initializer=lib.num_threads, initargs=(1,)) as pool,
    ):
        yield pool
