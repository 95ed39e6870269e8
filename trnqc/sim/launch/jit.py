"""The decorator ``nki.jit``, which marks a function as a kernel, and simulated runs of kernels.

There is no compiler here. A direct call of a kernel is simulated if NKI_SIMULATOR=1 is set and is an error otherwise.
"""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable
from typing import Any

from trnqc.sim.launch.launch import execute
from trnqc.sim.machine import machine
from trnqc.sim.machine.faults import NkiValidationError
from trnqc.sim.machine.machine import Trace
from trnqc.sim.machine.version import version_from_environment

# Compiler options that published kernels pass. They do not affect results and are ignored.
_COMPILER_OPTIONS = {"debug_kernel", "experimental_flags", "show_compiler_tb"}
# Options that NKI 0.7 adds (page nki.jit of the documentation of Neuron 2.33). They do not affect results either.
_OPTIONS_OF_07 = {"compile_config", "specialization_config"}
# Number of cores for which the vendor's compiler and runtime are configured.
_CORES_VARIABLE = "NEURON_LOGICAL_NC_CONFIG"


class Kernel:
    """A kernel function and the number of cores on which it is launched.

    ``kernel[lnc]`` returns the kernel for ``lnc`` cores, 1 or 2.
    """

    def __init__(self, func: Callable[..., Any], lnc: int | None = None):
        functools.update_wrapper(self, func)
        self.func = func
        self._lnc = lnc

    @property
    def lnc(self) -> int:
        """Number of cores of a launch.

        It is the number in brackets, else 1. In NKI 0.7 it is that of NEURON_LOGICAL_NC_CONFIG where this is set, and
        another number in brackets is an error, as it is for the vendor's compiler (NCC_EVRF066).
        """
        text = os.environ.get(_CORES_VARIABLE, "") if version_from_environment() == "0.7" else ""
        if text not in ("", "1", "2"):
            raise NkiValidationError(f"{_CORES_VARIABLE} must be 1 or 2, got {text!r}")
        if self._lnc is not None and text not in ("", str(self._lnc)):
            raise NkiValidationError(
                f"kernel[{self._lnc}] must agree with {_CORES_VARIABLE}={text} in NKI 0.7; leave out the brackets"
            )
        return self._lnc or int(text or 1)

    def __getitem__(self, lnc: int) -> Kernel:
        if lnc not in (1, 2) or isinstance(lnc, bool):
            raise NkiValidationError(f"kernel[lnc] takes 1 or 2 cores, got {lnc!r}")
        return Kernel(self.func, int(lnc))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if machine.running() is not None:
            return self.func(*args, **kwargs)
        if os.environ.get("NKI_SIMULATOR") == "1":
            return execute(self.func, args, kwargs, self.lnc)[0]
        raise NkiValidationError(
            f"kernel {self.func.__name__} was called directly, but the nki compiler is not installed here; run it with "
            "simulate(kernel)(...) or set NKI_SIMULATOR=1"
        )


def jit(fn: Callable[..., Any] | None = None, **kwargs: Any) -> Any:
    """Mark a function as a kernel. The decorator works with and without parentheses.

    Raises
    ------
    NkiValidationError
        If ``platform_target`` is passed.
    TypeError
        If another unknown option is passed.
    """
    if "platform_target" in kwargs:
        raise NkiValidationError("platform_target is not an argument of nki.jit; set NEURON_PLATFORM_TARGET_OVERRIDE")
    if "mode" in kwargs:
        warnings.warn("nki.jit ignores mode=", DeprecationWarning, stacklevel=2)
        kwargs.pop("mode")
    unknown = set(kwargs) - _COMPILER_OPTIONS - (_OPTIONS_OF_07 if version_from_environment() == "0.7" else set())
    if unknown:
        raise TypeError(f"jit() got unexpected keyword arguments {sorted(unknown)}")
    return Kernel if fn is None else Kernel(fn)


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
