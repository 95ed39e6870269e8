"""Early cycles of a density-fitted SCF in reduced precision, on the host or on an accelerator.

density -> J and K in reduced precision -> accepted while the orbital gradient is far above their error
                                        -> else computed again in double precision, as are all that follow

An SCF that has converged has thus never used reduced precision in its last cycles: a density whose potential is
accepted has an orbital gradient of at least MARGIN (gradient.py) times the convergence threshold. Nor has one that
stops at the limit of cycles: the potential that the last orbitals come from and that of their density are in double
precision. What asks for potentials between the cycles, such as a callback, gets them in double precision too.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import numpy as np
from pyscf import df, scf
from pyscf.df.df_jk import _DFHF
from pyscf.lib import logger

from trnqc.eri.fitting import on_device
from trnqc.eri.fitting.rounded import RoundedJK
from trnqc.errors import MemoryLimit, UnsupportedError
from trnqc.fitted.memory import memory_left
from trnqc.pyscf.density_fitting import DF
from trnqc.pyscf.early import gradient
from trnqc.pyscf.early.gradient import EarlyPotentials, GradientWatch

# The error of the orbital gradient in units of the rounding error of a number and of `gradient_scale`. Measured errors
# in single precision were 0.4 to 1.3 times this in all cycles of benzene, its cation, aspirin and caffeine with
# def2-SVP, cc-pVDZ and cc-pVTZ.
GROWTH = 0.5
# How many times its error the orbital gradient has to be for reduced precision: the steps of DIIS are then the same.
SAFETY = 5.0
# Functions below which single precision on the host saves less than a tenth of a second a cycle.
SMALLEST = 200


def why_not(mf: Any, dm0: Any) -> str:
    """Return why all cycles of an SCF are in double precision, or "".

    dm0: the density that the user passes, if any.
    """
    if reason := gradient.why_not(mf, dm0):
        return reason
    if mf.direct_scf:
        return "J and K are those of differences of densities, whose errors add up"
    if isinstance(mf, scf.hf.KohnShamDFT) and not mf._numint.libxc.is_hybrid_xc(mf.xc):
        return "the functional has no exact exchange"
    return ""


def check_device(mf: Any, backend: str, precision: str, exchange: str | None) -> None:
    """Raise UnsupportedError, UnsupportedPrecision or BackendUnavailable if a backend cannot compute J and K of an SCF
    object from fitted integrals.
    """
    if not isinstance(mf, _DFHF) or not mf.with_df:
        raise UnsupportedError(
            f"backend {backend!r} computes J and K from fitted integrals, and {type(mf).__name__} has none: call "
            ".density_fit() first, or use backend='cpu' or 'cuda'"
        )
    if mf.only_dfj or exchange == "direct":
        raise UnsupportedError(f"backend {backend!r} has no exact K beside a fitted J: use backend='cpu'")
    if type(mf.with_df) not in (df.DF, DF):
        raise UnsupportedError(
            f"backend {backend!r} takes fitted integrals of one molecule in one process (pyscf.df.DF), found "
            f"{type(mf.with_df).__name__}"
        )
    on_device.check(backend, precision)


class EarlyCycles(EarlyPotentials):
    """Decides the precision of each cycle of one SCF. A context: at its end the rounded integrals are freed.

    `mf.with_df` is ours. `backend` computes J and K in reduced precision: "cpu", or one of `on_device.BACKENDS` in
    `precision`. `cycles` counts the potentials that have been computed and judged, `reduced` are the cycles after which
    the potential was one in reduced precision (0 is the initial guess), and `words` describes, after the SCF, what a
    device computed; else it is empty.
    """

    def __init__(self, mf: Any, backend: str, precision: str) -> None:
        super().__init__(mf)
        self.cycles, self.words = 0, ""
        self.reduced: list[int] = []
        self._device = (backend, precision) if backend in on_device.BACKENDS else None
        self._watch = GradientWatch(mf)
        self._single = ExitStack()
        self._rounded: RoundedJK | None = None
        self._active: bool | None = None

    def __enter__(self) -> EarlyCycles:
        return self

    def __exit__(self, *error: object) -> None:
        self._close()

    def veff(self, dm: Any, compute: Callable[[], Any]) -> Any:
        """Return the potential of the next cycle, in reduced precision if that is accurate enough.

        compute: returns the potential of `dm`.
        """
        if self._active is None:
            self._rounded = self._single.enter_context(self._reduced())
            self._active = self._rounded is not None
            self.mf.with_df.rounded = None  # Until a potential is computed.
        number = self._number()
        if self._active and number >= self._final:
            self._end("the last cycle comes next")
        if not self._active or getattr(dm, "mo_coeff", None) is None:
            return compute()
        potential = self._rounded_potential(compute)
        norm, error = self._gradient(dm, potential)
        # No orbital is virtual in the initial guess, which is not tested for convergence.
        if norm:
            self.cycles += 1
            accepted = self._watch.accepts(norm, SAFETY, error)
            if self._watch.ended:
                self._end(self._watch.ended)
            if not accepted:
                return compute()
        self.reduced.append(number)
        logger.info(self.mf, "the potential after cycle %d is in reduced precision", number)
        return potential

    def _rounded_potential(self, compute: Callable[[], Any]) -> Any:
        fitting = self.mf.with_df
        fitting.rounded = self._rounded
        try:
            return compute()
        finally:
            fitting.rounded = None

    def _reduced(self) -> AbstractContextManager[RoundedJK | None]:
        """Return the context of J and K in reduced precision."""
        fitting = self.mf.with_df
        if self._device is None:
            return fitting.reduced_precision()
        if type(fitting) is not DF:
            raise UnsupportedError(
                f"with_df was replaced by {type(fitting).__name__} after trnqc.accelerate: call it again on this object"
            )
        if not isinstance(fitting._cderi, np.ndarray):
            raise MemoryLimit(
                f"J and K on backend {self._device[0]!r} need the fitted integrals in memory, where max_memory is "
                f"{fitting.max_memory:.0f} MB and leaves them on disk: raise mf.max_memory, or use backend='cpu'"
            )
        return fitting.reduced_precision(on_device.on_device(*self._device, memory_left(fitting.max_memory)))

    def _end(self, reason: str) -> None:
        self._active = False
        self._close()
        logger.info(self.mf, "double precision after %d cycles in reduced precision: %s", self.cycles, reason)

    def _close(self) -> None:
        """Free the integrals in reduced precision, and keep the description of what a device computed from them."""
        if self._rounded is not None and isinstance(self._rounded.products, on_device.DeviceProducts):
            products = self._rounded.products
            self.words = f"the first {products.builds} J and K by {products.label}"
        self._rounded = None
        self._single.close()

    def _gradient(self, dm: Any, potential: Any) -> tuple[float, float]:
        """Return the norm of the orbital gradient and an estimate of its rounding error."""
        rounded = self._rounded
        assert rounded is not None
        error = GROWTH * rounded.products.rounding * gradient_scale(dm, rounded.exchange)
        return self._watch.norm(dm, potential), error


def gradient_scale(dm: Any, exchange: np.ndarray) -> float:
    """Return the size of an orbital gradient whose errors are proportional to K, for errors of relative size one.

    This is sqrt(sum_ai k_a k_i) with k_p = sum_m C_mp^2 K_mm, Hartree. If the errors of K_mn are independent and of
    size sqrt(K_mm K_nn), it is the expected norm of C_a^T E C_i. `dm` [..., nao, nao] has PySCF's tags mo_coeff and
    mo_occ, and `exchange` is K of each density.
    """
    nao = exchange.shape[-1]
    matrices = exchange.reshape(-1, nao, nao)
    coefficients = np.reshape(dm.mo_coeff, (-1, nao, np.shape(dm.mo_coeff)[-1]))
    occupations = np.reshape(dm.mo_occ, (-1, coefficients.shape[-1]))
    total = 0.0
    for spin, matrix in enumerate(matrices):
        weights = (coefficients[spin % len(coefficients)] ** 2).T @ np.abs(np.diagonal(matrix))
        # With one set of orbitals for both spins, those with one electron are occupied for the first alone.
        occupied = occupations[spin % len(occupations)] > (spin if len(occupations) < len(matrices) else 0)
        total += float(weights[occupied].sum() * weights[~occupied].sum())
    return float(np.sqrt(total))
