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

from trnqc.ranks.groups import ALONE, Ranks

T = TypeVar("T")
# Adds what a task contributes to one array for each sum.
Add = Callable[[T, tuple[np.ndarray, ...]], None]

# Bits of the integer that stands for the bound of a sum. A signed integer of 64 bits has one more.
BITS = 62


class ExactSum:
    """A sum of arrays.

    Parameters
    ----------
    shape
        The shape [n, m] of all terms.
    bound [n]
        What the absolute values of the sum and of all partial sums cannot exceed, by row. Each term is rounded by at
        most half a quantum, which is bound / 2^61. Beyond the bound the sum may overflow.
    """

    def __init__(self, shape: tuple[int, int], bound: np.ndarray) -> None:
        _, exponent = np.frexp(np.where(bound > 0, bound, 1.0))
        self.scale = np.ldexp(1.0, BITS - exponent)[:, None]
        self.total = np.zeros(shape, np.int64)
        self._lock = threading.Lock()

    def value(self) -> np.ndarray:
        """Return the sum as f64 [n, m]."""
        return self.total / self.scale


class Terms:
    """The terms that one thread adds to a sum: it computes each in `array`, which is zero, then calls `flush`."""

    def __init__(self, total: ExactSum) -> None:
        self.total, self.array = total, np.zeros(total.total.shape)
        self._integers = np.empty(total.total.shape, np.int64)

    def flush(self) -> None:
        """Add the term to the sum, and clear the array."""
        self.array *= self.total.scale
        np.copyto(self._integers, np.rint(self.array, out=self.array), casting="unsafe")
        self.array.fill(0.0)
        with self.total._lock:
            self.total.total += self._integers


def add_all(
    sums: Sequence[ExactSum], tasks: Iterable[T], worker: Callable[[], Add[T]], pool: Executor, threads: int,
    ranks: Ranks = ALONE,
) -> None:  # fmt: skip
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
