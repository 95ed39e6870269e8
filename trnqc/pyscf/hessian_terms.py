"""Two-electron terms of the Hessian of an SCF object of PySCF, with exact or with fitted integrals.

orbitals, interactions of the functional -> second derivatives of the energy, derivatives of the Fock matrices, response
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyscf import df, gto, lib, scf

from trnqc.eri.classes import LMAX, LMAX_FITTING
from trnqc.eri.fitting.fitted_integrals import fitted_integrals
from trnqc.eri.gradient.fitted.half_transform import rows_of
from trnqc.eri.hessian.fitted.builder import FittedHessian
from trnqc.eri.hessian.fitted.response import FittedOrbitalResponse
from trnqc.eri.hessian.two_electron import HessianBuilder
from trnqc.eri.jk.builder import JKBuilder
from trnqc.eri.operators import signed_omega
from trnqc.eri.prepare import needs
from trnqc.fitted.memory import bytes_left
from trnqc.pyscf.molecule_cache import MoleculeCache, is_covered
from trnqc.pyscf.orbital_response import DensityResponse, Term


@dataclass(frozen=True)
class ScfOrbitals:
    """The orbitals, and the occupied ones, of one or two spins of an SCF, with their energy-weighted density.

    `dms` [1 or 2, nao, nao] are the spin-summed density or those of both spins, and `share` is the factor of K of a
    density in the Fock matrix.
    """

    coefficients: list[np.ndarray]
    occupied: list[np.ndarray]
    dms: np.ndarray
    weighted: np.ndarray
    share: float

    @classmethod
    def of(cls, mf: Any, energies: Any, coefficients: Any, occupations: Any) -> ScfOrbitals:
        """Take PySCF's arrays, and the object's own array in the place of each None."""
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

    @property
    def scaled(self) -> list[np.ndarray]:
        """The occupied orbitals X, with X X^T the density of each entry of dms."""
        return [np.sqrt(0.5 / self.share * 2) * c for c in self.occupied]


@dataclass(frozen=True)
class TwoElectronTerm:
    """A term of the two-electron energy: its omega, whether there is a J, and the factor of K."""

    omega: float | None
    coulomb: bool
    exchange: float


def interactions(mf: Any) -> list[TwoElectronTerm]:
    """Return the terms of the two-electron energy of an SCF object."""
    if not isinstance(mf, scf.hf.KohnShamDFT):
        return [TwoElectronTerm(None, True, 1.0)]
    omega, alpha, hybrid = mf._numint.rsh_and_hybrid_coeff(mf.xc, spin=mf.mol.spin)
    terms = [TwoElectronTerm(None, True, hybrid)]
    return terms + ([TwoElectronTerm(omega, False, alpha - hybrid)] if omega and alpha != hybrid else [])


class ExactTerms:
    """The terms with exact integrals, of PySCF's SCF object."""

    def __init__(self, mf: Any) -> None:
        self._mf, self._cache = mf, MoleculeCache()

    def why_not(self) -> str:
        """Return in words why PySCF has to compute the Hessian, or ""."""
        mol = self._mf.mol
        covered = self._cache.get(mol, "covered", lambda: is_covered(mol, LMAX - 1, "second derivatives"))
        return "" if covered else "shells beyond the kernels"

    def programs(self) -> list[Any]:
        """Return the recipes of all programs that the terms need."""
        mol = self._mf.mol
        wanted: list[Any] = []
        for one in interactions(self._mf):
            omega = signed_omega(mol, one.omega)
            wanted += needs.for_hessians(mol, omega)
            wanted += needs.for_jk(mol, omega, one.coulomb, one.exchange != 0)
        return wanted

    def energy(self, orbitals: ScfOrbitals) -> np.ndarray:
        """Return second derivatives of the energy at constant orbitals, [natm, natm, 3, 3]."""
        natm = self._mf.mol.natm
        terms = np.zeros((natm, natm, 3, 3))
        for one in interactions(self._mf):
            ej, ek = self._hessian(one).energy(orbitals.dms, one.coulomb, one.exchange != 0)
            terms += one.coulomb * ej - one.exchange * ek
        return terms

    def fock(self, orbitals: ScfOrbitals) -> np.ndarray:
        """Return derivatives of the Fock matrices at constant orbitals, [spins, natm, 3, nao, nao]."""

        def of(one: TwoElectronTerm) -> tuple[Any, Any]:
            return self._hessian(one).fock(orbitals.dms, one.coulomb, one.exchange != 0)

        return fock_terms(self._mf, orbitals, of)

    def response(self, orbitals: ScfOrbitals) -> list[Term]:
        """Return the terms of the response of the Fock matrices to changes of the orbitals."""

        def jk(dms: np.ndarray) -> np.ndarray:
            result = np.zeros_like(dms)
            for one in interactions(self._mf):
                vj, vk = self._jk(one).get_jk(dms, 1, one.coulomb, one.exchange != 0)
                result += 0.0 if vj is None else vj.sum(axis=0)
                result -= 0.0 if vk is None else one.exchange * orbitals.share * vk
            return result

        return [DensityResponse(orbitals.occupied, jk)]

    def _hessian(self, one: TwoElectronTerm) -> HessianBuilder:
        mol, tolerance = self._mf.mol, self._mf.direct_scf_tol
        omega = signed_omega(mol, one.omega)
        return self._cache.get(mol, omega, lambda: HessianBuilder(mol, omega, tolerance, lib.num_threads()))

    def _jk(self, one: TwoElectronTerm) -> JKBuilder:
        mol, tolerance = self._mf.mol, self._mf.direct_scf_tol
        omega = signed_omega(mol, one.omega)
        return self._cache.get(mol, ("jk", omega), lambda: JKBuilder(mol, omega, tolerance))


class FittedTerms:
    """The terms with fitted integrals, of PySCF's SCF object with density fitting."""

    def __init__(self, mf: Any) -> None:
        self._mf, self._cache = mf, MoleculeCache()

    def why_not(self) -> str:
        """Return in words why PySCF has to compute the Hessian, or ""."""
        mol, auxmol = self._mf.mol, self._auxmol()
        if self._mf.only_dfj:
            return "fitted J with exact K"
        if mol.cart != auxmol.cart:
            return "orbitals and fitting functions are not both Cartesian or both spherical"
        limits = (mol, LMAX - 1), (auxmol, LMAX_FITTING - 1)
        covered = self._cache.get(
            mol, "covered", lambda: all(is_covered(one, limit, "second derivatives") for one, limit in limits)
        )
        return "" if covered else "shells beyond the kernels"

    def programs(self) -> list[Any]:
        """Return the recipes of all programs that the terms need."""
        mol = self._mf.mol
        wanted: list[Any] = []
        for one in interactions(self._mf):
            wanted += needs.for_fitted_hessians(mol, self._auxmol(), signed_omega(mol, one.omega))
        return wanted

    def energy(self, orbitals: ScfOrbitals) -> np.ndarray:
        """Return second derivatives of the energy at constant orbitals, [natm, natm, 3, 3]."""
        scaled = orbitals.scaled
        terms = [
            self._hessian(one).energy(scaled, float(one.coulomb), one.exchange)
            for one in interactions(self._mf)
            if one.coulomb or one.exchange
        ]
        return np.sum(terms, axis=0)

    def fock(self, orbitals: ScfOrbitals) -> np.ndarray:
        """Return derivatives of the Fock matrices at constant orbitals, [spins, natm, 3, nao, nao]."""

        def of(one: TwoElectronTerm) -> tuple[Any, Any]:
            return self._hessian(one).fock(orbitals.scaled, one.coulomb, one.exchange != 0)

        return fock_terms(self._mf, orbitals, of)

    def response(self, orbitals: ScfOrbitals) -> list[Term]:
        """Return the terms of the response of the Fock matrices to changes of the orbitals."""
        return [
            FittedOrbitalResponse(
                self._rows(one),
                orbitals.occupied,
                float(one.coulomb),
                one.exchange * orbitals.share,
                self._memory(),
                lib.num_threads(),
            )
            for one in interactions(self._mf)
        ]

    def _rows(self, one: TwoElectronTerm) -> np.ndarray:
        """Return the fitted integrals of an interaction, those of the SCF object if it holds them in memory."""
        fitting, mol, auxmol = self._mf.with_df, self._mf.mol, self._auxmol()
        held = rows_of(fitting._rsh_df.get(f"{one.omega:.6f}") if one.omega else fitting, one.omega)
        if held is not None and auxmol is fitting.auxmol:
            return held.array
        omega = signed_omega(mol, one.omega)
        with mol.with_range_coulomb(omega), auxmol.with_range_coulomb(omega):
            return fitted_integrals(mol, auxmol)

    def _hessian(self, one: TwoElectronTerm) -> FittedHessian:
        mol, auxmol = self._mf.mol, self._auxmol()
        omega = signed_omega(mol, one.omega)
        return self._cache.get(mol, omega, lambda: FittedHessian(mol, auxmol, omega, self._memory(), lib.num_threads()))

    def _memory(self) -> float:
        """Return the bytes that arrays may take."""
        return bytes_left(self._mf.max_memory)

    def _auxmol(self) -> gto.Mole:
        fitting, mol = self._mf.with_df, self._mf.mol
        held = fitting.auxmol
        # A scanner that shares this object may have moved it to another geometry.
        if held is not None and np.array_equal(held.atom_coords(), mol.atom_coords()):
            return held
        return self._cache.get(mol, "auxmol", lambda: df.make_auxmol(mol, fitting.auxbasis))


def fock_terms(mf: Any, orbitals: ScfOrbitals, of: Callable[[TwoElectronTerm], tuple[Any, Any]]) -> np.ndarray:
    """Return the derivatives of J and K of all interactions, with their factors, [spins, natm, 3, nao, nao]."""
    nao = mf.mol.nao_nr()
    total = np.zeros((len(orbitals.dms), mf.mol.natm, 3, nao, nao))
    for one in interactions(mf):
        vj, vk = of(one)
        if vj is not None:
            total += vj
        if vk is not None:
            total -= one.exchange * orbitals.share * vk
    return total
