"""The densities of a DF-MP2 method object, and what follows from them: natural orbitals and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from trnqc.mp2.amplitudes import amplitudes
from trnqc.mp2.density.density import correlation_density
from trnqc.mp2.density.natural import frozen_natural_orbitals, natural_orbitals
from trnqc.mp2.density.one_particle import CorrelationDensity
from trnqc.mp2.density.restricted_open import restricted_open_density
from trnqc.mp2.density.two_particle import in_atomic_orbitals, two_particle_density
from trnqc.mp2.dfmp2_factors import FactorSteps, checked_eris
from trnqc.mp2.factors.factors import Factors, SpinFactors
from trnqc.mp2.reference.orbitals import kind_of_reference
from trnqc.mp2.reference.spins import spin_orbitals
from trnqc.mp2.response.zvector import ZVectorOptions
from trnqc.mp2.result import check_scaling
from trnqc.mp2.storage.store import Store


class Densities(FactorSteps):
    """The part of `trnqc.DFMP2` that computes densities. The methods have the arguments of PySCF's."""

    gradient_scaling: tuple[float, float]
    cphf_tol: float
    cphf_max_cycle: int

    def nuc_grad_method(self) -> Any:
        """The object that computes the gradient, with PySCF's interface."""
        from trnqc.mp2.gradient import Gradients  # Most users of this class need no gradients.

        return Gradients(self)

    def make_rdm1(
        self, relaxed: bool = False, ao_repr: bool = False, with_frozen: bool = True, eris: Any = None
    ) -> np.ndarray:
        """Compute the one-particle density matrix.

        Parameters
        ----------
        relaxed
            Whether the response of the orbitals is included, as expectation values need it.
        ao_repr
            Whether the matrix is in atomic orbitals; by default it is in molecular orbitals.
        with_frozen
            Whether a matrix in molecular orbitals contains the frozen orbitals.
        eris
            Factors that `ao2mo` has returned; by default they are computed.

        Returns
        -------
        numpy.ndarray
            [n, n] with the trace of the number of electrons; for an open shell [2, n, n], alpha and beta.
        """
        density = self._density(relaxed, eris)
        rdm1 = density.rdm1(ao_repr)
        if with_frozen or ao_repr:
            return rdm1
        active = [np.ix_(spin.active, spin.active) for spin in density.spins]
        return rdm1[active[0]] if len(active) == 1 else np.array([p[mask] for p, mask in zip(rdm1, active)])

    def _density(self, relaxed: bool = False, eris: Any = None) -> CorrelationDensity:
        if eris is None:
            with self._open_factors(for_densities=True) as (factors, store):
                return self._density_of(factors, relaxed, store)
        return self._density_of(checked_eris(eris, self.orbitals()), relaxed)

    def _density_of(
        self, factors: Factors | SpinFactors, relaxed: bool, store: Store | None = None
    ) -> CorrelationDensity:
        check_scaling(self.gradient_scaling, 0.0, "gradient_scaling")
        by_spin = (factors,) if isinstance(factors, Factors) else factors
        rest = by_spin, self.auxiliary_basis().auxmol, self._execution()
        options: dict[str, Any] = {
            "scaling": self.gradient_scaling,
            "relaxed": relaxed,
            "options": ZVectorOptions(tolerance=self.cphf_tol, max_cycle=self.cphf_max_cycle),
            "store": store,
        }
        if kind_of_reference(self._scf) == "ROHF":
            return restricted_open_density(self._scf, self.orbitals(), *rest, **options)
        spins = spin_orbitals(self.mo_coeff, self.mo_energy, self.mo_occ, self.frozen)
        return correlation_density(self._scf, spins, *rest, **options)

    def make_natorbs(self, rdm1_mo: np.ndarray | None = None, relaxed: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Natural occupation numbers, descending, and natural orbitals [nao, n], of the spin-summed density.

        Parameters
        ----------
        rdm1_mo
            A density matrix in molecular orbitals; by default `make_rdm1` computes it.
        relaxed
            Whether that is the relaxed density.
        """
        rdm1 = self.make_rdm1(relaxed=relaxed) if rdm1_mo is None else rdm1_mo
        return natural_orbitals(rdm1, self.mo_coeff, self._scf.get_ovlp())

    def make_fno(self, thresh: float = 1e-6, pct_occ: float | None = None, nvir_act: Any = None) -> tuple[Any, Any]:
        """Frozen natural orbitals: the orbitals to freeze, and semicanonical orbitals.

        Parameters
        ----------
        thresh
            Smallest occupation number of a virtual natural orbital that is kept.
        pct_occ
            Part of the occupation of the virtual orbitals that is kept; overrides `thresh`.
        nvir_act
            Number of virtual natural orbitals that are kept; overrides the others.
        """
        return frozen_natural_orbitals(self._density(), thresh, pct_occ, nvir_act)

    def make_rdm2(self, ao_repr: bool = False) -> Any:
        """Compute the two-particle density matrix, [n, n, n, n], or its blocks aa, ab and bb for an open shell.

        Parameters
        ----------
        ao_repr
            Whether it is in atomic orbitals; by default it is in molecular orbitals.
        """
        factors, memory = self.ao2mo(), self._execution().memory
        rdm2 = two_particle_density(self._density(eris=factors), amplitudes(factors, memory), memory)
        if not ao_repr:
            return rdm2
        if isinstance(rdm2, np.ndarray):
            return in_atomic_orbitals(rdm2, self.mo_coeff, self.mo_coeff)
        pairs = ((0, 0), (0, 1), (1, 1))
        return tuple(in_atomic_orbitals(d, *(self.mo_coeff[s] for s in pair)) for d, pair in zip(rdm2, pairs))
