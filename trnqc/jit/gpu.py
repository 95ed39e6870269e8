"""Compile CUDA text with NVRTC, and launch the kernels of a cubin on a GPU of this machine.

This needs the package cuda-core (``pip install 'trnqc[cuda]'``), which is imported at its first use. `nvcc.py` compiles
without it, and without a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trnqc.errors import BackendUnavailable, CompilerError
from trnqc.jit.cache import key_of, library_cache


def bindings() -> Any:
    """The module cuda.core. Raises BackendUnavailable, saying what to install, if it cannot be imported."""
    try:
        import cuda.core as core
    except ImportError as error:
        raise BackendUnavailable(
            f"the CUDA bindings cannot be imported ({error}): pip install 'trnqc[cuda]'; kernels for the CPU need none"
        ) from error
    return core


def compile_nvrtc(source: str, *, name: str, arch: str = "sm_80") -> bytes:
    """Compile CUDA text into a cubin with NVRTC, or take it from the cache.

    Raises BackendUnavailable if cuda-core or NVRTC's library is missing, and CompilerError if NVRTC rejects the text.
    Unlike nvcc it rejects infinite numbers in constant tables.
    """
    core = bindings()
    key = key_of(f"NVRTC {nvrtc_version()}", arch, source)

    def build(out: Path) -> None:
        out.write_bytes(_nvrtc(core, source, arch))

    return library_cache().get(f"{name}-{arch}-{key}", build, ".cubin").read_bytes()


def nvrtc_version() -> str:
    """The version of NVRTC. Raises BackendUnavailable if its library is missing."""
    from cuda.bindings import nvrtc

    try:
        return str(nvrtc.nvrtcVersion())
    except Exception as error:
        raise BackendUnavailable(f"NVRTC's library does not load: pip install 'trnqc[cuda]' ({error})") from error


def _nvrtc(core: Any, source: str, arch: str) -> bytes:
    try:
        program = core.Program(source, "c++", core.ProgramOptions(arch=arch, std="c++17"))
        return bytes(program.compile("cubin").code)
    except Exception as error:  # the bindings raise a class of their own for each library
        raise CompilerError(f"NVRTC rejects the text for {arch}:\n{error}") from error


class Module:
    """The kernels of a cubin on one device, which `launch` runs on the module's own stream."""

    def __init__(self, cubin: bytes, device: int = 0) -> None:
        core = bindings()
        try:
            self.device = core.Device(device)
            self.device.set_current()
        except Exception as error:
            raise BackendUnavailable(f"CUDA device {device} cannot be used: {error}") from error
        self._core, self._code = core, core.ObjectCode.from_cubin(cubin)
        self.stream = self.device.create_stream()

    def launch(self, kernel: str, groups: int, lanes: int, arguments: Sequence[int | np.generic]) -> None:
        """Run `groups` blocks of `lanes` threads and wait for them.

        arguments: in the order of the parameters. Arrays are given by the address of their device memory, such as a
        tensor's ``data_ptr()``, scalars as NumPy scalars of the parameter's type. lanes: those of the emitted text.
        """
        config = self._core.LaunchConfig(grid=groups, block=lanes)
        self._core.launch(self.stream, config, self._code.get_kernel(kernel), *arguments)
        self.stream.sync()
