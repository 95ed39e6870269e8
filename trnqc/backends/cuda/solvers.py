"""Triangular systems, Cholesky factors and eigenvectors in the memory of a device.

They are computed by cuBLAS and cuSOLVER on GPUs, and by SciPy on simulated devices.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import eigh, lapack, solve_triangular

from trnqc.backends.cuda.products import DeviceMatrix, cublas, view
from trnqc.errors import BackendUnavailable
from trnqc.jit.device import CudaDevice
from trnqc.jit.simulated_device import SimulatedDevice

# The first letter of the functions for a dtype.
LETTERS = {"float64": "d", "float32": "s"}
# CUSOLVER_EIG_MODE_VECTOR of cusolver_common.h: eigenvectors are wanted too.
WITH_VECTORS = 1


class CusolverSolvers:
    """Solvers by cuBLAS and cuSOLVER, which are opened when they are first used.

    Both expect columns first, where a lower triangle in row-major order is an upper one.

    Raises
    ------
    BackendUnavailable
        From the methods, if the bindings or the libraries are missing; the message says what to install.
    """

    def __init__(self, device: CudaDevice) -> None:
        self.device = device

    def solve(self, l: DeviceMatrix, b: DeviceMatrix) -> None:
        # X.T l.T = b.T, where l.T is the upper triangular matrix that cuBLAS sees.
        blas, handle = self._cublas
        letter, one = LETTERS[l.dtype.name], np.ones(1, l.dtype)
        options = blas.SideMode.RIGHT, blas.FillMode.UPPER, blas.Operation.N, blas.DiagType.NON_UNIT
        numbers = map(int, (*options, b.columns, b.rows))
        operands = (self._place(l), l.stride, self._place(b), b.stride)
        self.device.make_current()
        getattr(blas, f"{letter}trsm")(handle, *numbers, one.ctypes.data, *operands)

    def cholesky(self, a: DeviceMatrix) -> int:
        solver, handle = self._cusolver
        arguments = (handle, int(cublas().FillMode.UPPER), a.rows, self._place(a), a.stride)
        return self._run(solver, f"{LETTERS[a.dtype.name]}potrf", a.dtype, arguments)

    @property
    def eigen_label(self) -> str:
        # A library that does not start is an error here already, and not in the midst of a calculation.
        _ = self._cusolver
        return f"eigenvectors by cuSOLVER on {self.device.name}"

    def eigenvectors(self, a: DeviceMatrix, values: DeviceMatrix) -> int:
        solver, handle = self._cusolver
        upper = int(cublas().FillMode.UPPER)
        arguments = (handle, WITH_VECTORS, upper, a.rows, self._place(a), a.stride, self._place(values))
        # The columns of eigenvectors that cuSOLVER writes are our rows.
        return self._run(solver, f"{LETTERS[a.dtype.name]}syevd", a.dtype, arguments)

    def _run(self, solver: Any, function: str, dtype: np.dtype, arguments: tuple[int, ...]) -> int:
        """Call a function of cuSOLVER with a workspace, and return the number by which it reports its success."""
        self.device.make_current()
        size = int(getattr(solver, f"{function}_buffer_size")(*arguments))
        workspace, info = self.device.zeros(max(size, 1), dtype=dtype), self.device.zeros(1, dtype=np.int32)
        getattr(solver, function)(*arguments, self.device.address(workspace), size, self.device.address(info))
        report = int(self.device.download(info)[0])
        self.device.release(workspace, info)
        return report

    def _place(self, matrix: DeviceMatrix) -> int:
        return self.device.address(matrix.memory) + matrix.start * matrix.dtype.itemsize

    @cached_property
    def _cublas(self) -> tuple[Any, int]:
        return self._opened("cuBLAS", cublas())

    @cached_property
    def _cusolver(self) -> tuple[Any, int]:
        return self._opened("cuSOLVER", cusolver())

    def _opened(self, name: str, bindings: Any) -> tuple[Any, int]:
        """The bindings with a handle on the first stream."""
        try:
            address = self.device.stream_address(0)
            handle = int(bindings.create())
            bindings.set_stream(handle, address)
        except Exception as error:  # The bindings raise a different class for each cause.
            raise BackendUnavailable(
                f"{name} does not start on {self.device.name} ({error}): pip install 'trnqc[cuda]'"
            ) from error
        return bindings, handle


def cusolver() -> Any:
    """The bindings of cuSOLVER. Raises BackendUnavailable if they are not installed."""
    try:
        from nvmath.bindings import cusolverDn
    except ImportError as error:
        raise BackendUnavailable(
            f"the bindings of cuSOLVER cannot be imported ({error}): pip install 'trnqc[cuda]'"
        ) from error
    return cusolverDn


@dataclass(frozen=True, eq=False)
class SimulatedSolvers:
    """Solvers by SciPy on a simulated device."""

    device: SimulatedDevice

    def solve(self, l: DeviceMatrix, b: DeviceMatrix) -> None:
        target = view(b)[0]
        target[...] = solve_triangular(view(l)[0], target, lower=True, check_finite=False)

    def cholesky(self, a: DeviceMatrix) -> int:
        target = view(a)[0]
        lower, minor = getattr(lapack, f"{LETTERS[a.dtype.name]}potrf")(target, lower=1, clean=0)
        target[...] = lower
        return int(minor)

    @property
    def eigen_label(self) -> str:
        return f"eigenvectors by SciPy on {self.device.name}"

    def eigenvectors(self, a: DeviceMatrix, values: DeviceMatrix) -> int:
        target = view(a)[0]
        numbers, vectors = eigh(target, lower=True, driver="evd", check_finite=False)
        target[...], view(values)[0][...] = vectors.T, numbers
        return 0
