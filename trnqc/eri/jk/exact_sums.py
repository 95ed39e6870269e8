"""Sums of floating-point arrays over threads and ranks whose bits do not depend on the order or grouping of the terms.

Each term is rounded once to a multiple of a quantum that is fixed beforehand; the integers then add up exactly. (Demmel
and Nguyen, Parallel Reproducible Summation, IEEE Trans. Comput. 64, 2060 (2015), with one bin.)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from typing import TypeVar

import numpy as np

from trnqc.ranks import ALONE, Ranks

T = TypeVar("T")
# Adds what a task contributes to one array for each sum.
Add = Callable[[T, tuple[np.ndarray, ...]], None]

# Bits of the integer that stands for the bound of a sum. A signed integer of 64 bits has one more.
BITS = 62
# What the integers of terms and sums may reach where a bound is checked: a quarter more than that of the bound, for its
# rounding. A sum of two such integers that overflows is beyond this too.
LIMIT = 5 * 2 ** (BITS - 2)
# Elements of a block of a term that is rounded at once: it stays in the cache for all operations.
BLOCK = 16384


class ExactSum:
    """A sum of arrays [n, m], whose absolute value and those of all partial sums cannot exceed `bound` [n], by row.

    Each term is rounded by at most half a quantum, which is bound / 2^61; beyond the bound the sum may overflow. If
    `checked`, terms and partial sums are compared with the bound, and `exceeded` tells whether one was beyond it, so
    that the sum is wrong.
    """

    def __init__(self, shape: tuple[int, int], bound: np.ndarray, checked: bool = False) -> None:
        self.checked, self.exceeded = checked, False
        _, exponent = np.frexp(np.where(bound > 0, bound, 1.0))
        self.scale = np.ldexp(1.0, BITS - exponent)[:, None]
        self.total = np.zeros(shape, np.int64)
        self._lock = threading.Lock()

    def value(self) -> np.ndarray:
        """Return the sum as f64 [n, m]."""
        return self.total / self.scale


class Terms:
    """The terms that one thread adds to a sum: the thread computes each term in `array`, which is zero, then calls
    `flush`.
    """

    def __init__(self, total: ExactSum) -> None:
        self.total, self.array = total, np.zeros(total.total.shape)
        rows, columns = total.total.shape
        # Columns of a block that is rounded, and its rows.
        self._width = max(1, min(columns, BLOCK))
        self._height = max(1, BLOCK // self._width)
        self._integers = np.empty((min(rows, self._height), self._width), np.int64)

    def flush(self) -> None:
        """Add the term to the sum, and clear the array."""
        rows, columns = self.array.shape
        for i in range(0, rows, self._height):
            for j in range(0, columns, self._width):
                self._flush(np.s_[i : i + self._height, j : j + self._width])

    def _flush(self, part: tuple[slice, slice]) -> None:
        block = self.array[part]
        integers = self._integers[: block.shape[0], : block.shape[1]]
        block *= self.total.scale[part[0]]
        if self.total.checked and not max(block.max(), -block.min()) <= LIMIT:
            self.total.exceeded = True
            block.fill(0.0)
            return
        np.copyto(integers, np.rint(block, out=block), casting="unsafe")
        block.fill(0.0)
        with self.total._lock:
            sums = self.total.total[part]
            sums += integers
            if self.total.checked and not -LIMIT <= sums.min() <= sums.max() <= LIMIT:
                self.total.exceeded = True


def add_all(
    sums: Sequence[ExactSum],
    tasks: Iterable[T],
    worker: Callable[[], Add[T]],
    pool: Executor,
    threads: int,
    ranks: Ranks = ALONE,
) -> None:
    """Add the terms of all tasks to the sums.

    Parameters
    ----------
    sums
        The sums. All ranks pass sums with the same bounds, and all get the whole sums.
    tasks
        The tasks of this rank. What one task adds is rounded as one term, so the division into tasks must not depend
        on threads or ranks.
    worker
        Called once on each thread; returns its function add(task, arrays), which adds to one array for each sum.
    pool, threads
        Where to run, and on how many threads.
    ranks
        The processes that share the tasks.
    """
    iterator, lock = iter(tasks), threading.Lock()

    def remaining() -> Iterator[T]:
        while True:
            with lock:
                try:
                    task = next(iterator)
                except StopIteration:
                    return
            yield task

    def work() -> None:
        add, terms = worker(), [Terms(total) for total in sums]
        arrays = tuple(term.array for term in terms)
        for task in remaining():
            add(task, arrays)
            for term in terms:
                term.flush()

    for running in [pool.submit(work) for _ in range(threads)]:
        running.result()
    for total in sums:
        total.total = ranks.sum(total.total)
