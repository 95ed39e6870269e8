"""Relaxed densities and analytic gradients of double hybrids without VV10 correlation.

DH object -> relaxation: relaxed density, Γ -> Gradients: effective densities -> terms -> gradient [natm, 3]

The orbitals belong to one functional (s), the energy to another (n), which is the same one for most double hybrids:

    dE/dx = Σ (D + P) h^x - Σ ω S^x + E_n^x[D] + dE_s^x[D + λ P]/dλ + terms of Γ

where E^x is the derivative of the Coulomb, exact-exchange and exchange-correlation energy at a constant density matrix,
and P the relaxed difference density. If the functionals differ, the Fock matrix F_n of the density is not diagonal: its
elements F_ai are added to the right-hand side of the Z-vector equations, and F_qi replaces ε_i δ_qi in ω. F. Neese,
T. Schwabe and S. Grimme, J. Chem. Phys. 126, 124115 (2007) have the equations of B2PLYP; N. Q. Su, I. Y. Zhang and
X. Xu, J. Comput. Chem. 34, 1759 (2013) those of XYG3.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from pyscf import dft
from pyscf.grad import rks, uks

from trnqc.errors import UnsupportedError
from trnqc.mp2.density.relaxation import Relaxation
from trnqc.mp2.dfmp2 import DFMP2
from trnqc.mp2.gradient.derivatives import Derivatives
from trnqc.mp2.gradient.terms import (
    EffectiveDensities,
    correlation_gradient,
    effective_densities,
    one_electron_gradient,
)
from trnqc.mp2.hybrids.expansion import SeriesFunctional
from trnqc.mp2.hybrids.kohn_sham import with_functional
from trnqc.mp2.reference.spins import SpinOrbitals, spin_orbitals

# Step of λ in the derivative of the exchange-correlation term, which is smooth: the error is of the order of its square
# times the third derivative of the energy, about 1e-9 Hartree/Bohr.
STEP = 1e-3


def relaxation(mf: Any, mp2: DFMP2, final: str | SeriesFunctional | None) -> Relaxation:
    """Compute the relaxed density of a double hybrid; `final` is the functional of the energy, None if it is that of
    `mf`.

    `mp2.gradient_scaling` has the factors of the perturbation's parts. Raises UnsupportedError if one of the
    functionals has VV10 correlation, whose response does not exist here.
    """
    if mf.do_nlc() or isinstance(final, SeriesFunctional):
        raise UnsupportedError(
            "relaxed densities and gradients are not available for functionals with VV10 correlation"
        )
    spins = spin_orbitals(mp2.mo_coeff, mp2.mo_energy, mp2.mo_occ, mp2.frozen)
    fock = None
    if final is not None:
        fock = [f[np.ix_(~s.occupied, s.occupied)] for s, f in zip(spins, _fock(with_functional(mf, final), spins))]
    return mp2._relaxation(reference_gradient=fock)


def derivatives_of(mf: Any, mp2: DFMP2, final: str | SeriesFunctional | None, relaxed: Relaxation) -> Derivatives:
    """Choose what computes the derivatives of integrals; arguments are as in `electronic_gradient`."""
    functionals = [mf.xc, *([final] if isinstance(final, str) else [])]
    omegas = {float(mf._numint.rsh_and_hybrid_coeff(xc, spin=mf.mol.spin)[0]) for xc in functionals}
    return Derivatives.of(mf, relaxed.auxmol, mp2._execution(), sorted({0.0} | omegas))


def electronic_gradient(
    mf: Any, final: str | SeriesFunctional | None, relaxed: Relaxation, derivatives: Derivatives
) -> np.ndarray:
    """Return the gradient [natm, 3], Hartree/Bohr, without the repulsion of the nuclei and without dispersion.

    Arguments are as in `relaxation`, whose result is `relaxed`. The response of the integration grid to the positions
    of the nuclei is included.
    """
    densities = effective_densities(relaxed)
    energy_of = mf
    if isinstance(final, str):
        energy_of = with_functional(mf, final)
        densities = _not_stationary(energy_of, relaxed.density.spins, densities)
    D, P = densities.reference, densities.correlation
    of_reference = _two_electron(energy_of, D / 2, D, derivatives) + _exchange_correlation(energy_of, D)
    of_correlation = _two_electron(mf, P, D, derivatives) + (
        _exchange_correlation(mf, D + STEP * P) - _exchange_correlation(mf, D - STEP * P)
    ) / (2 * STEP)
    return (
        one_electron_gradient(mf, densities, derivatives)
        + of_reference
        + of_correlation
        + correlation_gradient(mf.mol, relaxed, derivatives)
    )


def _fock(mf: Any, spins: tuple[SpinOrbitals, ...]) -> list[np.ndarray]:
    """The Fock matrix of each spin in molecular orbitals [nmo, nmo]."""
    nao = mf.mol.nao_nr()
    fock = np.asarray(mf.get_hcore() + mf.get_veff(mf.mol, mf.make_rdm1())).reshape(-1, nao, nao)
    return [spin.coefficients.T @ f @ spin.coefficients for spin, f in zip(spins, fock)]


def _not_stationary(mf: Any, spins: tuple[SpinOrbitals, ...], densities: EffectiveDensities) -> EffectiveDensities:
    """The densities with F_qi of the functional of `mf` in ω in place of ε_i δ_qi."""
    factor = 2.0 if len(spins) == 1 else 1.0
    weighted = densities.energy_weighted.copy()
    for spin, fock in zip(spins, _fock(mf, spins)):
        columns = np.where(spin.occupied, fock - np.diag(spin.energies), 0.0)
        weighted += factor * spin.to_atomic((columns + columns.T) / 2)
    return replace(densities, energy_weighted=weighted)


def _two_electron(mf: Any, left: np.ndarray, right: np.ndarray, derivatives: Derivatives) -> np.ndarray:
    """Derivatives of the Coulomb and of the scaled exact-exchange energy of two densities [spin, nao, nao]."""
    omega, long_range, short_range = mf._numint.rsh_and_hybrid_coeff(mf.xc, spin=mf.mol.spin)
    pair = left[0] if len(left) == 1 else left, right[0] if len(right) == 1 else right
    total = derivatives.jk(mf, *pair, exchange=short_range)
    if omega and long_range != short_range:
        total = total + derivatives.jk(mf, *pair, omega=omega, coulomb=0.0, exchange=long_range - short_range)
    return total


def _exchange_correlation(mf: Any, densities: np.ndarray) -> np.ndarray:
    """Derivatives of the exchange-correlation energy at constant density matrices [spin, nao, nao]; [natm, 3]."""
    closed = len(densities) == 1
    D = densities[0] if closed else densities
    evaluate = (rks if closed else uks).get_vxc_full_response
    of_grid, potential = evaluate(dft.numint.NumInt(), mf.mol, mf.grids, mf.xc, D, max_memory=mf.max_memory)
    potential = np.asarray(potential).reshape(len(densities), 3, *densities.shape[1:])
    by_function = 2 * np.einsum("sxij,sij->ix", potential, densities)
    return np.array(
        [by_function[first:last].sum(axis=0) for first, last in mf.mol.aoslice_by_atom()[:, 2:]]
    ) + np.asarray(of_grid)
