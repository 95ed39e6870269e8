"""Running kernels with data, and tracing them without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trnqc.sim.faults import NkiValidationError
from trnqc.sim.launch.jit import Kernel
from trnqc.sim.launch.launch import execute
from trnqc.sim.launch.machine import Trace

_last: list[Trace] = []


def simulate(kernel: Kernel | Callable[..., Any]) -> Callable[..., Any]:
    """``simulate(kernel)(*arrays)`` runs a kernel on NumPy arrays or CPU torch tensors and returns NumPy arrays.

    Writes to arguments are visible to the caller. ``simulate(kernel[2])`` runs two cores.
    """

    def run(*args: Any, **kwargs: Any) -> Any:
        result, trace_of = execute(_function(kernel), args, kwargs, getattr(kernel, "lnc", 1))
        _last[:] = [trace_of]
        return result

    return run


def trace(kernel: Kernel | Callable[..., Any], records: bool = False) -> Callable[..., Trace]:
    """``trace(kernel)(*args)`` checks and counts every instruction without touching floating-point data.

    Arguments may be ``Spec``; integer arrays keep their values, which are loop bounds and offsets. With ``records``
    the executed instructions are kept, one pass of each device loop.
    """

    def run(*args: Any, **kwargs: Any) -> Trace:
        found = execute(_function(kernel), args, kwargs, getattr(kernel, "lnc", 1), dry=True, records=records)[1]
        _last[:] = [found]
        return found

    return run


def last_trace() -> Trace:
    """Trace of the latest finished run (core 0)."""
    if not _last:
        raise NkiValidationError("no kernel has run yet")
    return _last[0]


def _function(kernel: Any) -> Callable[..., Any]:
    return kernel.func if isinstance(kernel, Kernel) else kernel
