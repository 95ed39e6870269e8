"""Two stand-ins for the backend of GPUs.

SimulatedCuda   simulated devices: the same launches, compiled as C, and products by NumPy
RecordedCuda    all code of GPUs, on a recording driver, kernels compiled as C, and an emulation of cuBLAS
"""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import ClassVar

import ml_dtypes
import numpy as np
import pytest

from scripts.device.recording_driver import RecordedDevice, RecordingDriver
from trnqc.backends.base import BackendStatus
from trnqc.backends.cuda import products
from trnqc.backends.cuda.backend import Cuda
from trnqc.backends.cuda.products import CublasProducts, Gpu, SimulatedProducts
from trnqc.jit.simulated_device import SimulatedDevice


class SimulatedCuda(Cuda):
    """Some simulated devices; the options are those of `SimulatedDevice`."""

    name = "simulated cuda"

    def __init__(self, count: int = 1, **options) -> None:
        self.simulated = tuple(SimulatedDevice(f"simulated {n}", streams=3, **options) for n in range(count))

    def status(self) -> BackendStatus:
        return BackendStatus(True, devices=tuple(device.name for device in self.simulated))

    def gpus(self) -> tuple[Gpu, ...]:
        return tuple(Gpu(device, SimulatedProducts(device)) for device in self.simulated)


class ColumnMajorBlas:
    """cublasGemmEx by NumPy: C = alpha op(A) op(B) + beta C of matrices in the order of Fortran, at addresses."""

    Operation = SimpleNamespace(N=0, T=1)
    ComputeType = SimpleNamespace(COMPUTE_32F=68, COMPUTE_64F=70)
    GemmAlgo = SimpleNamespace(DFALT=-1)
    dtypes: ClassVar = {0: np.dtype(np.float32), 1: np.dtype(np.float64), 14: np.dtype(ml_dtypes.bfloat16)}

    def __init__(self) -> None:
        self.streams: dict[int, int] = {}

    def create(self) -> int:
        return len(self.streams) + 1

    def set_stream(self, handle: int, stream: int) -> None:
        self.streams[handle] = stream

    def get_version(self, handle: int) -> int:
        return 130000

    def matrix(self, address: int, kind: int, ld: int, rows: int, columns: int) -> np.ndarray:
        assert ld >= rows
        size = ((columns - 1) * ld + rows) * self.dtypes[kind].itemsize
        flat = np.frombuffer((ctypes.c_char * size).from_address(address), self.dtypes[kind])
        return np.lib.stride_tricks.as_strided(flat, (rows, columns), (flat.itemsize, ld * flat.itemsize))

    def gemm_ex(self, handle, transa, transb, m, n, k, alpha, a, atype, lda, b, btype, ldb, beta, c, ctype, ldc,
                compute_type, algo):  # fmt: skip
        assert handle in self.streams and algo == -1
        scalar = {68: np.float32, 70: np.float64}[compute_type]
        one, old = (
            np.frombuffer((ctypes.c_char * scalar().itemsize).from_address(x), scalar)[0] for x in (alpha, beta)
        )
        left = self.matrix(a, atype, lda, *((k, m) if transa else (m, k)))
        right = self.matrix(b, btype, ldb, *((n, k) if transb else (k, n)))
        out = self.matrix(c, ctype, ldc, m, n)
        factors = (left.T if transa else left).astype(scalar), (right.T if transb else right).astype(scalar)
        out[...] = one * (factors[0] @ factors[1]) + (old * out if old else 0)


class RecordedCuda(Cuda):
    """GPUs whose driver is a recording one and whose cuBLAS is `ColumnMajorBlas`; all other code is that of GPUs.

    The options are those of `RecordingDriver`.
    """

    name = "recorded cuda"

    def __init__(self, count: int = 1, **options) -> None:
        self.driver = RecordingDriver(devices=count, **options)
        self.recorded = [RecordedDevice(self.driver, index=index) for index in range(count)]

    def status(self) -> BackendStatus:
        return BackendStatus(True, devices=tuple(device.name for device in self.recorded))

    def gpus(self) -> tuple[Gpu, ...]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(products, "cublas", ColumnMajorBlas)
            return tuple(Gpu(device, CublasProducts(device)) for device in self.recorded)
