"""Early cycles of a Kohn-Sham SCF on coarse grids.

density -> potential from the coarse grid -> accepted while the orbital gradient is far above its error
                                          -> else computed again on the full grid, which corrects those that follow

An SCF that has converged has thus never used a coarse grid in its last cycles, as with reduced precision
(`precision`): a density whose potential is accepted has an orbital gradient of at least MARGIN times the convergence
threshold. The last orbitals at the limit of cycles, and the potential of their density, are of the full grid.

PySCF diagonalises once more after convergence. That density differs so little from one with a correction that the error
of its energy is far below rounding, which is estimated before it is accepted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from pyscf import lib
from pyscf.lib import logger

from trnqc.pyscf.early.gradient import STEP, EarlyPotentials, stalls, why_unjudged

# The size of the error of an uncorrected potential, as an orbital gradient: at most about this times the square root of
# the number of atoms, Hartree.
UNCORRECTED = 0.01
# How many times an uncorrected error the orbital gradient has to be.
SAFETY = 10.0
# How many times the convergence threshold the orbital gradient has to be for a coarse grid.
MARGIN = 2.0
# How many times c |D - D0| / |D| (see `trnqc.xc.coarse`) the orbital gradient has to be.
GROWTH = 10.0
# The largest estimate of the error after convergence, in units of the convergence threshold of the orbital gradient.
# That of the energy is this error times a rotation of the orbitals that is smaller than the threshold.
AFTERWARDS = 0.05
# A coarse grid whose error is this many times the expected one is given up.
WRONG = 20.0
# Functions times points of the full grid below which coarse grids save less than a tenth of a second.
SMALLEST = 5e6


class WrongGrid(Exception):
    """The coarse grid is too far from the full one, so that the SCF has to begin again."""


def why_not(mf: Any) -> str:
    """Return why all cycles of an SCF are on the full grid, or ""."""
    if mf.early_grid == "full":
        return "early_grid is 'full'"
    if "_numint" not in mf.__dict__:
        return "there is no quadrature"
    from trnqc.xc.grids import is_accelerated
    from trnqc.xc.numint import NumInt

    if type(mf._numint) is not NumInt or not is_accelerated(mf.grids):
        return "the quadrature is the user's"
    return why_unjudged(mf)


def _saves(mf: Any, dm: Any) -> bool:
    """Return whether a coarse grid is worth its own cost."""
    from trnqc.xc.coarse import is_worth

    if mf.grids.coords is None:
        mf.initialize_grids(mf.mol, dm)
    return mf.mol.nao_nr() * mf.grids.size >= SMALLEST and is_worth(mf.grids)


class EarlyQuadrature(EarlyPotentials):
    """Decides the grid of each cycle of one SCF. A context: at its end the full grids serve.

    `coarse` are the numbers of the cycles after which the potential was one of coarse grids; 0 is the initial guess.
    `dm0` is the density from which the user lets the SCF start, if any.
    """

    def __init__(self, mf: Any, dm0: Any) -> None:
        from trnqc.xc.coarse import CoarseIntegrals

        super().__init__(mf)
        self.coarse: list[int] = []
        self._numint, self._integrals = mf._numint, CoarseIntegrals()
        self._guess = dm0 is None and mf.mo_coeff is None and mf.init_guess != "chkfile"
        threshold = mf.conv_tol_grad
        self._threshold = np.sqrt(mf.conv_tol) if threshold is None else threshold
        self._least, self._scale = MARGIN * self._threshold, np.sqrt(mf.mol.natm)
        # `_full`: a coarse grid would save nothing in this SCF. `_ended`: the full grid serves until convergence.
        self._full = self._ended = False
        self._norms: list[float] = []
        self._hcore: Any = None
        self._change: np.ndarray | None = None

    def __enter__(self) -> EarlyQuadrature:
        self._numint.coarse = self._integrals
        return self

    def __exit__(self, *error: object) -> None:
        del self._numint.coarse

    def veff(self, dm: Any, compute: Callable[[], Any]) -> Any:
        """Return the potential of the next cycle.

        compute: returns the potential of `dm`.

        Raises WrongGrid if the coarse grid turns out to be of no use.
        """
        number = self._number()
        if not number:
            self._full = not _saves(self.mf, dm)
        orbitals = getattr(dm, "mo_coeff", None) is not None
        # PySCF counts the cycles when they have ended.
        afterwards = number and self.mf.cycles and self._integrals.corrected
        if (not afterwards and (self._full or number >= self._final)) or (number and not orbitals):
            return compute()
        self._integrals.active = True
        try:
            potential = compute()
        finally:
            self._integrals.active = False
        if self._is_exact(dm) if afterwards else self._accepts(number, dm, potential):
            self.coarse.append(number)
            logger.info(self.mf, "exchange and correlation after cycle %d are those of a coarse grid", number)
            return potential
        return self._refined(dm, potential, orbitals)

    def take_change(self) -> np.ndarray | None:
        """Return by how much the correction has changed since this was called last, or None."""
        change, self._change = self._change, None
        return change

    def _accepts(self, number: int, dm: Any, potential: Any) -> bool:
        """Return whether the gradient is far above the error, and end the early cycles where the next one may not."""
        if not number:
            return self._guess  # It is not tested for convergence.
        if self._ended:  # The full grid corrects the density after convergence.
            return False
        norm = self._gradient(dm, potential)
        self._norms.append(norm)
        if self._integrals.corrected:
            error = self._error(dm)
        else:
            error = SAFETY * UNCORRECTED * self._scale
        stalled = stalls(self._norms)
        self._ended = stalled or norm < STEP * self._least
        return norm >= max(self._least, error) and not stalled

    def _is_exact(self, dm: Any) -> bool:
        """Return whether a density is so close to one with a correction that the error does not matter."""
        return self._error(dm) <= AFTERWARDS * self._threshold

    def _error(self, dm: Any) -> float:
        """The orbital gradient above which the error of a corrected potential does not matter."""
        return GROWTH * self._size(dm) * self._integrals.relative_change()

    def _refined(self, dm: Any, potential: Any, orbitals: bool) -> Any:
        """Return the potential from the full grid, in which the coarse one is replaced."""
        first = not self._integrals.corrected
        energy, change = self._integrals.refine((self.mf.grids, self.mf.nlcgrids))
        if first and orbitals and self._size(dm) > WRONG * UNCORRECTED * self._scale:
            raise WrongGrid
        self._change = change if self._change is None else self._change + change
        tags = potential.__dict__ | {"exc": potential.exc + energy}
        return lib.tag_array(np.asarray(potential) + change, **tags)

    def _gradient(self, dm: Any, potential: Any) -> float:
        """The norm of the orbital gradient by which PySCF tests for convergence."""
        if self._hcore is None:
            self._hcore = self.mf.get_hcore()
        fock = self.mf.get_fock(self._hcore, self.mf.get_ovlp(), potential, dm)
        return float(np.linalg.norm(self.mf.get_grad(dm.mo_coeff, dm.mo_occ, fock)))

    def _size(self, dm: Any) -> float:
        """The size of the correction as an orbital gradient."""
        correction = self._integrals.correction()
        if correction.ndim == 2 and np.ndim(dm) == 3:
            correction = np.array([correction] * 2)
        return float(np.linalg.norm(self.mf.get_grad(dm.mo_coeff, dm.mo_occ, correction)))
