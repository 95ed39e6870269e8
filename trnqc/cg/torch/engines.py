"""The engines that run an operator, built once for each device and problem."""

from __future__ import annotations

import functools
from typing import Any

from trnqc.cg.problem.contraction import problem_of_text
from trnqc.cg.problem.text import problem_of
from trnqc.errors import UnsupportedError


@functools.lru_cache(maxsize=1024)
def cpu_engine(text: str, dtype: str, threads: int) -> Any:
    """Return the CPU engine of a problem.

    Parameters
    ----------
    text : str
        The problem, as `text_of` writes it.
    dtype : {"float32", "float64"}
        Type of the operands.
    threads : int
        Number of threads.
    """
    from trnqc.cg.cpu.engine import engine_for

    return engine_for(problem_of(text), dtype, threads)


@functools.lru_cache(maxsize=1024)
def contraction_engine_of(text: str, dtype: str, threads: int) -> Any:
    """Return the engine of a symmetric contraction on the CPU; for the arguments see `cpu_engine`."""
    from trnqc.cg.cpu.contraction_engine import contraction_engine

    return contraction_engine(problem_of_text(text), dtype, threads)


@functools.lru_cache(maxsize=1024)
def cuda_engine(text: str, dtype: str, number: int, kahan: bool, atomic: bool) -> Any:
    """Return the engine of a problem, as `text_of` writes it, on GPU `number`.

    Sums over edges are compensated with `kahan`; with `atomic` they use atomic additions, whose order varies from run
    to run. Raises BackendUnavailable without a GPU.
    """
    from trnqc.backends import devices
    from trnqc.cg.cuda.engine import CudaEngine

    return CudaEngine(problem_of(text), dtype, devices("cuda")[number], kahan=kahan, atomic=atomic)


@functools.lru_cache(maxsize=1024)
def cuda_contraction_engine(text: str, dtype: str, number: int) -> Any:
    """Return the engine of a symmetric contraction on a GPU; for the arguments see `cuda_engine`."""
    from trnqc.backends import devices
    from trnqc.cg.cuda.contraction_engine import CudaContractionEngine

    return CudaContractionEngine(problem_of_text(text), dtype, devices("cuda")[number])


@functools.lru_cache(maxsize=1024)
def nki_engine(text: str, backend: str) -> Any:
    """Return the engine of a problem on the backend "simulator" or "neuron"; for the text see `cpu_engine`."""
    from trnqc.cg.nki.engine import NkiEngine

    return NkiEngine(problem_of(text), backend)


def no_engine(device: str) -> UnsupportedError:
    """Return the error for operands on a device that has no kernels."""
    return UnsupportedError(
        f"tensor products and symmetric contractions run on cpu and cuda; found operands on {device}: move them first"
    )
