"""The backend of NVIDIA GPUs."""

from __future__ import annotations

import importlib.metadata
from functools import cache
from pathlib import Path

import numpy as np

from trnqc.backends.base import Backend, BackendStatus
from trnqc.backends.blas import BackendBlas
from trnqc.backends.cuda.formats import DEVICE_FORMATS
from trnqc.backends.cuda.gamma import CudaGamma
from trnqc.backends.cuda.gemm import product
from trnqc.backends.cuda.linear_algebra import CudaBlas
from trnqc.backends.cuda.pairs import CudaPairStep
from trnqc.backends.cuda.products import CublasProducts, Gpu, cublas
from trnqc.backends.cuda.solvers import CusolverSolvers
from trnqc.backends.gamma import AddRows, FactorSet, GammaOptions
from trnqc.backends.pair_step import PairOptions
from trnqc.errors import BackendUnavailable, CompilerError, UnsupportedPrecision
from trnqc.jit import device
from trnqc.jit.nvcc import find_nvcc, nvcc_version

# The file in which the driver states its version.
DRIVER = Path("/proc/driver/nvidia/version")
INSTALL = "pip install 'trnqc[cuda]' on a machine with an NVIDIA GPU and its driver"


class Cuda(Backend):
    """NVIDIA GPUs, which compute products by cuBLAS and all the rest by generated programs."""

    name = "cuda"
    precisions = gamma_precisions = tuple(DEVICE_FORMATS)

    def status(self) -> BackendStatus:
        """The backend is usable with a GPU, cuda-core and cuBLAS. nvcc is listed too, but only reports need it."""
        versions = {
            "driver": _driver(),
            "cuda-core": _version("cuda-core"),
            "nvmath-python": _version("nvmath-python"),
            "nvcc": _nvcc(),
        }
        try:
            names = tuple(f"{gpu.name} ({gpu.arch})" for gpu in device.cuda_devices())
        except BackendUnavailable as error:
            return BackendStatus(False, str(error).splitlines()[0], INSTALL, versions)
        try:
            cublas()
        except BackendUnavailable as error:
            reason = f"generated programs only (integrals, tensor products): {str(error).splitlines()[0]}"
            return BackendStatus(True, reason, INSTALL, versions, names)
        return BackendStatus(True, "", "", versions, names)

    def devices(self) -> tuple[device.CudaDevice, ...]:
        return device.cuda_devices()

    def gpus(self) -> tuple[Gpu, ...]:
        """The devices of `devices` with their matrix products, opened once."""
        return _open_gpus()

    def require_accuracy(self, precision: str) -> None:
        """Refuse a precision that a GPU does not have in its tensor cores."""
        least = DEVICE_FORMATS[precision].capability
        for gpu in self.gpus():
            if gpu.capability < least:
                raise UnsupportedPrecision(
                    f"{precision} needs a GPU of compute capability {least / 10:.1f} or later, but "
                    f"{gpu.device.name} has {gpu.capability / 10:.1f}: choose fp32 or fp64, or hide this GPU "
                    "by CUDA_VISIBLE_DEVICES"
                )

    def _product(self, a_t: np.ndarray, b: np.ndarray, precision: str) -> np.ndarray:
        return product(self.gpus()[0], a_t, b, DEVICE_FORMATS[precision])

    def _blas(self, precision: str) -> BackendBlas:
        return CudaBlas(self.gpus()[0], DEVICE_FORMATS[precision])

    def _gamma(self, left: FactorSet, right: FactorSet | None, options: GammaOptions, add: AddRows) -> str:
        return CudaGamma(self.gpus(), left, right, options).run(add)

    def _pair_step(self, options: PairOptions) -> CudaPairStep:
        return CudaPairStep(self.gpus(), options)


@cache
def _open_gpus() -> tuple[Gpu, ...]:
    return tuple(Gpu(gpu, CublasProducts(gpu), CusolverSolvers(gpu)) for gpu in device.cuda_devices())


def _driver() -> str:
    return DRIVER.read_text().splitlines()[0] if DRIVER.is_file() else f"none (no {DRIVER})"


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed (pip install 'trnqc[cuda]')"


def _nvcc() -> str:
    try:
        return f"{find_nvcc()}, {nvcc_version(find_nvcc())}"
    except (BackendUnavailable, CompilerError) as error:
        return f"not usable: {str(error).splitlines()[0]}"
