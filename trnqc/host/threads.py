"""How many threads a job takes, and the parts of one call on several threads.

The rule for their number: an argument `threads` counts first. Without one, what works on objects of PySCF takes
`pyscf.lib.num_threads()`, what works on tensors takes `torch.get_num_threads()`, and everything else
`default_threads()`, to which the other two are equal unless the user has set them.
"""

from __future__ import annotations

import functools
import itertools
import os
import resource
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from trnqc.errors import InputError

# Bytes of a thread's stack where the system sets no limit, in the C libraries of Linux.
_UNLIMITED_STACK = 2 << 20
# Parts for every thread, so that one that is held up leaves its share to others.
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


@functools.cache
def stack_size() -> int:
    """Bytes of the stack of a thread that this process starts."""
    limit = resource.getrlimit(resource.RLIMIT_STACK)[0]
    return _UNLIMITED_STACK if limit == resource.RLIM_INFINITY else limit


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
