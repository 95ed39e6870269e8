"""PySCF's Kohn-Sham gradients objects with the exchange-correlation part by our programs: the same numbers.

PySCF's `grad_elec` contracts matrices of derivatives, `get_veff`, with the density. The exchange-correlation part needs
no such matrices: `trnqc.xc.forces` computes the gradient itself, in a fraction of the operations.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from pyscf import dft, gto, lib
from pyscf.dft import numint
from pyscf.grad.rks import _initialize_grids
from pyscf.lib import logger

from trnqc.eri.compiled import background
from trnqc.eri.prepare import needs
from trnqc.host.clock import measured
from trnqc.host.overrides import users_method
from trnqc.pyscf.molecule_cache import MoleculeCache
from trnqc.xc.densities import VARIABLES
from trnqc.xc.forces import nonlocal_gradient, nonlocal_programs_for, programs_for, xc_gradient
from trnqc.xc.grid_response import xc_gradient_of_moving_grid
from trnqc.xc.numint import NumInt, Team
from trnqc.xc.response import users_integration

# Methods that would see potentials without their exchange-correlation part. A user's gets PySCF's matrices.
STEPS = ("grad_elec", "get_veff", "extra_force")


def accelerate_xc_gradients(gradients: Any) -> Any:
    """Return PySCF's gradients object of a Kohn-Sham object with exchange and correlation by our programs.

    The result is of the same class, with a layer on top and the same state; `undo()` returns the object without the
    layer, and `xc_ran_on` describes the code that computed the exchange-correlation part. Gradients objects of
    Hartree-Fock are returned unchanged. `kernel` and `grad_elec` are accelerated, also with `grid_response`; `get_veff`
    returns the matrices of PySCF. PySCF also computes nonlocal correlation with `grid_response`, and the gradient while
    programs are being compiled.
    """
    if isinstance(gradients, _XCGradients) or not isinstance(gradients.base, dft.rks.KohnShamDFT):
        return gradients
    return lib.set_class(_XCGradients(gradients), (_XCGradients, gradients.__class__))


class _XCGradients(lib.StreamObject):
    """The layer that `accelerate_xc_gradients` puts on a gradients object."""

    __name_mixin__ = "XC"
    _keys = frozenset({"xc_ran_on"})
    grid_response: bool

    def __init__(self, gradients: Any) -> None:
        self.__dict__.update(gradients.__dict__)
        self._programs, self.xc_ran_on = MoleculeCache(), "nothing yet"
        # The exchange-correlation part while `grad_elec` runs, and whether `get_veff` leaves it out.
        self._xc_part, self._apart = np.zeros((0, 3)), False

    def undo(self) -> Any:
        """Return the object without this layer, with the same state."""
        plain = lib.view(self, lib.drop_class(self.__class__, _XCGradients))
        for name in ("_programs", "xc_ran_on", "_xc_part", "_apart"):
            del plain.__dict__[name]
        return plain

    @measured("gradient")
    def grad_elec(self, mo_energy: Any = None, mo_coeff: Any = None, mo_occ: Any = None, atmlst: Any = None) -> Any:
        """Return the gradient without the nuclear repulsion, in Hartree/Bohr, as PySCF does."""
        self.xc_ran_on = self._xc_by_pyscf()
        if self.xc_ran_on:
            return super().grad_elec(mo_energy, mo_coeff, mo_occ, atmlst)
        self._apart = True
        try:
            gradient = super().grad_elec(mo_energy, mo_coeff, mo_occ, atmlst)
        finally:
            self._apart = False
        by_pyscf = self.base.do_nlc() and self.grid_response
        self.xc_ran_on = "generated programs" + ", nonlocal correlation by PySCF" * bool(by_pyscf)
        if not self.grid_response and (team := _team(self.base._numint)):
            self.xc_ran_on += team.among
        return gradient + (self._xc_part if atmlst is None else self._xc_part[list(atmlst)])

    def get_veff(self, mol: gto.Mole | None = None, dm: Any = None) -> Any:
        """Return the derivatives of the effective potential [..., 3, nao, nao] as PySCF does."""
        if not self._apart:
            return super().get_veff(mol, dm)
        mol = self.mol if mol is None else mol
        dm = self.base.make_rdm1() if dm is None else dm
        start = logger.process_clock(), logger.perf_counter()
        (grids, nlcgrids), ni, xc = _initialize_grids(self), self.base._numint, self.base.xc
        self._xc_part = self._semilocal(ni, mol, grids, xc, dm)
        if nlcgrids is not None and not self.grid_response:
            functional = xc if ni.libxc.is_nlc(xc) else self.base.nlc
            total = dm if np.ndim(dm) == 2 else dm[0] + dm[1]
            self._xc_part += nonlocal_gradient(ni, mol, nlcgrids, functional, total)
        logger.timer(self, "exchange-correlation gradient", *start)
        with _without_functional(self.base, self.grid_response):
            if not self.grid_response or self.base.do_nlc():
                return super().get_veff(mol, dm)
            # PySCF's code for open shells expects a semilocal part here.
            self.grid_response = False
            try:
                potential = super().get_veff(mol, dm)
            finally:
                self.grid_response = True
            return lib.tag_array(potential, exc1_grid=np.zeros((mol.natm, 3)))

    def _semilocal(self, ni: Any, mol: gto.Mole, grids: Any, xc: str, dm: Any) -> np.ndarray:
        """Return the gradient of the part that depends on the density at one point, [atoms, 3]."""
        if self.grid_response:
            return xc_gradient_of_moving_grid(ni, mol, grids, xc, dm)
        if team := _team(ni):
            return team.forces(ni, mol, grids, xc, dm)
        return xc_gradient(ni, mol, grids, xc, dm)

    def _xc_by_pyscf(self) -> str:
        """Return in words why PySCF computes the exchange-correlation part, or "" if our programs do."""
        ni, mol = self.base._numint, self.mol
        kind = ni._xc_type(self.base.xc)
        if kind not in VARIABLES or not isinstance(ni, numint.NumInt):
            return f"PySCF: the functional is of the kind {kind}"
        if users := users_method(self, *STEPS) or users_integration(ni):
            return f"PySCF: {users} is the user's"
        kernels = background.chosen(getattr(self.base, "kernels", None))
        with_nonlocal = self.base.do_nlc()

        def recipes() -> needs.Programs:
            return programs_for(mol, kind) + (nonlocal_programs_for(mol) if with_nonlocal else ())

        needed = background.Needed(recipes, kernels)
        programs = self._programs.get(mol, (kind, with_nonlocal), lambda: needed)
        return "" if programs.ready() else f"PySCF ({programs.reason})"


def _team(ni: Any) -> Team | None:
    """Return the ranks that share the integrals of an object, or None."""
    return ni.team_for_functional() if isinstance(ni, NumInt) else None


@contextmanager
def _without_functional(mf: Any, with_nonlocal: bool) -> Iterator[None]:
    """A context in which PySCF's `get_veff` takes the functional of `mf` for one without a semilocal part, and without
    a nonlocal part unless `with_nonlocal`.
    """
    plain, nonlocal_part = mf._numint, mf.nlc
    mf._numint = plain.copy()
    mf._numint._xc_type = lambda xc_code: "HF"
    if not with_nonlocal:
        mf.nlc = 0
    try:
        yield
    finally:
        mf._numint, mf.nlc = plain, nonlocal_part
