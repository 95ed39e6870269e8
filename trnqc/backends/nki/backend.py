"""A backend of NKI kernels. The host prepares the operands, and a device runs the kernels.

a_t, b -> split into the parts of the precision -> one launch -> product
operands of `trnqc.blas` -> one launch -> result (blas.py)
B      -> packed factors and work lists -> launches -> pair energies (pairs.py), Γ (gamma.py)
fitted integrals -> kept on the device -> launches for each density -> J and K (fitted_jk.py)
"""

from __future__ import annotations

import numpy as np

from nki_kernels.descriptors import kernels
from nki_kernels.precision.splits import split
from trnqc.backends.base import Backend
from trnqc.backends.gamma import AddRows, FactorSet, GammaOptions
from trnqc.backends.nki.accuracy import accuracy_of, require_accuracy
from trnqc.backends.nki.blas import NkiBlas
from trnqc.backends.nki.device import PRECISIONS, NkiDevice
from trnqc.backends.nki.fitted_jk import NkiFittedJK, fitted_jk
from trnqc.backends.nki.gamma import NkiGamma
from trnqc.backends.nki.pairs import NkiPairStep
from trnqc.backends.pair_step import PairOptions


class NkiBackend(Backend):
    """The base class of both backends. Subclasses define name, status and devices; the first device is used."""

    precisions = PRECISIONS
    gamma_precisions = kernels()["mp2_gamma"].precisions
    fitted_precisions = kernels()["df_exchange"].precisions

    def devices(self) -> tuple[NkiDevice, ...]:
        raise self._without("devices")

    def require_accuracy(self, precision: str) -> None:
        """Measure the precision on the first device before its first use."""
        require_accuracy(self.devices()[0], precision)

    def accuracies(self) -> tuple[str, ...]:
        """The measured and the promised error of each precision, and which of them are refused."""
        return tuple(self._accuracy(precision) for precision in self.precisions)

    def _accuracy(self, precision: str) -> str:
        try:
            accuracy = accuracy_of(self.devices()[0], precision)
        except Exception as error:  # A device that cannot run the kernel is a finding, not a failure of the report.
            return f"{precision}: not measured: {error}"
        return str(accuracy) if accuracy.kept else f"{accuracy}: refused"

    def _product(self, a_t: np.ndarray, b: np.ndarray, precision: str) -> np.ndarray:
        name, device = "gemm" if a_t.ndim == 2 else "batched_contraction", self.devices()[0]
        return device.call(name, *(device.put(split(x, precision)) for x in (a_t, b)))

    def _blas(self, precision: str) -> NkiBlas:
        return NkiBlas(self.devices()[0], precision)

    def _pair_step(self, options: PairOptions) -> NkiPairStep:
        return NkiPairStep(self.devices()[0], options)

    def _gamma(self, left: FactorSet, right: FactorSet | None, options: GammaOptions, add: AddRows) -> str:
        return NkiGamma(self.devices()[0], left, right, options).run(add)

    def _fitted_jk(self, rows: np.ndarray, precision: str, max_memory: float | None) -> NkiFittedJK:
        return fitted_jk(self.devices()[0], rows, precision, max_memory)
