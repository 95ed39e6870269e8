"""The interface through which the processes of one job share work, and the division of tasks among them.

Code that can share work takes a `Ranks`. `ALONE` is the job of a single process. `trnqc.ranks.torch_ranks` has the
ranks that communicate.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from trnqc.errors import InputError

T = TypeVar("T")
Message = tuple[int, np.ndarray]
"""Another rank, and the array that is sent to it or received from it."""
Map = Callable[..., Iterable[np.ndarray]]
"""The built-in map, or the method map of a pool of threads."""
# Ways to divide tasks; see `dealt`.
SCHEDULES = ("static", "dynamic")
# The largest number of rounds in which `balanced` moves tasks. A few rounds are enough in practice.
PASSES = 50
# Tasks of each rank whose results `in_order` gathers at once.
GATHERED = 8


class Pending(Protocol):
    """Messages under way."""

    def arrived(self) -> None:
        """Wait until all arrays to be received have arrived."""
        ...

    def wait(self) -> None:
        """Wait until all arrays have arrived, and until the arrays that were sent may be overwritten."""
        ...


class Ranks(Protocol):
    """A job of several processes as one of them sees it.

    All ranks call the methods in the same order, except for `next_of`. The methods raise CommunicationError if another
    rank is lost or too late.
    """

    @property
    def rank(self) -> int:
        """The number of this process, counted from 0."""
        ...

    @property
    def size(self) -> int:
        """The number of processes."""
        ...

    @property
    def neighbours(self) -> int:
        """The number of ranks on this machine, including this one."""
        ...

    def at(self, stage: str) -> None:
        """Tell the other ranks what this rank is doing, for their error messages."""
        ...

    def at_first(self, make: Callable[[], T]) -> T:
        """Call make() on rank 0 and return its result on all ranks, which wait for it however long it takes."""
        ...

    def sum(self, array: np.ndarray) -> np.ndarray:
        """Return the sum ((rank 0 + rank 1) + rank 2) + ... over ranks, with the same bits on all ranks."""
        ...

    def exchange(self, sent: Sequence[Message], received: Sequence[Message]) -> Pending:
        """Start to send contiguous arrays to other ranks and to receive arrays from them.

        The messages between two ranks are matched in their order. Both ranks have to know shapes and dtypes.
        """
        ...

    def next_of(self, name: str) -> int:
        """The next of the numbers 0, 1, 2, .... Each number is returned on one rank only, whichever asks first."""
        ...


class _Done:
    """No messages."""

    def arrived(self) -> None:
        pass

    def wait(self) -> None:
        pass


class Alone:
    """The ranks of a job with a single process."""

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


# How many sets of tasks of each name the ranks of a job have begun.
_SETS: WeakKeyDictionary[Ranks, Counter[str]] = WeakKeyDictionary()


def dealt(costs: Sequence[float], ranks: Ranks, schedule: str = "dynamic", name: str = "") -> Iterator[int]:
    """Yield the numbers of the tasks of this rank, the most expensive first.

    Parameters
    ----------
    costs
        The relative cost of each task.
    ranks
        The ranks of the job.
    schedule
        "static" divides the tasks beforehand by their costs. "dynamic" gives the next task to the rank that asks first.
    name
        The name of the counter of a dynamic schedule. Sets of tasks of one name are told apart by their order, which
        has to be the same on all ranks.

    Raises
    ------
    InputError
        If the schedule is unknown.
    """
    if schedule not in SCHEDULES:
        raise InputError(f"a schedule is one of {', '.join(SCHEDULES)}; found {schedule!r}")
    order = dearest_first(costs)
    if schedule == "dynamic" and ranks.size > 1:
        sets = _SETS.setdefault(ranks, Counter())
        sets[name] += 1
        counter = f"{name}/{sets[name]}"
        while (n := ranks.next_of(counter)) < len(order):
            yield order[n]
        return
    owners = balanced(costs, ranks.size)
    yield from (n for n in order if owners[n] == ranks.rank)


def in_order(
    compute: Callable[[int], np.ndarray], count: int, shape: tuple[int, ...], ranks: Ranks, map: Map = map
) -> Iterator[np.ndarray]:
    """Yield the results of tasks in their order, on all ranks; each rank computes some of them.

    A sum of the results thus has the same digits for any number of ranks. Rank n modulo the number of ranks computes
    task n.

    Parameters
    ----------
    compute
        Returns the result of task n, an array of real numbers.
    count
        The number of tasks.
    shape
        The shape of a result.
    ranks
        The ranks of the job, which all iterate over the results.
    map
        The built-in map, or the method map of a pool of threads.
    """
    if ranks.size == 1:
        yield from map(compute, range(count))
        return
    for first in range(0, count, GATHERED * ranks.size):
        numbers = range(first, min(first + GATHERED * ranks.size, count))
        results = np.zeros((len(numbers), *shape))
        own = slice(ranks.rank, None, ranks.size)
        for result, values in zip(results[own], map(compute, numbers[own])):
            result[...] = values
        yield from ranks.sum(results)


def dearest_first(costs: Sequence[float]) -> list[int]:
    """The numbers of the tasks in the order of decreasing cost."""
    return sorted(range(len(costs)), key=lambda n: (-costs[n], n))


def balanced(costs: Sequence[float], ranks: int, allowed: Sequence[Iterable[int]] | None = None) -> tuple[int, ...]:
    """Choose a rank for every task so that the total costs of the ranks are about equal.

    Parameters
    ----------
    costs
        The relative cost of each task.
    ranks
        The number of ranks.
    allowed
        For each task, the ranks that may do it; by default, all ranks.

    Returns
    -------
    tuple of int
        The rank of each task.

    Notes
    -----
    This is the LPT rule of R. L. Graham, SIAM J. Appl. Math. 17, 416 (1969): in the order of decreasing cost, each task
    is given to the rank with the lowest total cost so far. The bound of the rule does not hold if `allowed` restricts
    the ranks. In this case, tasks are then moved to ranks with a lower total cost until no move helps.
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
