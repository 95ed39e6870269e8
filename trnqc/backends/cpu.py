"""The CPU backend: products and energies of the pair step compiled for this machine.

    B -> panels in the format of the precision (formats.py, products.py)
      -> tasks of one i and a block of j (plan.py), dealt to threads (pairs.py)
      -> T_j = B_i B_j^T, pair_product.c or one GEMM of NumPy's BLAS (products.py)
      -> E_os[i,j], E_ss[i,j], pair_energy.c or NumPy (energy.py)

B is packed once, where a BLAS packs it anew for every product, and nothing depends on which BLAS is installed.
Threads run over tasks, not inside products, which are too small to share: a busy machine would stall them at every
barrier. Each pair's sums are made by one thread in an order that depends on nothing but nvir and naux: its digits are
the same for any number of threads, any memory limit, and whichever pairs are computed beside it.
"""

from __future__ import annotations

import platform
from typing import Any

import numpy as np

from trnqc import jit
from trnqc.backends.base import BackendStatus, Progress, check_precision, product_operands
from trnqc.backends.cpu_kernels.energy import compiled_pass, energy_library, numpy_pass
from trnqc.backends.cpu_kernels.formats import FORMATS, encode
from trnqc.backends.cpu_kernels.pairs import block_sums, pair_sums
from trnqc.backends.cpu_kernels.plan import block_plan
from trnqc.backends.cpu_kernels.products import make_products
from trnqc.errors import CompilerError
from trnqc.host.blas import numpy_blas
from trnqc.host.threads import cpus, default_threads
from trnqc.types import PRECISIONS, PairEnergies


def _product(a_t: np.ndarray, b: np.ndarray, precision: str) -> np.ndarray:
    """a_t[..., K, M], b[..., K, N] -> [..., M, N]; the contracted index is last while the operands are encoded."""
    form = FORMATS[precision]
    left = form.left_of(encode(np.swapaxes(a_t, -1, -2), precision))
    right = form.right_of(encode(np.swapaxes(b, -1, -2), precision))
    return np.matmul(left, np.swapaxes(right, -1, -2))


class Cpu:
    """The default backend; see trnqc.backends.base.Backend for the meaning of arguments."""

    name = "cpu"
    precisions = PRECISIONS

    def status(self) -> BackendStatus:
        blas = numpy_blas()
        versions = {"numpy": np.__version__, "BLAS": f"{blas} (threads a call: {blas.threads or 'unknown'})"}
        reason = hint = ""
        try:
            versions["C compiler"] = jit.find_compiler().version
            energy_library("float64")
            versions["pair kernel"] = "compiled"
        except CompilerError as error:
            versions["pair kernel"] = "not compiled"
            reason = "the fused pair kernel cannot be compiled; GEMMs and the unfused pair step work"
            hint = str(error)
        device = f"{platform.processor() or platform.machine()}, {cpus()} CPUs"
        return BackendStatus(True, reason, hint, versions, (device,))

    def gemm(self, a_t: np.ndarray, b: np.ndarray, *, precision: str) -> np.ndarray:
        check_precision(self, precision)
        a_t, b = product_operands(a_t, b, stacked=False)
        return _product(a_t, b, precision)

    def batched_contraction(self, a_t: np.ndarray, b: np.ndarray, *, precision: str) -> np.ndarray:
        check_precision(self, precision)
        a_t, b = product_operands(a_t, b, stacked=True)
        return _product(a_t, b, precision)

    def mp2_pairs(
        self,
        B: Any,
        eps_occ: np.ndarray,
        eps_vir: np.ndarray,
        *,
        precision: str,
        fused: bool = True,
        threads: int | None = None,
        max_memory: float | None = None,
        progress: Progress | None = None,
    ) -> PairEnergies:
        """See Backend.mp2_pairs. fused=True raises CompilerError where there is no C compiler."""
        check_precision(self, precision)
        threads = threads or default_threads()
        eps_occ, eps_vir = (np.ascontiguousarray(e, dtype=np.float64) for e in (eps_occ, eps_vir))
        energies = compiled_pass(eps_vir, FORMATS[precision].dtype) if fused else numpy_pass(eps_vir)
        products = make_products(B, precision, compiled=fused)
        os_sums, x_sums = pair_sums(
            B, eps_occ, products, energies, threads=threads, max_memory=max_memory, progress=progress
        )
        twice = 2.0 - np.eye(len(eps_occ))
        ran_on = self._ran_on(products.label, fused, threads)
        return PairEnergies(twice * os_sums, twice * (os_sums - x_sums), ran_on)

    def mp2_pair_block(
        self,
        left: np.ndarray,
        right: np.ndarray,
        eps_left: np.ndarray,
        eps_right: np.ndarray,
        eps_vir: np.ndarray,
        *,
        precision: str,
        fused: bool = True,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> PairEnergies:
        """See Backend.mp2_pair_block. fused=True raises CompilerError where there is no C compiler."""
        check_precision(self, precision)
        threads = threads or default_threads()
        eps_left, eps_right, eps_vir = (
            np.ascontiguousarray(e, dtype=np.float64) for e in (eps_left, eps_right, eps_vir)
        )
        energies = compiled_pass(eps_vir, FORMATS[precision].dtype) if fused else numpy_pass(eps_vir)
        rows, columns = (make_products(x, precision, compiled=fused) for x in (left, right))
        os_sums, x_sums = block_sums(rows, columns, eps_left, eps_right, energies, threads=threads, progress=progress)
        return PairEnergies(2.0 * os_sums, 2.0 * (os_sums - x_sums), self._ran_on(rows.label, fused, threads))

    def pair_block_bytes(
        self, m: int, n: int, nvir: int, naux: int, *, precision: str, fused: bool = True, threads: int | None = None
    ) -> int:
        """See Backend.pair_block_bytes."""
        check_precision(self, precision)
        threads = threads or default_threads()
        products = make_products(np.broadcast_to(0.0, (m, nvir, naux)), precision, compiled=fused)
        return block_plan(m, n, products, threads=threads).bytes + threads * products.scratch_bytes

    @staticmethod
    def _ran_on(products: str, fused: bool, threads: int) -> str:
        how = "compiled energy pass" if fused else "energy expression apart in NumPy"
        return f"{products}, {how}, {threads} threads"
