"""The backend of NVIDIA GPUs."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

from trnqc.backends.base import Backend, BackendStatus
from trnqc.errors import BackendUnavailable, CompilerError
from trnqc.jit import device
from trnqc.jit.nvcc import find_nvcc, nvcc_version

# The file in which the driver states its version.
DRIVER = Path("/proc/driver/nvidia/version")
INSTALL = "pip install 'trnqc[cuda]' on a machine with an NVIDIA GPU and its driver"


class Cuda(Backend):
    """NVIDIA GPUs, to which integrals and tensor products send generated programs."""

    name = "cuda"

    def status(self) -> BackendStatus:
        """The backend is usable with a GPU and cuda-core. nvcc is listed too, but only offline reports need it."""
        versions = {"driver": _driver(), "cuda-core": _bindings(), "nvcc": _nvcc()}
        try:
            names = tuple(f"{gpu.name} ({gpu.arch})" for gpu in device.cuda_devices())
        except BackendUnavailable as error:
            return BackendStatus(False, str(error).splitlines()[0], INSTALL, versions)
        return BackendStatus(True, "generated programs only: integrals and tensor products", "", versions, names)

    def devices(self) -> tuple[device.CudaDevice, ...]:
        return device.cuda_devices()


def _driver() -> str:
    return DRIVER.read_text().splitlines()[0] if DRIVER.is_file() else f"none (no {DRIVER})"


def _bindings() -> str:
    try:
        return importlib.metadata.version("cuda-core")
    except importlib.metadata.PackageNotFoundError:
        return "not installed (pip install 'trnqc[cuda]')"


def _nvcc() -> str:
    try:
        return f"{find_nvcc()}, {nvcc_version(find_nvcc())}"
    except (BackendUnavailable, CompilerError) as error:
        return f"not usable: {str(error).splitlines()[0]}"
