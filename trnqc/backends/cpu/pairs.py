"""The MP2 pair step on the CPU: products and energy expression, both compiled, or both by NumPy."""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from trnqc.backends.cpu.formats import FORMATS
from trnqc.backends.cpu.pair_blocks import plan_block
from trnqc.backends.cpu.pair_energies import (
    EnergyPass,
    compiled_opposite_pass,
    compiled_pass,
    energy_library,
    numpy_opposite_pass,
    numpy_pass,
)
from trnqc.backends.cpu.pair_loop import block_sums, triangle_sums
from trnqc.backends.cpu.pair_products import PairProducts, make_products, product_library, supports
from trnqc.backends.pair_step import PairOptions
from trnqc.errors import CompilerError
from trnqc.host.threads import default_threads
from trnqc.types import PairEnergies


@dataclass(frozen=True)
class CpuPairStep:
    """The pair step of the CPU, see `trnqc.backends.pair_step.PairStep`."""

    options: PairOptions

    def triangle(
        self, B: Any, eps_occ: np.ndarray, eps_vir: np.ndarray, max_memory: float | None = None
    ) -> PairEnergies:
        threads, progress = self._threads(), self.options.progress
        eps_occ, energies, products = _fp64(eps_occ), self._energy_pass(eps_vir), self._products(B)
        os_sums, x_sums = triangle_sums(
            B, eps_occ, products, energies, threads=threads, max_memory=max_memory, progress=progress
        )
        twice = 2.0 - np.eye(len(eps_occ))
        return PairEnergies(twice * os_sums, twice * (os_sums - x_sums), self._ran_on(products))

    def block(
        self,
        left: np.ndarray,
        right: np.ndarray,
        eps_left: np.ndarray,
        eps_right: np.ndarray,
        eps_vir: np.ndarray,
    ) -> PairEnergies:
        threads, progress = self._threads(), self.options.progress
        eps_left, eps_right, energies = _fp64(eps_left), _fp64(eps_right), self._energy_pass(eps_vir)
        rows, columns = self._products(left), self._products(right)
        os_sums, x_sums = block_sums(rows, columns, eps_left, eps_right, energies, threads=threads, progress=progress)
        return PairEnergies(2.0 * os_sums, 2.0 * (os_sums - x_sums), self._ran_on(rows))

    def block_bytes(self, m: int, n: int, nvir: int, naux: int) -> int:
        threads, products = self._threads(), self._products(np.broadcast_to(0.0, (m, nvir, naux)))
        return plan_block(m, n, products, products, threads=threads).bytes + threads * products.scratch_bytes

    def opposite_spin(
        self,
        left: np.ndarray,
        right: np.ndarray,
        eps_occ: tuple[np.ndarray, np.ndarray],
        eps_vir: tuple[np.ndarray, np.ndarray],
    ) -> PairEnergies:
        threads, progress = self._threads(), self.options.progress
        virtual = _fp64(eps_vir[0]), _fp64(eps_vir[1])
        if self.fused:
            energies = compiled_opposite_pass(virtual, FORMATS[self.options.precision].dtype)
        else:
            energies = numpy_opposite_pass(virtual)
        rows, columns = self._products(left, right.shape[1]), self._products(right)
        os_sums, nothing = block_sums(
            rows, columns, _fp64(eps_occ[0]), _fp64(eps_occ[1]), energies, threads=threads, progress=progress
        )
        return PairEnergies(os_sums, nothing, self._ran_on(rows))

    def opposite_spin_bytes(self, m: int, n: int, nvir: tuple[int, int], naux: int) -> int:
        threads = self._threads()
        rows = self._products(np.broadcast_to(0.0, (m, nvir[0], naux)), nvir[1])
        columns = self._products(np.broadcast_to(0.0, (n, nvir[1], naux)))
        scratch = threads * max(rows.scratch_bytes, columns.scratch_bytes)
        return plan_block(m, n, rows, columns, threads=threads).bytes + scratch

    @functools.cached_property
    def fused(self) -> bool:
        """Whether compiled code runs. Without a C compiler and without prebuilt kernels NumPy does, with a warning.

        It is the default without a rule by size, because no size and precision was found for which it is slower:
        `trnqc mp2 MOLECULE --precision P` and the same with `--no-fused-energy` show the seconds of both.
        """
        if not self.options.fused:
            return False
        try:
            _load(self.options.precision)
        except CompilerError as error:
            _warn_of_numpy(str(error))
            return False
        return True

    def _threads(self) -> int:
        return self.options.threads or default_threads()

    def _products(self, B: Any, columns: int | None = None) -> PairProducts:
        return make_products(B, self.options.precision, self.fused, columns)

    def _energy_pass(self, eps_vir: np.ndarray) -> EnergyPass:
        if self.fused:
            return compiled_pass(_fp64(eps_vir), FORMATS[self.options.precision].dtype)
        return numpy_pass(_fp64(eps_vir))

    def _ran_on(self, products: PairProducts) -> str:
        how = "compiled energy pass" if self.fused else "energy expression apart in NumPy"
        how += " (there is no C compiler)" if self.options.fused and not self.fused else ""
        return f"{products.label}, {how}, {self._threads()} threads"


def _load(precision: str) -> None:
    """Load the compiled code of a precision. Raises CompilerError if it is neither there nor can be compiled."""
    dtype = np.dtype(FORMATS[precision].dtype).name
    if supports(precision):
        product_library(dtype)
    energy_library(dtype)


@functools.cache
def _warn_of_numpy(reason: str) -> None:
    """Warn in the first call of this process."""
    warnings.warn(f"the MP2 pair step runs in NumPy instead of compiled code: {reason}", RuntimeWarning, stacklevel=5)


def _fp64(eps: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(eps, dtype=np.float64)
