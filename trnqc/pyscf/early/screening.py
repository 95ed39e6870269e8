"""Early cycles of an SCF with direct J and K, which leave out larger integrals than the last ones.

density -> J and K of its change, integrals left out below the early tolerance
            -> accepted while the orbital gradient is far above their error
            -> else J and K of the whole density with `mf.direct_scf_tol`; those of changes from then on

An SCF that has converged has thus left out larger integrals in none of the potentials that it has added up, nor has one
that stops at the limit of cycles. What asks for potentials between the cycles gets those of `mf.direct_scf_tol`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyscf.lib import logger

from trnqc.pyscf.early.gradient import EarlyPotentials, GradientWatch

# The error of the orbital gradient in units of the tolerance and of the number of functions. Measured errors were 2 to
# 8 times the product for 10 and 20 waters, benzene, aspirin and caffeine with def2-SVP, cc-pVDZ, def2-TZVP and cc-pVTZ,
# and 15 to 26 times it for caffeine with 6-31+G*.
GROWTH = 25.0
# How many times its error the orbital gradient has to be.
SAFETY = 5.0
# Functions below which J and K of early cycles hardly take less time.
SMALLEST = 200


class EarlyScreening(EarlyPotentials):
    """Decides which integrals J and K of each cycle of one SCF leave out.

    `loose` are the cycles after which the potential was one of `tolerance`; 0 is the initial guess.
    """

    def __init__(self, mf: Any, tolerance: float) -> None:
        super().__init__(mf)
        self.loose: list[int] = []
        self._tolerance, self._error = tolerance, GROWTH * tolerance * mf.mol.nao_nr()
        self._watch = GradientWatch(mf)
        # Whether J and K that are computed now are those of an early cycle, and whether the last potential has such.
        self._early = self._left_out = False

    def take(self) -> float | None:
        """Return the tolerance of the direct J and K that are computed now; None for that of the SCF."""
        self._left_out |= self._early
        return self._tolerance if self._early else None

    def veff(self, dm: Any, of_change: Callable[[], Any], of_whole: Callable[[], Any]) -> Any:
        """Return the potential of the next cycle.

        of_change, of_whole: return the potential of `dm`, from the last one and the change of the density, or anew.
        """
        number = self._number()
        orbitals = getattr(dm, "mo_coeff", None) is not None
        if not self._watch.ended and (number >= self._final or (number and not orbitals)):
            self._watch.ended = "the last cycle comes next"
        if not self._watch.ended:
            self._early = True
            try:
                potential = of_change()
            finally:
                self._early = False
            # PySCF serves where kernels are missing. The initial guess is not tested for convergence.
            if not self._left_out or not orbitals or self._accepts(dm, potential):
                if self._left_out:
                    self.loose.append(number)
                return potential
        compute, self._left_out = of_whole if self._left_out else of_change, False
        return compute()

    def _accepts(self, dm: Any, potential: Any) -> bool:
        norm = self._watch.norm(dm, potential)
        accepted = not norm or self._watch.accepts(norm, SAFETY, self._error)
        if self._watch.ended:
            logger.info(self.mf, "all integrals after cycle %d: %s", self._next - 1, self._watch.ended)
        return accepted
