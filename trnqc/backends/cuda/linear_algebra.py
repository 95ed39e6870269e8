"""Dense linear algebra on a GPU: products and triangular systems by cuBLAS, Cholesky factors by cuSOLVER."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from trnqc.backends import panels
from trnqc.backends.cuda import gemm
from trnqc.backends.cuda.formats import DeviceFormat
from trnqc.backends.cuda.products import DeviceMatrix, Gpu
from trnqc.errors import NotPositiveDefinite

# Rows of a panel of a triangular system in bf16 precisions: products of panels are large, and few copies are made.
PANEL = 1024


@dataclass(frozen=True, eq=False)
class CudaBlas:
    """See `trnqc.backends.blas.BackendBlas`. Arrays are NumPy arrays, and are copied to the GPU for each call.

    In the precisions of bf16, systems and factors consist of products on tensor cores and diagonal blocks in fp32.
    """

    gpu: Gpu
    form: DeviceFormat

    def product(self, a_t: Any, b: Any, c: Any, alpha: float, beta: float) -> np.ndarray:
        return gemm.product(self.gpu, a_t, b, self.form, c, alpha, beta)

    def triangle(self, a_t: Any, c: Any, alpha: float, beta: float) -> np.ndarray:
        return gemm.triangle(self.gpu, a_t, self.form, c, alpha, beta)

    def solve(self, l: Any, b: Any) -> np.ndarray:
        if self.form.halves:
            return panels.solve(l, b, PANEL, self._plain, self._solve)
        return self._solve(l, b)

    def cholesky(self, a: Any) -> np.ndarray:
        if self.form.halves:
            return panels.cholesky(a, PANEL, self._plain, self._solve, self._cholesky)
        return self._cholesky(a)

    def _plain(self, a_t: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self.product(a_t, b, None, 1.0, 0.0)

    def _solve(self, l: np.ndarray, b: np.ndarray) -> np.ndarray:
        with ExitStack() as held:
            left, right = (self._uploaded(held, x) for x in (l, b))
            self.gpu.solvers.solve(left, right)
            return self.gpu.device.download(right.memory)

    def _cholesky(self, a: np.ndarray) -> np.ndarray:
        with ExitStack() as held:
            matrix = self._uploaded(held, a)
            minor = self.gpu.solvers.cholesky(matrix)
            if minor > 0:
                raise NotPositiveDefinite(minor, len(a))
            return np.tril(self.gpu.device.download(matrix.memory))

    def _uploaded(self, held: ExitStack, x: np.ndarray) -> DeviceMatrix:
        memory = self.gpu.device.upload(np.ascontiguousarray(x, self.form.result))
        rows, columns = x.shape
        return DeviceMatrix(gemm.kept(held, self.gpu, memory), rows, columns, columns)
