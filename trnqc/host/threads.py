"""The number of threads of a call, and the division of its work among them.

The argument `threads` of a function determines the number of threads. If it is None, code for PySCF objects takes
`pyscf.lib.num_threads()`, code for PyTorch tensors takes `torch.get_num_threads()`, and other code takes
`default_threads()`. These three numbers are equal unless the user has set one of them. `thread_count` implements this
rule. It is called once, by the function that the user calls, which passes the number on.
"""

from __future__ import annotations

import functools
import itertools
import os
import resource
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from numbers import Integral
from typing import Any

from trnqc.errors import InputError

# Size of the stack of a thread in bytes, which glibc chooses if the system sets no limit.
_UNLIMITED_STACK = 2 << 20
# Parts of the work per thread. With several of them, other threads can do the parts of a thread that is delayed.
PARTS = 4


def cpus() -> int:
    """The number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_threads() -> int:
    """OMP_NUM_THREADS if it is set, as in PySCF, else the number of CPUs that this process may use.

    Raises
    ------
    InputError
        If OMP_NUM_THREADS is not a positive integer.
    """
    text = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if not text:
        return cpus()
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f"expected a positive integer as OMP_NUM_THREADS, found {text!r}")
    return int(text)


def thread_count(threads: Any, default: Callable[[], int] = default_threads) -> int:
    """The number of threads for an argument `threads`. None stands for the default.

    Raises
    ------
    InputError
        If it is not a positive integer.
    """
    if threads is None:
        return int(default())
    if not (isinstance(threads, Integral) and int(threads) >= 1):
        raise InputError(f"threads must be a positive number, or None for all, got {threads}")
    return int(threads)


@functools.cache
def stack_size() -> int:
    """The size of the stack of a thread that this process starts, in bytes."""
    limit = resource.getrlimit(resource.RLIMIT_STACK)[0]
    return _UNLIMITED_STACK if limit == resource.RLIM_INFINITY else limit


def parts_of(count: int, least: int, threads: int) -> int:
    """The number of parts into which `count` items are divided: one for a single thread, else PARTS per thread.

    There are fewer parts if they would have fewer than `least` items.
    """
    return max(1, min(PARTS * threads if threads > 1 else 1, count // least))


def in_parallel(part: Callable[[int], None], parts: int, threads: int) -> None:
    """Call part(0), ..., part(parts - 1) once each, on several threads. A free thread takes the next part.

    The thread of the caller is one of them. It does not wait for threads that have not started when all parts are
    taken.
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
