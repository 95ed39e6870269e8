"""Simulation of kernels with data, and tracing without data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trnqc.sim.launch.jit import Kernel
from trnqc.sim.launch.launch import execute
from trnqc.sim.machine.faults import NkiValidationError
from trnqc.sim.machine.machine import Trace

_last: list[Trace] = []


def simulate(kernel: Kernel | Callable[..., Any]) -> Callable[..., Any]:
    """Simulate a kernel on data.

    Parameters
    ----------
    kernel : Kernel or callable
        The kernel. ``kernel[2]`` runs on two cores.

    Returns
    -------
    callable
        A function that takes the arguments of the kernel, as NumPy arrays or CPU torch tensors, and returns NumPy
        arrays. What the kernel writes to its arguments is visible to the caller.
    """

    def run(*args: Any, **kwargs: Any) -> Any:
        result, kernel_trace = execute(_function(kernel), args, kwargs, getattr(kernel, "lnc", 1))
        _last[:] = [kernel_trace]
        return result

    return run


def trace(kernel: Kernel | Callable[..., Any], records: bool = False) -> Callable[..., Trace]:
    """Check and count the instructions of a kernel without computing floating-point data.

    Parameters
    ----------
    kernel : Kernel or callable
        The kernel.
    records : bool
        If true, the trace keeps the executed instructions, with one pass of each device loop.

    Returns
    -------
    callable
        A function that takes the arguments of the kernel and returns its `Trace`. Arguments may be `Spec`; integer
        arrays keep their values, because they hold loop bounds and offsets.
    """

    def run(*args: Any, **kwargs: Any) -> Trace:
        lnc = getattr(kernel, "lnc", 1)
        kernel_trace = execute(_function(kernel), args, kwargs, lnc, dry=True, records=records)[1]
        _last[:] = [kernel_trace]
        return kernel_trace

    return run


def last_trace() -> Trace:
    """Return the trace of core 0 of the latest finished run."""
    if not _last:
        raise NkiValidationError("no kernel has run yet")
    return _last[0]


def _function(kernel: Any) -> Callable[..., Any]:
    return kernel.func if isinstance(kernel, Kernel) else kernel
