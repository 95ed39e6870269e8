"""Two stand-ins for the backend of GPUs.

SimulatedCuda   simulated devices: the same launches of the same CUDA text, and products by NumPy
RecordedCuda    all code of GPUs, on a recording driver, CUDA text on the CPU, and an emulation of cuBLAS
"""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from types import SimpleNamespace
from typing import ClassVar

import ml_dtypes
import numpy as np
import pytest
from scipy.linalg import blas, lapack

from scripts.device.recording_driver import RecordedDevice, RecordingDriver
from trnqc.backends.base import BackendStatus
from trnqc.backends.cuda import products, solvers
from trnqc.backends.cuda.backend import Cuda
from trnqc.backends.cuda.products import CublasProducts, Gpu, SimulatedProducts
from trnqc.backends.cuda.solvers import CusolverSolvers, SimulatedSolvers
from trnqc.jit.simulated_device import SimulatedDevice


class SimulatedCuda(Cuda):
    """Some simulated devices; the options are those of `SimulatedDevice`."""

    name = "simulated cuda"

    def __init__(self, count: int = 1, **options) -> None:
        self.simulated = tuple(SimulatedDevice(f"simulated {n}", streams=3, **options) for n in range(count))

    def status(self) -> BackendStatus:
        return BackendStatus(True, devices=tuple(device.name for device in self.simulated))

    def gpus(self) -> tuple[Gpu, ...]:
        return tuple(Gpu(device, SimulatedProducts(device), SimulatedSolvers(device)) for device in self.simulated)


class ColumnMajorBlas:
    """cublasGemmEx by NumPy: C = alpha op(A) op(B) + beta C of matrices in the order of Fortran, at addresses."""

    Operation = SimpleNamespace(N=0, T=1)
    ComputeType = SimpleNamespace(COMPUTE_32F=68, COMPUTE_64F=70)
    GemmAlgo = SimpleNamespace(DFALT=-1)
    SideMode = SimpleNamespace(LEFT=0, RIGHT=1)
    FillMode = SimpleNamespace(LOWER=0, UPPER=1)
    DiagType = SimpleNamespace(NON_UNIT=0, UNIT=1)
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

    def gemm_strided_batched_ex(self, handle, transa, transb, m, n, k, alpha, a, atype, lda, stride_a, b, btype, ldb,
                                stride_b, beta, c, ctype, ldc, stride_c, batch_count, compute_type, algo):  # fmt: skip
        for z in range(batch_count):
            places = (
                (x + z * step * self.dtypes[kind].itemsize, kind, ld)
                for x, kind, ld, step in (
                    (a, atype, lda, stride_a),
                    (b, btype, ldb, stride_b),
                    (c, ctype, ldc, stride_c),
                )
            )
            left, right, out = places
            self.gemm_ex(handle, transa, transb, m, n, k, alpha, *left, *right, beta, *out, compute_type, algo)

    def dtrsm(self, handle, side, uplo, trans, diag, m, n, alpha, a, lda, b, ldb) -> None:
        self._trsm(blas.dtrsm, 1, handle, side, uplo, trans, diag, m, n, alpha, a, lda, b, ldb)

    def strsm(self, handle, side, uplo, trans, diag, m, n, alpha, a, lda, b, ldb) -> None:
        self._trsm(blas.strsm, 0, handle, side, uplo, trans, diag, m, n, alpha, a, lda, b, ldb)

    def _trsm(self, function, kind, handle, side, uplo, trans, diag, m, n, alpha, a, lda, b, ldb) -> None:
        assert handle in self.streams
        dtype, size = self.dtypes[kind], n if side else m
        scale = np.frombuffer((ctypes.c_char * dtype.itemsize).from_address(alpha), dtype)[0]
        matrix, out = self.matrix(a, kind, lda, size, size), self.matrix(b, kind, ldb, m, n)
        out[...] = function(scale, matrix, out, side=side, lower=1 - uplo, trans_a=trans, diag=diag)


class ColumnMajorSolver:
    """Functions of cuSOLVER by LAPACK, on matrices in the order of Fortran at addresses."""

    WORKSPACE = 5

    def __init__(self, cublas: ColumnMajorBlas) -> None:
        self.cublas, self.create, self.set_stream = cublas, cublas.create, cublas.set_stream

    def dpotrf_buffer_size(self, handle, uplo, n, a, lda) -> int:
        return self.WORKSPACE

    spotrf_buffer_size = dpotrf_buffer_size

    def dpotrf(self, handle, uplo, n, a, lda, workspace, lwork, dev_info) -> None:
        self._potrf(handle, uplo, n, a, lda, workspace, lwork, dev_info, 1)

    def spotrf(self, handle, uplo, n, a, lda, workspace, lwork, dev_info) -> None:
        self._potrf(handle, uplo, n, a, lda, workspace, lwork, dev_info, 0)

    def dsyevd_buffer_size(self, handle, jobz, uplo, n, a, lda, w) -> int:
        return self.WORKSPACE

    ssyevd_buffer_size = dsyevd_buffer_size

    def dsyevd(self, handle, jobz, uplo, n, a, lda, w, work, lwork, info) -> None:
        self._syevd(handle, jobz, uplo, n, a, lda, w, work, lwork, info, 1)

    def ssyevd(self, handle, jobz, uplo, n, a, lda, w, work, lwork, info) -> None:
        self._syevd(handle, jobz, uplo, n, a, lda, w, work, lwork, info, 0)

    def _syevd(self, handle, jobz, uplo, n, a, lda, w, work, lwork, info, kind) -> None:
        assert handle in self.cublas.streams and jobz == 1 and work and lwork == self.WORKSPACE
        matrix, values = self.cublas.matrix(a, kind, lda, n, n), self.cublas.matrix(w, kind, n, n, 1)
        numbers, vectors, report = (lapack.ssyevd, lapack.dsyevd)[kind](matrix, lower=1 - uplo)
        matrix[...], values[:, 0] = vectors, numbers
        (ctypes.c_int32).from_address(info).value = report

    def _potrf(self, handle, uplo, n, a, lda, workspace, lwork, dev_info, kind) -> None:
        assert handle in self.cublas.streams and workspace and lwork == self.WORKSPACE
        matrix = self.cublas.matrix(a, kind, lda, n, n)
        factor, minor = (lapack.spotrf, lapack.dpotrf)[kind](matrix, lower=1 - uplo, clean=0)
        matrix[...] = factor
        (ctypes.c_int32).from_address(dev_info).value = minor


class RecordedSolvers(CusolverSolvers):
    """The solvers of GPUs, which call `ColumnMajorBlas` and `ColumnMajorSolver`."""

    def __init__(self, device: RecordedDevice) -> None:
        super().__init__(device)
        self.emulated = ColumnMajorBlas()

    def solve(self, l, b):
        with self._emulation():
            super().solve(l, b)

    def cholesky(self, a):
        with self._emulation():
            return super().cholesky(a)

    @property
    def eigen_label(self):
        with self._emulation():
            return super().eigen_label

    def eigenvectors(self, a, values):
        with self._emulation():
            return super().eigenvectors(a, values)

    @contextmanager
    def _emulation(self):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(solvers, "cublas", lambda: self.emulated)
            patch.setattr(solvers, "cusolver", lambda: ColumnMajorSolver(self.emulated))
            yield


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
            return tuple(Gpu(device, CublasProducts(device), RecordedSolvers(device)) for device in self.recorded)
