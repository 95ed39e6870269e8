"""Parts of one call on several threads; a generated function releases the interpreter's lock while it runs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


def in_parallel(part: Callable[[int], None], parts: int, threads: int) -> None:
    """part(0), ..., part(parts - 1), in order on one thread, in any order on several."""
    if parts == 1 or threads == 1:
        for i in range(parts):
            part(i)
    else:
        list(_pool(threads).map(part, range(parts)))


@functools.cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="trnqc-cg")
