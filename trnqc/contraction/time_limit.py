"""The time that planning may take, and what was left out because of it.

    with planning(2.0) as clock:        # einsum and einsum_plan do this
        ...                             # every search asks out_of_time("what it leaves out") and then stops
    clock.omitted                       # what was left out, in words; empty in nearly all cases

The clock belongs to a call of `einsum_plan`, not to what any search takes or yields, so it is found through the
context. Outside of `planning` there is no limit and the searches are functions of their arguments alone. Seconds are
those that the processor works on this thread: what else the machine is busy with does not change a plan.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from trnqc.errors import InputError

# Seconds that planning may take where the caller says nothing.
TIME_LIMIT = 2.0
# Parts of the time after which what terms share, the orders of products and the loops of steps stand, one after the
# other; tiles and blocks are chosen in the rest.
SHARING, ORDER, FUSION = 0.6, 0.75, 0.9


class Clock:
    """A limit in seconds from now; None for no limit."""

    def __init__(self, limit: float | None) -> None:
        self.limit = limit
        self.start = time.thread_time()
        self.omitted: tuple[str, ...] = ()

    def out_of_time(self, omitted: str, part: float) -> bool:
        if self.limit is None or time.thread_time() - self.start < part * self.limit:
            return False
        if omitted not in self.omitted:
            self.omitted += (omitted,)
        return True


_current: ContextVar[Clock | None] = ContextVar("planning", default=None)


@contextmanager
def planning(limit: float | None) -> Iterator[Clock]:
    """Planning within so many seconds of the processor, None for as long as it takes.

    Raises
    ------
    InputError
        If the limit is neither None nor a number of seconds that is zero or more.
    """
    if limit is not None and not (isinstance(limit, int | float) and limit >= 0):
        raise InputError(f"time_limit is a number of seconds for planning, or None for no limit; found {limit!r}")
    clock = Clock(limit)
    token = _current.set(clock)
    try:
        yield clock
    finally:
        _current.reset(token)


def out_of_time(omitted: str, part: float = 1.0) -> bool:
    """Whether this part of the time is over; `omitted` says what the search that asks then leaves out."""
    clock = _current.get()
    return clock is not None and clock.out_of_time(omitted, part)
