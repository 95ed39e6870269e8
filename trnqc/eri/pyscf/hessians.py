"""PySCF's Hessian objects with two-electron derivatives by our integrals: the same methods and the same numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyscf import gto, lib, scf
from pyscf.lib import logger
from pyscf.scf._response_functions import _gen_rhf_response, _gen_uhf_response

from trnqc.eri.classes import LMAX
from trnqc.eri.hessian.one_electron import one_electron_energy
from trnqc.eri.hessian.two_electron import HessianBuilder
from trnqc.eri.jk.builder import JKBuilder
from trnqc.eri.library import background, needs, programs
from trnqc.eri.operators import signed_omega
from trnqc.eri.pyscf.molecule_cache import MoleculeCache, is_covered
from trnqc.eri.pyscf.orbital_response import OrbitalResponse
from trnqc.xc.ao import programs_for
from trnqc.xc.hessian.quadrature import Functional, HessianQuadrature
from trnqc.xc.hessian.response import PotentialResponse


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

    def undo(self) -> Any:
        """Return the object without this layer, with the same state."""
        plain = lib.view(self, lib.drop_class(self.__class__, _AcceleratedHessian))
        del plain.__dict__["_cache"], plain.__dict__["ran_on"]
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
        orbitals = _Orbitals.of(self.base, mo_energy, mo_coeff, mo_occ)
        if self._is_left_to_pyscf():
            return super().partial_hess_elec(mo_energy, mo_coeff, mo_occ, atmlst, max_memory, verbose)
        start = logger.process_clock(), logger.perf_counter()
        terms = one_electron_energy(self, orbitals.dms.sum(axis=0), orbitals.weighted)
        for omega, coulomb, exchange in _interactions(self.base):
            ej, ek = self._builder(omega).energy(orbitals.dms, coulomb, exchange != 0)
            terms += coulomb * ej - exchange * ek
        if self._functional:
            terms += self._quadrature(orbitals).energy()
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
        if self._is_left_to_pyscf():
            return super().make_h1(mo_coeff, mo_occ, chkfile, atmlst, verbose)
        start = logger.process_clock(), logger.perf_counter()
        orbitals = _Orbitals.of(self.base, None, mo_coeff, mo_occ)
        total: Any = 0.0
        for omega, coulomb, exchange in _interactions(self.base):
            vj, vk = self._builder(omega).fock(orbitals.dms, coulomb, exchange != 0)
            total = total + (vj if coulomb else 0.0)
            total = total - (exchange * orbitals.share * vk if exchange else 0.0)
        if self._functional:
            total = total + self._quadrature(orbitals).fock()
        total = np.broadcast_to(total, (len(orbitals.dms), *total.shape[-4:]))
        core = self.base.nuc_grad_method().hcore_generator(self.mol)
        atoms = range(self.mol.natm) if atmlst is None else atmlst
        matrices: list[list[Any]] = [[None] * self.mol.natm for _ in orbitals.dms]
        for atom in atoms:
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
        own = getattr(self.base.gen_response, "__func__", None) in (_gen_rhf_response, _gen_uhf_response)
        if fx is None and own and not self._is_left_to_pyscf():
            fx = self._response(_Orbitals.of(self.base, mo_energy, mo_coeff, mo_occ))
        return super().solve_mo1(mo_energy, mo_coeff, mo_occ, h1ao, fx, atmlst, max_memory, verbose)

    def _response(self, orbitals: _Orbitals) -> OrbitalResponse:
        interactions = _interactions(self.base)

        def jk(dms: np.ndarray) -> np.ndarray:
            result = np.zeros_like(dms)
            for omega, coulomb, exchange in interactions:
                vj, vk = self._jk_builder(omega).get_jk(dms, 1, coulomb, exchange != 0)
                result += 0.0 if vj is None else vj.sum(axis=0)
                result -= 0.0 if vk is None else exchange * orbitals.share * vk
            return result

        occupied = orbitals.occupied
        potential = PotentialResponse(self._quadrature(orbitals), occupied) if self._functional else None
        return OrbitalResponse(orbitals.coefficients, occupied, jk, potential)

    @property
    def _functional(self) -> Functional | None:
        """The functional of a Kohn-Sham object, if it has more than exact exchange."""
        mf = self.base
        if not isinstance(mf, scf.hf.KohnShamDFT) or mf._numint._xc_type(mf.xc) == "HF":
            return None
        mf._numint.libxc.test_deriv_order(mf.xc, 2, raise_error=True)
        return Functional(mf._numint, mf.xc, 2 if isinstance(mf, scf.uhf.UHF) else 1)

    def _quadrature(self, orbitals: _Orbitals) -> HessianQuadrature:
        functional, grids = self._functional, self.base.grids if self.grids is None else self.grids
        assert functional is not None
        if grids.coords is None:
            grids.build(with_non0tab=True)
        return HessianQuadrature(self.mol, (grids.coords, grids.weights), functional, orbitals.dms, lib.num_threads())

    def _is_left_to_pyscf(self) -> bool:
        """Return whether PySCF's integrals are used now, and say in `ran_on` what is used."""
        mol = self.mol
        if isinstance(self.base, scf.hf.KohnShamDFT) and self.base.do_nlc():
            self.ran_on = "PySCF: derivatives of non-local correlation"
            return True
        if not self._cache.get(mol, "covered", lambda: is_covered(mol, LMAX - 1, "second derivatives")):
            self.ran_on = "PySCF"
            return True
        omegas = tuple(omega for omega, _, _ in _interactions(self.base))
        needed = self._cache.get(mol, ("needed", omegas), lambda: self._needed(mol, omegas))
        self.ran_on = programs.words() if needed.ready() else f"PySCF ({needed.reason})"
        return not needed.ready()

    def _needed(self, mol: gto.Mole, omegas: Sequence[float | None]) -> background.Needed:
        kernels = background.chosen(getattr(self.base, "kernels", None))
        signed = {signed_omega(mol, omega) for omega in omegas}
        wanted = [p for omega in signed for p in needs.for_hessians(mol, omega)]
        if (functional := self._functional) is not None:
            for order in range(functional.order, functional.order + 3):
                wanted += programs_for(mol, order)
        for omega, coulomb, exchange in _interactions(self.base):
            wanted += needs.for_jk(mol, signed_omega(mol, omega), coulomb, exchange != 0)
        return background.Needed(tuple(dict.fromkeys(wanted)), kernels)

    def _builder(self, omega: float | None) -> HessianBuilder:
        signed = signed_omega(self.mol, omega)
        tolerance = self.base.direct_scf_tol
        return self._cache.get(self.mol, signed, lambda: HessianBuilder(self.mol, signed, tolerance, lib.num_threads()))

    def _jk_builder(self, omega: float | None) -> JKBuilder:
        signed = signed_omega(self.mol, omega)
        tolerance = self.base.direct_scf_tol
        return self._cache.get(self.mol, ("jk", signed), lambda: JKBuilder(self.mol, signed, tolerance))


@dataclass(frozen=True)
class _Orbitals:
    """The orbitals of an SCF and what follows from them.

    coefficients, occupied: those of one or two spins. dms [1 or 2, nao, nao]: the spin-summed density or those of both
    spins. weighted: the energy-weighted density. share: what K of a density counts in the Fock matrix.
    """

    coefficients: list[np.ndarray]
    occupied: list[np.ndarray]
    dms: np.ndarray
    weighted: np.ndarray
    share: float

    @classmethod
    def of(cls, mf: Any, energies: Any, coefficients: Any, occupations: Any) -> _Orbitals:
        energies = mf.mo_energy if energies is None else energies
        coefficients = mf.mo_coeff if coefficients is None else coefficients
        occupations = mf.mo_occ if occupations is None else occupations
        if not isinstance(mf, scf.uhf.UHF):
            energies, coefficients, occupations = [energies], [coefficients], [occupations]
        spins = list(zip(energies, coefficients, occupations, strict=True))
        dms = np.array([(c * n) @ c.T for _, c, n in spins])
        weighted = np.array([(c * (n * e)) @ c.T for e, c, n in spins]).sum(axis=0)
        occupied = [c[:, n > 0] for _, c, n in spins]
        return cls([c for _, c, _ in spins], occupied, dms, weighted, 0.5 if len(dms) == 1 else 1.0)


def _interactions(mf: Any) -> list[tuple[float | None, bool, float]]:
    """Return the terms of the two-electron energy: omega, whether there is a J, and the factor of K."""
    if not isinstance(mf, scf.hf.KohnShamDFT):
        return [(None, True, 1.0)]
    omega, alpha, hybrid = mf._numint.rsh_and_hybrid_coeff(mf.xc, spin=mf.mol.spin)
    terms: list[tuple[float | None, bool, float]] = [(None, True, hybrid)]
    return terms + ([(omega, False, alpha - hybrid)] if omega and alpha != hybrid else [])
