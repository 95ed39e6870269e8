"""The libraries and the compiler that the CPU backend uses on this machine."""

from __future__ import annotations

import platform

import numpy as np

from trnqc import jit
from trnqc.backends.base import BackendStatus
from trnqc.backends.cpu.pair_energies import energy_library
from trnqc.errors import CompilerError
from trnqc.host.blas import numpy_blas
from trnqc.host.threads import cpus


def status() -> BackendStatus:
    """The versions of NumPy, the BLAS and the C compiler. Without a compiler, only the fused pair step is unusable."""
    blas = numpy_blas()
    versions = {"numpy": np.__version__, "BLAS": f"{blas} (threads a call: {blas.threads or 'unknown'})"}
    reason = hint = ""
    try:
        versions["C compiler"] = jit.find_compiler().version
        energy_library("float64")
        versions["pair kernel"] = "compiled"
    except CompilerError as error:
        versions["pair kernel"] = "not compiled"
        reason = "the fused pair kernel cannot be compiled; GEMMs and the unfused pair step work"
        hint = str(error)
    device = f"{platform.processor() or platform.machine()}, {cpus()} CPUs"
    return BackendStatus(True, reason, hint, versions, (device,))
