"""Memory limits that make a run slow: a warning, and beyond a bound an error that states a limit that would do."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from math import isqrt

from trnqc.contraction.estimate import SLOW
from trnqc.errors import InputError, MemoryLimit, SlowPlanWarning

# Ratio of estimated times with and without a memory limit above which the limit is refused, unless the caller allows
# more. A run of a second takes a quarter of an hour then, and estimates are right within a factor of a few.
MAX_SLOWDOWN = 1000.0
# Limits that are tried for the error message: it states one that is too large by a sixteenth of the range in powers.
TRIALS = 4


def check_slowdown(
    work: str,
    memory_limit: int | None,
    slowdown: float,
    allowed: float | None,
    sufficient: Callable[[float], int],
    stacklevel: int,
) -> None:
    """Issue a SlowPlanWarning for a memory limit that makes a run more than `SLOW` times slower.

    Parameters
    ----------
    work : str
        What is computed, in words.
    memory_limit : int, optional
        Bytes.
    slowdown : float
        Estimated time of a run relative to one without a limit.
    allowed : float, optional
        The slowdown above which the limit is refused; None to refuse none.
    sufficient : callable
        Returns the bytes with which a run is at most this many times slower.
    stacklevel : int
        That of ``warnings.warn``; 2 stands for the caller of this function.

    Raises
    ------
    MemoryLimit
        If the slowdown is larger than is allowed.
    InputError
        If `allowed` is neither None nor a number of at least 1.
    """
    if allowed is not None and not (isinstance(allowed, int | float) and allowed >= 1):
        raise InputError(f"max_slowdown is a number of at least 1, or None for no bound; found {allowed!r}")
    words = (
        f"a memory limit of {memory_limit} bytes makes {work} about {slowdown:.2g} times slower than without a limit"
    )
    if allowed is not None and slowdown > allowed:
        target = min(SLOW, allowed)
        raise MemoryLimit(
            f"{words}; max_slowdown allows {allowed:g} times: raise memory_limit to {sufficient(target)} bytes, with "
            f"which it is at most {target:g} times slower, or pass max_slowdown=None to run it nevertheless"
        )
    if slowdown > SLOW:
        message = f"{words}; raise memory_limit if the machine has the memory"
        warnings.warn(message, SlowPlanWarning, stacklevel=stacklevel + 1)


def least_bytes(slowdown: Callable[[int], float], low: int, high: int, target: float) -> int:
    """Return a limit with which a run is at most `target` times slower; `low` may not be one, `high` is."""
    for _ in range(TRIALS):
        middle = isqrt(max(low, 1) * high)
        if not low < middle < high:
            break
        if _or_infinite(slowdown, middle) <= target:
            high = middle
        else:
            low = middle
    return high


def _or_infinite(slowdown: Callable[[int], float], limit: int) -> float:
    """Return the slowdown; infinity if a search that was stopped by the time limit finds no loops."""
    try:
        return slowdown(limit)
    except MemoryLimit:
        return float("inf")
