"""Dense linear algebra of real matrices on the CPU, on Trainium and on its simulator.

    arrays or tensors, options
      ─ choice ─►    backend and precision: asked for by name, or the cheapest that meets an error
      ─ operands ─►  checked matrices
      ─ forms ─►     the forms that kernels have: left operand transposed, lower triangles
      ─ backends ─►  BLAS on the CPU, NKI kernels elsewhere      (`trnqc.backends.blas.BackendBlas`)

Tensors of PyTorch go through operators with derivatives (tensors.py).
"""

from __future__ import annotations

from trnqc.blas.choice import Choice, choose, promised_error
from trnqc.blas.products import batched_gemm, gemm, symm, syrk
from trnqc.blas.triangular import cholesky, trsm

__all__ = ["Choice", "batched_gemm", "cholesky", "choose", "gemm", "promised_error", "symm", "syrk", "trsm"]
