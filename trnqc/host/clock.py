"""The wall time of a job, by the names of its parts.

Code far below a job says what it does by `measured`. If a `Clock` runs in this context, the time is added to that name;
otherwise nothing happens. Threads that the job starts are not measured: their work is that of the part which waits for
them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

# The name of the time that no part has named.
OTHER = "other"
# Seconds after which a user is told what takes long.
PATIENCE = 2.0


class Clock:
    """Wall seconds by part. Each second counts once: a part does not contain the parts within it.

    Attributes
    ----------
    seconds
        Seconds by the names of parts, in the order in which they began; `OTHER` comes last.

    Examples
    --------
    >>> clock = Clock()
    >>> with clock.running(), measured("SCF"), measured("integrals"):
    ...     pass
    >>> list(clock.seconds)
    ['SCF', 'integrals', 'other']
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        # Seconds that parts within the innermost open part have taken.
        self._inside = 0.0

    @contextmanager
    def running(self) -> Iterator[Clock]:
        """Be the clock of this context, which takes the place of another one."""
        before = _running.set(self)
        try:
            with self.part(OTHER):
                yield self
        finally:
            _running.reset(before)
            self.seconds[OTHER] = self.seconds.pop(OTHER)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Add the time of the context to a part, without that of the parts within it."""
        start, outside, self._inside = time.perf_counter(), self._inside, 0.0
        self.seconds.setdefault(name, 0.0)
        try:
            yield
        finally:
            whole = time.perf_counter() - start
            self.seconds[name] += whole - self._inside
            self._inside = outside + whole

    def divide(self, seconds: Mapping[str, float]) -> None:
        """Move seconds of the open part to the parts of which they are known to be."""
        for name, value in seconds.items():
            self.seconds[name] = self.seconds.get(name, 0.0) + value
            self._inside += value


@contextmanager
def measured(part: str) -> Iterator[None]:
    """Add the time of the context to a part of the running clock, if there is one."""
    clock = _running.get()
    if clock is None:
        yield
        return
    with clock.part(part):
        yield


def divide(seconds: Mapping[str, float]) -> None:
    """Move seconds of the open part of the running clock, if there is one, as `Clock.divide` does."""
    if clock := _running.get():
        clock.divide(seconds)


_running: ContextVar[Clock | None] = ContextVar("running clock", default=None)
