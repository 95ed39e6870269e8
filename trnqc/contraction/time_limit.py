"""The time limit of planning, and a record of what was not searched because of it.

    with planning(2.0) as clock:        # einsum and einsum_plan do this
        ...                             # every search calls out_of_time("what it leaves out") and stops if it is true
    clock.omitted                       # what was left out, in words; empty in nearly all cases

The clock belongs to one call of `einsum_plan`, not to the arguments or results of a search, so it is kept in a context
variable. Outside of `planning` there is no limit, and searches depend on their arguments alone. Seconds are processor
time of this thread, so that other load on the machine does not change a plan.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf

from trnqc.errors import InputError

# Seconds of processor time for planning, by default.
TIME_LIMIT = 2.0
# Fractions of the time limit at which the searches for shared products, for orders of products and for fused loops end.
# Tiles and blocks are chosen in the rest.
SHARING, ORDER, FUSION = 0.6, 0.75, 0.9
# The fraction at which searches for orders end if slices within a memory limit may have to be found in the rest.
ORDER_OF_SLICES = 0.3


class TimeLimit:
    """A limit in seconds from now; None for no limit."""

    def __init__(self, limit: float | None, order: float = ORDER) -> None:
        self.limit, self.order = limit, order
        self.start = time.thread_time()
        self.omitted: tuple[str, ...] = ()

    def out_of_time(self, omitted: str, part: float) -> bool:
        """Return whether this fraction of the limit is over, and record the searches `omitted` then."""
        if self.spent(part) < 1:
            return False
        self.leave_out(omitted)
        return True

    def spent(self, part: float) -> float:
        """Return how much of this fraction of the limit is over: 1 for all of it."""
        if self.limit is None:
            return 0.0
        allowed = (self.order if part == ORDER else part) * self.limit
        return (time.thread_time() - self.start) / allowed if allowed else inf

    def leave_out(self, omitted: str) -> None:
        """Record that searches are left out."""
        if omitted not in self.omitted:
            self.omitted += (omitted,)


_current: ContextVar[TimeLimit | None] = ContextVar("planning", default=None)


@contextmanager
def planning(limit: float | None, order: float = ORDER) -> Iterator[TimeLimit]:
    """Limit planning to so many seconds of processor time; None for no limit.

    Searches for orders of products end at the fraction `order` of it.

    Raises InputError if the limit is neither None nor a non-negative number.
    """
    if limit is not None and not (isinstance(limit, int | float) and limit >= 0):
        raise InputError(f"time_limit is a number of seconds for planning, or None for no limit; found {limit!r}")
    clock = TimeLimit(limit, order)
    token = _current.set(clock)
    try:
        yield clock
    finally:
        _current.reset(token)


def out_of_time(omitted: str, part: float = 1.0) -> bool:
    """Return whether this fraction of the limit is over; `omitted`: the searches that are then left out, in words."""
    clock = _current.get()
    return clock is not None and clock.out_of_time(omitted, part)


def spent(part: float) -> float:
    """Return how much of this fraction of the limit is over: 1 for all of it, 0 without a limit."""
    clock = _current.get()
    return 0.0 if clock is None else clock.spent(part)


def leave_out(omitted: str) -> None:
    """Record that searches are left out, in the words of `out_of_time`."""
    if clock := _current.get():
        clock.leave_out(omitted)


def left_out(omitted: str) -> bool:
    """Return whether searches were left out so far, in the words of `out_of_time`."""
    clock = _current.get()
    return clock is not None and omitted in clock.omitted
