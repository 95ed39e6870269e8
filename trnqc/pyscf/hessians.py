"""PySCF's Hessian objects with two-electron derivatives by our integrals: the same methods and the same numbers.

`grid_response`, which PySCF's Kohn-Sham objects have and do not read, adds the response of the grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pyscf import lib, scf
from pyscf.df.df_jk import _DFHF
from pyscf.lib import logger
from pyscf.scf._response_functions import _gen_rhf_response, _gen_uhf_response

from trnqc.eri.compiled import background, programs
from trnqc.eri.hessian.one_electron import one_electron_energy
from trnqc.eri.prepare import needs
from trnqc.errors import MemoryLimit, UnsupportedError
from trnqc.host.overrides import users_method
from trnqc.pyscf.exchange import users_jk
from trnqc.pyscf.hessian_terms import ExactTerms, FittedTerms, ScfOrbitals
from trnqc.pyscf.molecule_cache import MoleculeCache
from trnqc.pyscf.orbital_response import OrbitalResponse
from trnqc.xc.ao import programs_for
from trnqc.xc.hessian.moving_grid import MovingGridQuadrature
from trnqc.xc.hessian.quadrature import Functional, HessianQuadrature
from trnqc.xc.hessian.response import PotentialResponse
from trnqc.xc.response import users_integration

# The steps that our programs compute whole. A user's is called, and has PySCF's others beside it.
STEPS = ("partial_hess_elec", "make_h1", "solve_mo1")
# The steps of PySCF's response of the exchange-correlation potential.
RESPONSE = ("nr_rks_fxc", "nr_uks_fxc", "nr_rks_fxc_st", "cache_xc_kernel", "cache_xc_kernel1")


def accelerate_hessian(hessian: Any) -> Any:
    """Return PySCF's Hessian object with derivatives by our integrals; its `undo()` returns the object without them."""
    if isinstance(hessian, _AcceleratedHessian):  # below the layer of a solvent
        return hessian
    return lib.set_class(_AcceleratedHessian(hessian), (_AcceleratedHessian, hessian.__class__))


class _AcceleratedHessian(lib.StreamObject):
    """The layer that `accelerate_hessian` puts on a Hessian object."""

    __name_mixin__ = "Accelerated"
    _keys = frozenset({"ran_on"})

    def __init__(self, hessian: Any) -> None:
        self.__dict__.update(hessian.__dict__)
        self._cache, self.ran_on = MoleculeCache(), "nothing yet"
        self._terms = (FittedTerms if isinstance(hessian.base, _DFHF) else ExactTerms)(hessian.base)

    def undo(self) -> Any:
        """Return the object without this layer, with the same state."""
        plain = lib.view(self, lib.drop_class(self.__class__, _AcceleratedHessian))
        for name in ("_cache", "_terms", "ran_on"):
            del plain.__dict__[name]
        return plain

    def partial_hess_elec(
        self,
        mo_energy: Any = None,
        mo_coeff: Any = None,
        mo_occ: Any = None,
        atmlst: Sequence[int] | None = None,
        max_memory: float = 4000,
        verbose: Any = None,
    ) -> np.ndarray:
        """Return second derivatives of the energy at constant orbitals, [natm, natm, 3, 3], as PySCF does."""
        if not self._is_left_to_pyscf():
            try:
                return self._partial_hessian(ScfOrbitals.of(self.base, mo_energy, mo_coeff, mo_occ), atmlst)
            except MemoryLimit as error:
                self._leave_to_pyscf(error)
        return super().partial_hess_elec(mo_energy, mo_coeff, mo_occ, atmlst, max_memory, verbose)

    def _partial_hessian(self, orbitals: ScfOrbitals, atmlst: Sequence[int] | None) -> np.ndarray:
        start = logger.process_clock(), logger.perf_counter()
        terms = one_electron_energy(self, orbitals.dms.sum(axis=0), orbitals.weighted)
        terms += self._terms.energy(orbitals)
        if self._functional:
            terms += self._derivatives(orbitals).energy()
        logger.timer(self, "second derivatives at constant orbitals", *start)
        atoms = np.arange(self.mol.natm) if atmlst is None else np.asarray(atmlst, dtype=int)
        return terms[np.ix_(atoms, atoms)]

    def make_h1(
        self,
        mo_coeff: Any,
        mo_occ: Any,
        chkfile: Any = None,
        atmlst: Sequence[int] | None = None,
        verbose: Any = None,
    ) -> Any:
        """Return first derivatives of the Fock matrix by each atom at constant orbitals, as PySCF does."""
        if not self._is_left_to_pyscf():
            try:
                return self._fock_derivatives(ScfOrbitals.of(self.base, None, mo_coeff, mo_occ), atmlst)
            except MemoryLimit as error:
                self._leave_to_pyscf(error)
        return super().make_h1(mo_coeff, mo_occ, chkfile, atmlst, verbose)

    def _fock_derivatives(self, orbitals: ScfOrbitals, atmlst: Sequence[int] | None) -> Any:
        start = logger.process_clock(), logger.perf_counter()
        total = self._terms.fock(orbitals)
        if self._functional:
            total += self._derivatives(orbitals).fock()
        core = self.base.nuc_grad_method().hcore_generator(self.mol)
        matrices: list[list[Any]] = [[None] * self.mol.natm for _ in orbitals.dms]
        for atom in range(self.mol.natm) if atmlst is None else atmlst:
            one = core(atom)
            for spin, by_atom in enumerate(matrices):
                by_atom[atom] = total[spin, atom] + one
        logger.timer(self, "derivatives of the Fock matrix", *start)
        return matrices[0] if len(matrices) == 1 else tuple(matrices)

    def solve_mo1(
        self,
        mo_energy: Any,
        mo_coeff: Any,
        mo_occ: Any,
        h1ao: Any,
        fx: Any = None,
        atmlst: Sequence[int] | None = None,
        max_memory: float = 4000,
        verbose: Any = None,
    ) -> Any:
        """Return first-order orbitals and orbital energies as PySCF does, with the response by our kernels."""
        if fx is None and not self._users_response() and not self._is_left_to_pyscf():
            try:
                fx = self._response(ScfOrbitals.of(self.base, mo_energy, mo_coeff, mo_occ))
            except MemoryLimit as error:
                self._leave_to_pyscf(error)
        return super().solve_mo1(mo_energy, mo_coeff, mo_occ, h1ao, fx, atmlst, max_memory, verbose)

    def _users_response(self) -> bool:
        """Return whether the response of the Fock matrix goes through a method of another class or of the user."""
        if getattr(self.base.gen_response, "__func__", None) not in (_gen_rhf_response, _gen_uhf_response):
            return True
        integration = getattr(self.base, "_numint", None)
        return bool(users_jk(self.base) or users_method(integration, *RESPONSE))

    def _response(self, orbitals: ScfOrbitals) -> OrbitalResponse:
        terms = self._terms.response(orbitals)
        if self._functional:
            terms.append(PotentialResponse(self._quadrature(orbitals), orbitals.occupied))
        return OrbitalResponse(orbitals.coefficients, orbitals.occupied, terms)

    def _leave_to_pyscf(self, error: MemoryLimit) -> None:
        """Say that PySCF computes this step. Raises the error if PySCF cannot."""
        if self._moves:
            raise error
        self.ran_on = f"PySCF: {error}"
        logger.note(self, "%s", self.ran_on)

    @property
    def _functional(self) -> Functional | None:
        """The functional of a Kohn-Sham object, if it has more than exact exchange."""
        mf = self.base
        if not isinstance(mf, scf.hf.KohnShamDFT) or mf._numint._xc_type(mf.xc) == "HF":
            return None
        mf._numint.libxc.test_deriv_order(mf.xc, 2, raise_error=True)
        return Functional(mf._numint, mf.xc, 2 if isinstance(mf, scf.uhf.UHF) else 1)

    @property
    def _moves(self) -> bool:
        """Whether there is a quadrature, and its points and weights move with the atoms."""
        return bool(getattr(self, "grid_response", False)) and self._functional is not None

    @property
    def _grids(self) -> Any:
        grids = self.base.grids if self.grids is None else self.grids
        if grids.coords is None:
            grids.build(with_non0tab=True)
        return grids

    def _quadrature(self, orbitals: ScfOrbitals) -> HessianQuadrature:
        functional, grids = self._functional, self._grids
        assert functional is not None
        return HessianQuadrature(self.mol, (grids.coords, grids.weights), functional, orbitals.dms, lib.num_threads())

    def _derivatives(self, orbitals: ScfOrbitals) -> HessianQuadrature | MovingGridQuadrature:
        """Return the quadrature of derivatives by the nuclei."""
        if not self._moves:
            return self._quadrature(orbitals)
        functional = self._functional
        assert functional is not None
        return MovingGridQuadrature(self.mol, self._grids, functional, orbitals.dms, lib.num_threads())

    def _is_left_to_pyscf(self) -> bool:
        """Return whether PySCF's integrals are used now, and say in `ran_on` what is used.

        Raises UnsupportedError if PySCF would be used and cannot, because the grid moves.
        """
        if not (reason := self._why_not()):
            needed = self._cache.get(self.mol, ("needed", self._moves), self._needed)
            reason = "" if needed.ready() else needed.reason
        if reason and self._moves:
            raise UnsupportedError(
                f"a Hessian with grid_response is not PySCF's, which would have to compute this one ({reason}): set "
                "grid_response=False, or differentiate gradients with grid_response=True by finite differences"
            )
        self.ran_on = f"PySCF: {reason}" if reason else programs.words()
        return bool(reason)

    def _why_not(self) -> str:
        """Return in words why PySCF has to compute the Hessian, or ""."""
        if isinstance(self.base, scf.hf.KohnShamDFT) and self.base.do_nlc():
            return "derivatives of non-local correlation"
        if getattr(self, "auxbasis_response", 2) < 2:
            return "auxbasis_response is below 2"
        integration = getattr(self.base, "_numint", None)
        if users := users_method(self, *STEPS, below=_AcceleratedHessian) or users_integration(integration):
            return f"{users} is the user's"
        return self._terms.why_not()

    def _needed(self) -> background.Needed:
        kernels = background.chosen(getattr(self.base, "kernels", None))
        # PySCF cannot serve until kernels are compiled if the grid moves.
        return background.Needed(self._programs, "wait" if self._moves and kernels == "background" else kernels)

    def _programs(self) -> needs.Programs:
        wanted = self._terms.programs()
        if (functional := self._functional) is not None:
            for order in range(functional.order, functional.order + 3):
                wanted += programs_for(self.mol, order)
        return tuple(dict.fromkeys(wanted))
