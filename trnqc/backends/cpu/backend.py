"""The CPU backend.

    B -> panels in the format of the precision (formats.py, pair_products.py)
      -> tasks of one i and a block of j (pair_blocks.py), shared among threads (pair_loop.py)
      -> T_j = B_i B_j^T, pair_product.c or one GEMM of NumPy's BLAS (pair_products.py)
      -> E_os[i,j], E_ss[i,j], pair_energy.c or NumPy (pair_energies.py)

B is packed once, where a BLAS packs it anew for every product, and the result does not depend on which BLAS is
installed. Threads run over tasks, not inside products, which are too small to share: on a busy machine threads would
wait for one another at every barrier. Each pair's sums are made by one thread in an order that depends only on nvir and
naux: its digits are the same for any number of threads, any memory limit, and whichever pairs are computed beside it.
"""

from __future__ import annotations

import numpy as np

from trnqc.backends.base import Backend, BackendStatus, PairOptions
from trnqc.backends.cpu.formats import FORMATS, encode
from trnqc.backends.cpu.pairs import CpuPairStep
from trnqc.backends.cpu.status import status
from trnqc.types import PRECISIONS


class Cpu(Backend):
    """The default backend."""

    name = "cpu"
    precisions = PRECISIONS

    def status(self) -> BackendStatus:
        return status()

    def _product(self, a_t: np.ndarray, b: np.ndarray, precision: str) -> np.ndarray:
        form = FORMATS[precision]
        # The contracted index is last while the operands are encoded.
        left = form.left_of(encode(np.swapaxes(a_t, -1, -2), precision))
        right = form.right_of(encode(np.swapaxes(b, -1, -2), precision))
        return np.matmul(left, np.swapaxes(right, -1, -2))

    def _pair_step(self, options: PairOptions) -> CpuPairStep:
        return CpuPairStep(options)
