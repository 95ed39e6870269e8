"""Products of matrices in the memory of a device: by cuBLAS on GPUs, by NumPy on simulated devices.

cuBLAS is called through the bindings of nvmath-python, NVIDIA's own, which take addresses and streams and need no
array library.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import numpy as np

from trnqc.errors import BackendUnavailable
from trnqc.jit.device import CudaDevice, Device, DeviceArray
from trnqc.jit.simulated_device import SimulatedDevice

DATA_TYPES = {"float64": 1, "float32": 0, "bfloat16": 14}
"""The numbers of CUDA_R_64F, CUDA_R_32F and CUDA_R_16BF in CUDA's library_types.h, by the name of the dtype."""


@dataclass(frozen=True, eq=False)
class DeviceMatrix:
    """A matrix in row-major order that is a part of an array in the memory of a device.

    Parameters
    ----------
    memory
        The array.
    rows, columns
        The shape of the matrix.
    stride
        Elements from one row to the next.
    start
        The position of the first element.
    numbers
        The dtype of the elements, if the array was allocated with another one.
    count, step
        For a stack of matrices, their number, and elements from one to the next.
    """

    memory: DeviceArray
    rows: int
    columns: int
    stride: int
    start: int = 0
    numbers: np.dtype | None = None
    count: int = 1
    step: int = 0

    @property
    def dtype(self) -> np.dtype:
        return self.numbers or self.memory.dtype


class Products(Protocol):
    """Matrix products on one device.

    Attributes
    ----------
    label : str
        What computes them, in words.
    """

    @property
    def label(self) -> str: ...

    def multiply(
        self,
        left: DeviceMatrix,
        right: DeviceMatrix,
        out: DeviceMatrix,
        *,
        transpose: tuple[bool, bool] = (False, False),
        alpha: float = 1.0,
        beta: float = 0.0,
        stream: int = 0,
    ) -> None:
        """Queue out = alpha left @ right + beta out, with the operands transposed for which `transpose` says so.

        Operands are fp64, fp32 or bf16 and have the same dtype. `out` is fp64 for fp64, else fp32, and so are the sums.
        Stacks have the same number of matrices. `out` is not read if beta is 0.
        """
        ...


@dataclass(frozen=True, eq=False)
class Gpu:
    """A device with its matrix products, and its factors and triangular systems."""

    device: Device
    products: Products
    solvers: Solvers

    @property
    def capability(self) -> float:
        """Ten times the compute capability; that of a simulated device is infinite."""
        return int(self.device.arch[3:]) if self.device.arch.startswith("sm_") else math.inf


class Solvers(Protocol):
    """Triangular systems, factors and eigenvectors of fp64 or fp32 matrices on one device, on its first stream.

    Attributes
    ----------
    eigen_label : str
        What computes eigenvectors, in words.
    """

    @property
    def eigen_label(self) -> str: ...

    def solve(self, l: DeviceMatrix, b: DeviceMatrix) -> None:
        """Replace b by the solution X of l X = b, for a lower triangular l; the other triangle is not read."""
        ...

    def cholesky(self, a: DeviceMatrix) -> int:
        """Replace the lower triangle of a by that of l with l l.T = a; the other one is undefined.

        Returns 0, or the order of the first leading minor that is not positive. Waits for the result.
        """
        ...

    def eigenvectors(self, a: DeviceMatrix, values: DeviceMatrix) -> int:
        """Replace a symmetric matrix, of which the lower triangle is read, by its eigenvectors, one in each row.

        values: one row, for the eigenvalues in ascending order. Returns 0, or how many off-diagonal elements did not
        converge. Waits for the result.
        """
        ...


class CublasProducts:
    """Products by cuBLAS.

    Each stream has a handle of its own, because streams with a common handle share a workspace, with which results may
    differ from run to run.

    Raises
    ------
    BackendUnavailable
        If the bindings or the library are missing, or if cuBLAS does not start; the message says what to install.
    """

    def __init__(self, device: CudaDevice) -> None:
        self.device, self._cublas = device, cublas()
        self._handles = [self._handle(stream) for stream in range(device.streams)]

    @property
    def label(self) -> str:
        version = self._cublas.get_version(self._handles[0])
        return f"products by cuBLAS {version} on {self.device.name} ({self.device.arch})"

    def multiply(
        self,
        left: DeviceMatrix,
        right: DeviceMatrix,
        out: DeviceMatrix,
        *,
        transpose: tuple[bool, bool] = (False, False),
        alpha: float = 1.0,
        beta: float = 0.0,
        stream: int = 0,
    ) -> None:
        # cuBLAS expects columns first, where the matrices are their transposes: outᵀ = rightᵀ leftᵀ.
        cublas, scalar = self._cublas, np.float64 if out.dtype == np.float64 else np.float32
        factors = np.array([alpha, beta], scalar)
        operations = [cublas.Operation.T if flag else cublas.Operation.N for flag in transpose]
        inner = left.rows if transpose[0] else left.columns
        compute = cublas.ComputeType.COMPUTE_64F if scalar is np.float64 else cublas.ComputeType.COMPUTE_32F
        self.device.make_current()
        stacked = out.count > 1
        (cublas.gemm_strided_batched_ex if stacked else cublas.gemm_ex)(
            self._handles[stream],
            *map(int, (operations[1], operations[0], out.columns, out.rows, inner)),
            factors[:1].ctypes.data,
            *self._operand(right, stacked),
            *self._operand(left, stacked),
            factors[1:].ctypes.data,
            *self._operand(out, stacked),
            *([out.count] if stacked else []),
            int(compute),
            int(cublas.GemmAlgo.DFALT),
        )

    def _handle(self, stream: int) -> int:
        try:
            address = self.device.stream_address(stream)
            handle = int(self._cublas.create())
            self._cublas.set_stream(handle, address)
        except Exception as error:  # The bindings raise a different class for each cause.
            raise BackendUnavailable(
                f"cuBLAS does not start on {self.device.name} ({error}): pip install 'trnqc[cuda]'"
            ) from error
        return handle

    def _operand(self, matrix: DeviceMatrix, stacked: bool) -> tuple[int, ...]:
        """The address, the data type and the leading dimension of a matrix, and the step of a stack."""
        place = self.device.address(matrix.memory) + matrix.start * matrix.dtype.itemsize
        return place, _data_type(matrix.dtype), matrix.stride, *([matrix.step] if stacked else [])


@cache
def _data_type(dtype: np.dtype) -> int:
    """The number of a dtype, whose name NumPy puts together anew each time."""
    return DATA_TYPES[dtype.name]


def cublas() -> Any:
    """The bindings of cuBLAS. Raises BackendUnavailable if they are not installed."""
    try:
        from nvmath.bindings import cublas
    except ImportError as error:
        raise BackendUnavailable(
            f"the bindings of cuBLAS cannot be imported ({error}): pip install 'trnqc[cuda]'"
        ) from error
    return cublas


@dataclass(frozen=True, eq=False)
class SimulatedProducts:
    """Products by NumPy on a simulated device, with sums in the dtype of the result."""

    device: SimulatedDevice

    @property
    def label(self) -> str:
        return f"products by NumPy on {self.device.name}"

    def multiply(
        self,
        left: DeviceMatrix,
        right: DeviceMatrix,
        out: DeviceMatrix,
        *,
        transpose: tuple[bool, bool] = (False, False),
        alpha: float = 1.0,
        beta: float = 0.0,
        stream: int = 0,
    ) -> None:
        operands = [view(matrix) for matrix in (left, right)]
        a, b = (x.swapaxes(1, 2) if flag else x for x, flag in zip(operands, transpose))
        target = view(out)
        product = target.dtype.type(alpha) * (a.astype(target.dtype) @ b.astype(target.dtype))
        target[...] = product + target.dtype.type(beta) * target if beta else product


def view(matrix: DeviceMatrix) -> np.ndarray:
    """A stack of matrices on a simulated device as a NumPy array [count, rows, columns]."""
    flat = matrix.memory.handle.reshape(-1).view(matrix.dtype)[matrix.start :]
    strides = (matrix.step * flat.itemsize, matrix.stride * flat.itemsize, flat.itemsize)
    if flat.size < (matrix.count - 1) * matrix.step + (matrix.rows - 1) * matrix.stride + matrix.columns:
        raise IndexError(
            f"{matrix.count} x {matrix.rows} rows of {matrix.columns} elements end after the array of {flat.size}"
        )
    return np.lib.stride_tricks.as_strided(flat, (matrix.count, matrix.rows, matrix.columns), strides)
