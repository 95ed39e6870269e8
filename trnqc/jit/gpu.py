"""Compile CUDA text with NVRTC, and launch the kernels of a cubin on a GPU of this machine.

Both need the package cuda-core (``pip install 'trnqc[cuda]'``), which is imported when it is used for the first time.
`nvcc.py` compiles without this package and without a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from trnqc.errors import BackendUnavailable, CompilerError

# The oldest compute capability, times ten, that adds doubles atomically, as our kernels do (CUDA C++ Programming Guide,
# atomicAdd).
OLDEST = 60


class Bindings(NamedTuple):
    """The Python modules through which a GPU is used.

    Attributes
    ----------
    core : module
        ``cuda.core``.
    driver : module
        ``cuda.bindings.driver``.
    nvrtc : module
        ``cuda.bindings.nvrtc``.
    """

    core: Any
    driver: Any
    nvrtc: Any


def bindings() -> Bindings:
    """The bindings of CUDA. Raises BackendUnavailable if they cannot be imported; the message says what to install."""
    try:
        import cuda.core as core
        from cuda.bindings import driver, nvrtc
    except ImportError as error:
        raise BackendUnavailable(
            f"the CUDA bindings cannot be imported ({error}): pip install 'trnqc[cuda]'; kernels for the CPU need none"
        ) from error
    return Bindings(core, driver, nvrtc)


def compile_nvrtc(source: str, *, arch: str = "sm_80", modules: Bindings | None = None) -> bytes:
    """Compile CUDA text into a cubin with NVRTC. `trnqc.jit.cubins` keeps those of recipes.

    Parameters
    ----------
    source : str
        The text. Unlike nvcc, NVRTC rejects infinite numbers in constant tables.
    arch : str
        The architecture to compile for.
    modules : Bindings, optional
        By default, those of `bindings`.

    Returns
    -------
    bytes
        The cubin.

    Raises
    ------
    BackendUnavailable
        If cuda-core or the library of NVRTC is missing.
    CompilerError
        If NVRTC rejects the text.
    """
    modules = modules or bindings()
    nvrtc_version(modules)  # Without the library, this says what to install.
    return _nvrtc(modules.core, source, arch)


def nvrtc_version(modules: Bindings | None = None) -> str:
    """The version of NVRTC, such as 13.0. Raises BackendUnavailable if its library cannot be loaded."""
    return ".".join(map(str, _ask_nvrtc(modules or bindings(), "nvrtcVersion")))


def require_arch(name: str, arch: str, modules: Bindings) -> None:
    """Raise BackendUnavailable if kernels cannot be compiled for the architecture `arch` of the GPU `name`."""
    known = [int(number) for number in _ask_nvrtc(modules, "nvrtcGetSupportedArchs")[0]]
    number = int(arch.removeprefix("sm_"))
    if number in known and number >= OLDEST:
        return
    first, last = max(OLDEST, known[0]), known[-1]
    remedy = (
        "hide this GPU by CUDA_VISIBLE_DEVICES, or use the backend 'cpu'"
        if number < first
        else "pip install --upgrade nvidia-cuda-nvrtc"
    )
    raise BackendUnavailable(
        f"{name} has compute capability {number / 10:.1f}, but NVRTC {nvrtc_version(modules)} compiles our kernels "
        f"for {first / 10:.1f} to {last / 10:.1f}: {remedy}"
    )


def _ask_nvrtc(modules: Bindings, function: str) -> tuple[Any, ...]:
    """Call a function of NVRTC without arguments. Raises BackendUnavailable if it fails."""
    try:
        status, *results = getattr(modules.nvrtc, function)()
    except Exception as error:  # The bindings raise a different class for each cause.
        raise BackendUnavailable(
            f"the library of NVRTC cannot be loaded ({error}): pip install 'trnqc[cuda]'"
        ) from error
    if int(status) != 0:
        raise BackendUnavailable(f"{function} of NVRTC returned {status.name}: pip install 'trnqc[cuda]'")
    return tuple(results)


def _nvrtc(core: Any, source: str, arch: str) -> bytes:
    try:
        program = core.Program(source, "c++", core.ProgramOptions(arch=arch, std="c++17"))
        return bytes(program.compile("cubin").code)
    except Exception as error:  # The bindings raise a different class for each library.
        raise CompilerError(f"NVRTC rejects the text for {arch}:\n{error}") from error


class Module:
    """The kernels of a cubin on one device. They run on a stream that belongs to this object."""

    def __init__(self, cubin: bytes, device: int = 0) -> None:
        core = bindings().core
        try:
            self.device = core.Device(device)
            self.device.set_current()
        except Exception as error:
            raise BackendUnavailable(f"CUDA device {device} cannot be used: {error}") from error
        self._core, self._code = core, core.ObjectCode.from_cubin(cubin)
        self.stream = self.device.create_stream()

    def launch(self, kernel: str, groups: int, lanes: int, arguments: Sequence[int | np.generic]) -> None:
        """Run a kernel and wait for it.

        Parameters
        ----------
        kernel : str
            The name of the kernel.
        groups : int
            The number of blocks.
        lanes : int
            The number of threads of a block, for which the text was emitted.
        arguments : sequence
            The arguments in the order of the parameters. An array is passed as the address of its device memory, such
            as ``data_ptr()`` of a tensor, and a scalar as a NumPy scalar of the type of the parameter.
        """
        config = self._core.LaunchConfig(grid=groups, block=lanes)
        self._core.launch(self.stream, config, self._code.get_kernel(kernel), *arguments)
        self.stream.sync()
