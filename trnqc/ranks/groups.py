"""The interface through which the processes of one job share work, and how tasks are divided: no arrays, no network.

Code that can share work takes a `Ranks`. `ALONE` is the job of one process; `trnqc.ranks.transport` has the ranks that
really communicate.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

import numpy as np

from trnqc.errors import InputError

T = TypeVar("T")
Message = tuple[int, np.ndarray]
"""Another rank, and the array that is sent to it or filled from it."""
# Ways to divide tasks, see `dealt`.
SCHEDULES = ("static", "dynamic")
# Rounds of moving tasks in `balanced` at most; a few are enough, and none may gain nothing forever.
PASSES = 50


class Pending(Protocol):
    """Messages under way."""

    def arrived(self) -> None:
        """Wait until all arrays that are received have arrived."""
        ...

    def wait(self) -> None:
        """Wait until all arrays have arrived, and those that are sent may be written to again."""
        ...


class Ranks(Protocol):
    """A job of several processes as one of them sees it.

    All ranks call the methods in the same order, but for `next_of`. The methods raise CommunicationError when another
    rank is lost or late.
    """

    @property
    def rank(self) -> int:
        """Number of this process, from 0."""
        ...

    @property
    def size(self) -> int:
        """Number of processes."""
        ...

    @property
    def neighbours(self) -> int:
        """Number of ranks on this machine, this one included."""
        ...

    def at(self, stage: str) -> None:
        """Tell the other ranks what this one does now, for their error messages."""
        ...

    def at_first(self, make: Callable[[], T]) -> T:
        """Return on all ranks what make() returns on rank 0; the others wait for it, however long it takes."""
        ...

    def sum(self, array: np.ndarray) -> np.ndarray:
        """Return on all ranks the sum over ranks, with the same bits: ((rank 0 + rank 1) + rank 2) ..."""
        ...

    def exchange(self, sent: Sequence[Message], received: Sequence[Message]) -> Pending:
        """Start to send contiguous arrays to other ranks, and to fill arrays with what others send.

        Messages between two ranks match in order. Both sides have to know shapes and dtypes.
        """
        ...

    def next_of(self, name: str) -> int:
        """The next of 0, 1, 2, ...; each number is given to one rank only. Any rank may ask at any time."""
        ...


class _Done:
    """No messages."""

    def arrived(self) -> None:
        pass

    def wait(self) -> None:
        pass


class Alone:
    """The ranks of a job of one process."""

    rank, size, neighbours = 0, 1, 1

    def __init__(self) -> None:
        self._counters: dict[str, int] = {}

    def at(self, stage: str) -> None:
        pass

    def at_first(self, make: Callable[[], T]) -> T:
        return make()

    def sum(self, array: np.ndarray) -> np.ndarray:
        return array

    def exchange(self, sent: Sequence[Message], received: Sequence[Message]) -> Pending:
        assert not sent and not received, "there is no other rank"
        return _Done()

    def next_of(self, name: str) -> int:
        self._counters[name] = self._counters.get(name, -1) + 1
        return self._counters[name]


ALONE = Alone()


def dealt(costs: Sequence[float], ranks: Ranks, schedule: str = "dynamic", name: str = "") -> Iterator[int]:
    """Numbers of the tasks that this rank is to do, the most expensive first.

    Parameters
    ----------
    costs
        Relative cost of each task.
    schedule
        "static" divides the tasks beforehand by their costs. "dynamic" gives the next task to the rank that asks for
        it.
    name
        Name of the counter of a dynamic schedule; every set of tasks of a job has its own.
    """
    if schedule not in SCHEDULES:
        raise InputError(f"schedule is one of {', '.join(SCHEDULES)}, found {schedule!r}")
    order = dearest_first(costs)
    if schedule == "dynamic" and ranks.size > 1:
        while (n := ranks.next_of(name)) < len(order):
            yield order[n]
        return
    owners = balanced(costs, ranks.size)
    yield from (n for n in order if owners[n] == ranks.rank)


def dearest_first(costs: Sequence[float]) -> list[int]:
    """Numbers of the tasks, the most expensive first."""
    return sorted(range(len(costs)), key=lambda n: (-costs[n], n))


def balanced(costs: Sequence[float], ranks: int, allowed: Sequence[Iterable[int]] | None = None) -> tuple[int, ...]:
    """Choose a rank for every task, so that all ranks have about as much to do.

    Parameters
    ----------
    allowed
        By task, the ranks that may do it; by default all.

    Notes
    -----
    Graham's LPT rule: the most expensive task first, each to the rank with the least to do so far (SIAM J. Appl. Math.
    17, 416 (1969)). Its bound does not hold where ranks are restricted; there tasks move to ranks with less to do until
    none gains by it.
    """
    owners = [0] * len(costs)
    loads = [(0.0, rank) for rank in range(ranks)]
    if allowed is None:
        for n in dearest_first(costs):
            load, owners[n] = heapq.heappop(loads)
            heapq.heappush(loads, (load + costs[n], owners[n]))
        return tuple(owners)
    load_of = [0.0] * ranks
    for n in dearest_first(costs):
        owners[n] = min(allowed[n], key=lambda rank: (load_of[rank], rank))
        load_of[owners[n]] += costs[n]
    for _ in range(PASSES):
        moved = False
        for n, cost in enumerate(costs):
            rank = min(allowed[n], key=lambda rank: (load_of[rank], rank))
            if load_of[rank] + cost < load_of[owners[n]]:
                load_of[owners[n]] -= cost
                load_of[rank] += cost
                owners[n], moved = rank, True
        if not moved:
            break
    return tuple(owners)
