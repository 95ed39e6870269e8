"""Parts of one call on several threads; a generated function releases the interpreter's lock while it runs."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

# Parts for every thread, so that one that is held up leaves its share to others.
PARTS = 4


def parts_of(count: int, least: int, threads: int) -> int:
    """How many parts `count` things are cut into: one for one thread, else none smaller than `least` if it can be."""
    return max(1, min(PARTS * threads if threads > 1 else 1, count // least))


def in_parallel(part: Callable[[int], None], parts: int, threads: int) -> None:
    """part(0), ..., part(parts - 1), each once: in order on one thread, on several whoever is free takes the next.

    The caller's thread is one of them, and does not wait for one that finds no free core before all parts are taken.
    """
    numbers = itertools.count()

    def work() -> None:
        while (i := next(numbers)) < parts:
            part(i)

    if threads == 1 or parts == 1:
        work()
        return
    helpers = [_pool(threads - 1).submit(work) for _ in range(min(threads, parts) - 1)]
    try:
        work()
    finally:
        for helper in helpers:
            if not helper.cancel():
                helper.result()


@functools.cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="trnqc")
