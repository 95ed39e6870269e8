"""Threads whose products and whose loops in PySCF keep to the thread that runs them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache

from pyscf import lib
from threadpoolctl import ThreadpoolController


@cache
def _libraries() -> ThreadpoolController:
    """The process's libraries of products, looked for once, since that takes milliseconds."""
    return ThreadpoolController()


@contextmanager
def workers(threads: int) -> Iterator[ThreadPoolExecutor]:
    """A pool. The limit of BLAS is the process's; OpenMP keeps its own by thread, so each worker sets it."""
    with (
        _libraries().limit(limits=1, user_api="blas"),
        ThreadPoolExecutor(threads, initializer=lib.num_threads, initargs=(1,)) as pool,
    ):
        yield pool
