"""The decorator ``nki.jit``, which marks a function as a kernel.

There is no compiler here. A direct call of a kernel is simulated if NKI_SIMULATOR=1 is set and is an error otherwise.
"""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable
from typing import Any

from trnqc.sim.faults import NkiValidationError
from trnqc.sim.launch import machine
from trnqc.sim.launch.launch import execute

# Compiler options that published kernels pass. They do not affect results and are ignored.
_COMPILER_OPTIONS = {"debug_kernel", "experimental_flags", "show_compiler_tb"}


class Kernel:
    """A kernel function and the number of cores on which it is launched (``lnc``, 1 or 2).

    ``kernel[lnc]`` returns the kernel for another number of cores.
    """

    def __init__(self, func: Callable[..., Any], lnc: int = 1):
        functools.update_wrapper(self, func)
        self.func = func
        self.lnc = lnc

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
    unknown = set(kwargs) - _COMPILER_OPTIONS
    if unknown:
        raise TypeError(f"jit() got unexpected keyword arguments {sorted(unknown)}")
    return Kernel if fn is None else Kernel(fn)
