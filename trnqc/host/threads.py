"""How many threads a call takes, and how it divides its work among them.

An argument `threads` counts first. Where it is None, code that works on objects of PySCF takes
`pyscf.lib.num_threads()`, code that works on PyTorch's tensors `torch.get_num_threads()`, and other code
`default_threads()`. All three give the same number unless the user has set one of them. `thread_count` states the rule
once; the number is settled where a call begins, and passed on.
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

# Bytes of the stack that glibc gives a thread where the system sets no limit.
_UNLIMITED_STACK = 2 << 20
# Parts of the work for every thread, so that a thread that is held up leaves its share to others.
PARTS = 4


def cpus() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_threads() -> int:
    """OMP_NUM_THREADS where it is set, as for PySCF, else the CPUs that this process may use.

    Raises
    ------
    InputError
        If OMP_NUM_THREADS is not a positive number.
    """
    text = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if not text:
        return cpus()
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f"OMP_NUM_THREADS is {text!r}; expected a positive number")
    return int(text)


def thread_count(threads: Any, default: Callable[[], int] = default_threads) -> int:
    """The number of threads that an argument `threads` asks for; None asks for the default.

    Raises
    ------
    InputError
        If it is not a positive number.
    """
    if threads is None:
        return int(default())
    if not (isinstance(threads, Integral) and int(threads) >= 1):
        raise InputError(f"threads must be a positive number, or None for all, got {threads}")
    return int(threads)


@functools.cache
def stack_size() -> int:
    """Bytes of the stack of a thread that this process starts."""
    limit = resource.getrlimit(resource.RLIMIT_STACK)[0]
    return _UNLIMITED_STACK if limit == resource.RLIM_INFINITY else limit


def parts_of(count: int, least: int, threads: int) -> int:
    """Number of parts that `count` things are cut into: one for a single thread, else several of `least` or more."""
    return max(1, min(PARTS * threads if threads > 1 else 1, count // least))


def in_parallel(part: Callable[[int], None], parts: int, threads: int) -> None:
    """Call part(0), ..., part(parts - 1) once each, in order on one thread; of several, the next free one takes a part.

    The caller's thread is one of them. It does not wait for threads that have not started when all parts are taken.
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
