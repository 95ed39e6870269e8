"""The engine that an operator's arguments ask for, built once for each device and problem."""

from __future__ import annotations

import functools
from typing import Any

from trnqc.cg.problem.text import problem_of
from trnqc.errors import UnsupportedError


@functools.lru_cache(maxsize=1024)
def cpu_engine(text: str, dtype: str, threads: int) -> Any:
    """The CPU's engine of a problem, for "float32" or "float64" and a number of threads."""
    from trnqc.cg.cpu.engine import engine_for

    return engine_for(problem_of(text), dtype, threads)


@functools.lru_cache(maxsize=1024)
def cuda_engine(text: str, dtype: str, number: int, kahan: bool, atomic: bool) -> Any:
    """The engine on GPU `number`. Raises BackendUnavailable without one."""
    from trnqc.backends import devices
    from trnqc.cg.cuda.engine import CudaEngine

    return CudaEngine(problem_of(text), dtype, devices("cuda")[number], kahan=kahan, atomic=atomic)


def no_engine(device: str) -> UnsupportedError:
    """The error for operands on a device that nothing is generated for."""
    return UnsupportedError(f"tensor products run on cpu and cuda; found operands on {device}: move them first")
