"""The CPU backend.

    B -> panels in the format of the precision (formats.py, pair_products.py)
      -> tasks of one i and a block of j (pair_blocks.py), shared among threads (pair_loop.py)
      -> T_j = B_i B_j^T by pair_product.c or one GEMM of NumPy's BLAS (pair_products.py)
      -> E_os[i,j] and E_ss[i,j] by pair_energy.c or NumPy (pair_energies.py)

One-particle densities take amplitudes and their sums from pair_amplitudes.c or NumPy (pair_amplitudes.py), whose loop
over pairs is in `trnqc.mp2.density`.

B is packed once, whereas a BLAS packs it again for every product, and the result does not depend on which BLAS is
installed. Each task runs on one thread. A product is too small to be divided among threads, which would wait for each
other at every barrier on a busy machine. The sums of a pair are formed by one thread, in an order that depends only on
nvir and naux. Their digits therefore do not depend on the number of threads, the memory limit, or the other pairs.
"""

from __future__ import annotations

import platform

import numpy as np

from trnqc import jit
from trnqc.backends.base import Backend, BackendStatus
from trnqc.backends.cpu.blas import CpuBlas
from trnqc.backends.cpu.formats import FORMATS, encode
from trnqc.backends.cpu.pair_energies import energy_library
from trnqc.backends.cpu.pairs import CpuPairStep
from trnqc.backends.pair_step import PairOptions
from trnqc.errors import CompilerError
from trnqc.host.blas import numpy_blas
from trnqc.host.threads import cpus


class Cpu(Backend):
    """The default backend."""

    name = "cpu"
    precisions = tuple(FORMATS)

    def status(self) -> BackendStatus:
        """Versions of NumPy, the BLAS and the C compiler. Without a compiler, NumPy computes the pairs."""
        blas = numpy_blas()
        versions = {"numpy": np.__version__, "BLAS": f"{blas} (threads a call: {blas.threads or 'unknown'})"}
        reason = hint = ""
        try:
            versions["C compiler"] = jit.find_compiler().version
            energy_library("float64")
            versions["pair kernel"] = "compiled"
        except CompilerError as error:
            versions["pair kernel"] = "not compiled"
            reason = "the pair kernel cannot be compiled, NumPy takes its place"
            hint = str(error)
        device = f"{platform.processor() or platform.machine()}, {cpus()} CPUs"
        return BackendStatus(True, reason, hint, versions, (device,))

    def _product(self, a_t: np.ndarray, b: np.ndarray, precision: str) -> np.ndarray:
        form = FORMATS[precision]
        # `encode` expects the contracted index to be the last one.
        left = form.left_of(encode(np.swapaxes(a_t, -1, -2), precision))
        right = form.right_of(encode(np.swapaxes(b, -1, -2), precision))
        return np.matmul(left, np.swapaxes(right, -1, -2))

    def _blas(self, precision: str) -> CpuBlas:
        return CpuBlas(precision)

    def _pair_step(self, options: PairOptions) -> CpuPairStep:
        return CpuPairStep(options)
