"""Threads whose products and whose loops in PySCF keep to the thread that runs them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from pyscf import lib

from trnqc.host.blas import single_threaded


@contextmanager
def workers(threads: int) -> Iterator[ThreadPoolExecutor]:
    """A pool. The limit of BLAS is the process's; OpenMP keeps its own by thread, so each worker sets it."""
    with (
        single_threaded(),
        ThreadPoolExecutor(threads, initializer=lib.num_threads, initargs=(1,)) as pool,
    ):
        yield pool
