"""The orbital gradient of early cycles, which decides when they end, and the SCFs that it can judge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pyscf import scf

from trnqc.host.overrides import users_method

# How many times the convergence threshold the orbital gradient has to be in an early cycle.
MARGIN = 5.0
# The gradient falls by about this factor from one cycle to the next.
STEP = 3.0
# Cycles without a smaller gradient after which early cycles end.
PATIENCE = 4
# The methods of a cycle whose results decide about early cycles, or which that decision does not know if a user has
# replaced them.
STEPS = ("get_fock", "get_grad", "get_hcore", "get_veff", "get_jk", "get_j", "get_k", "make_rdm1", "energy_elec")

# The modules of PySCF whose Fock matrices and gradients are known to be those of Hartree-Fock and Kohn-Sham theory, to
# which a solvent adds its potential.
KNOWN = ("pyscf.scf.", "pyscf.solvent._attach_solvent")


def why_unjudged(mf: Any) -> str:
    """Return why the orbital gradient does not say how far an SCF is from its end, or ""."""
    if callable(mf.check_convergence) or not scf.hf.TIGHT_GRAD_CONV_TOL:
        return "the SCF has its own criterion of convergence"
    if mf.max_cycle <= 1:
        return "no cycle is before the last one"
    if users := users_method(mf, *STEPS):
        return f"{users} is the user's"
    return ""


def why_not(mf: Any, dm0: Any) -> str:
    """Return why no cycle of an SCF is an early one, or "".

    dm0: the density that the user passes, if any.
    """
    if dm0 is not None or mf.mo_coeff is not None or mf.init_guess == "chkfile":
        return "the SCF starts from orbitals or a density that may have converged already"
    if reason := why_unjudged(mf):
        return reason
    for name in ("get_fock", "get_grad"):
        if not getattr(type(mf), name).__module__.startswith(KNOWN):
            return f"{name} is not that of Hartree-Fock, in a solvent or not"
    return ""


class EarlyPotentials:
    """Counts the potentials of one SCF: 0 is that of the initial guess, and another follows each cycle."""

    def __init__(self, mf: Any) -> None:
        self.mf = mf
        self._next, self._final = 0, mf.max_cycle - 1

    def is_step(self, last: Any) -> bool:
        """Return whether a potential is that of a cycle: its density follows `last`, or is the initial guess."""
        return last is not None or not self._next

    def _number(self) -> int:
        """Return the number of the potential that is computed now."""
        self._next += 1
        return self._next - 1


def stalls(norms: Sequence[float]) -> bool:
    """Return whether the gradient has not become smaller in the last PATIENCE cycles."""
    return len(norms) > PATIENCE and min(norms[-PATIENCE:]) >= min(norms[:-PATIENCE])


class GradientWatch:
    """Judges the orbital gradients of early cycles. `ended`: why the next cycle is no early one, or ""."""

    def __init__(self, mf: Any) -> None:
        self.mf, self.ended = mf, ""
        threshold = mf.conv_tol_grad
        self.least = MARGIN * float(np.sqrt(mf.conv_tol) if threshold is None else threshold)
        self._norms: list[float] = []
        self._hcore: np.ndarray | None = None

    def norm(self, dm: Any, potential: Any) -> float:
        """The norm of the orbital gradient of the orbitals with which a density is tagged.

        `potential` is tagged with that of a solvent, if there is one.
        """
        if self._hcore is None:
            self._hcore = np.asarray(self.mf.get_hcore())
        whole = np.asarray(potential) + getattr(potential, "v_solvent", 0.0)
        gradient = self.mf.get_grad(dm.mo_coeff, dm.mo_occ, self._hcore + whole)
        return float(np.linalg.norm(gradient))

    def accepts(self, norm: float, safety: float, error: float) -> bool:
        """Return whether a gradient is `safety` times its error and far from convergence, and end the early cycles if
        the next one may not be, or if gradients no longer become smaller.
        """
        least = max(self.least, safety * error)
        self._norms.append(norm)
        if norm < STEP * least:
            self.ended = f"the orbital gradient is {norm:.1e}, its error up to {least / safety:.1e}"
        elif stalls(self._norms):
            self.ended = f"the orbital gradient has not become smaller in {PATIENCE} cycles"
        return norm >= least
