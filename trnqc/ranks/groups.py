"""What the processes of one job know of one another, and how work is divided among them: no arrays, no network.

Rooms that can share work take a `Ranks`; `ALONE` is a job of one process. Those that really talk to one another are in
trnqc.ranks.transport.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

import numpy as np

from trnqc.errors import InputError

T = TypeVar("T")
Message = tuple[int, np.ndarray]
SCHEDULES = ("static", "dynamic")
PASSES = 50


class Pending(Protocol):
    """Messages under way."""

    def arrived(self) -> None:
        """Until all that is to be received is there."""
        ...

    def wait(self) -> None:
        """Until all that is to be received is there and all that is sent may be written to again."""
        ...


class Ranks(Protocol):
    """One process's view of a job of `size` processes, of which it is number `rank`.

    All ranks call the methods in the same order. Errors: CommunicationError when another rank is lost or late.
    """

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def neighbours(self) -> int:
        """Ranks on this machine, this one included."""
        ...

    def at(self, stage: str) -> None:
        """Say what this rank does now, for messages about it."""
        ...

    def at_first(self, make: Callable[[], T]) -> T:
        """make() of rank 0, everywhere; the others wait for it, however long it takes."""
        ...

    def sum(self, array: np.ndarray) -> np.ndarray:
        """The sum over ranks, everywhere and with the same bits: ((rank 0 + rank 1) + rank 2) ..."""
        ...

    def exchange(self, sent: Sequence[Message], received: Sequence[Message]) -> Pending:
        """Start sending contiguous arrays to ranks and filling others from ranks.

        Between two ranks messages match in order; both sides know shapes and dtypes.
        """
        ...

    def next_of(self, name: str) -> int:
        """0, 1, 2, ... each given once to one of the ranks; may be called by any of them at any time."""
        ...


class _Done:
    def arrived(self) -> None:
        pass

    def wait(self) -> None:
        pass


class Alone:
    """A job of one process."""

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
    """Numbers of this rank's tasks, the dearest first.

    static: settled by the costs. dynamic: the next task goes to whoever asks for it, under a name of its own.
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
    return sorted(range(len(costs)), key=lambda n: (-costs[n], n))


def balanced(costs: Sequence[float], ranks: int, allowed: Sequence[Iterable[int]] | None = None) -> tuple[int, ...]:
    """A rank for every task: the dearest first, each to the rank with the least to do so far (Graham's LPT rule).

    allowed: by task, the ranks that may take it; all of them by default. The rule then errs by more, and tasks move to
    ranks with less to do until none gains by it.
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
