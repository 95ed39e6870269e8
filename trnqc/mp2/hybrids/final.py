"""The energy of an SCF's density with another functional."""

from __future__ import annotations

from typing import Any

import numpy as np
from pyscf import dft

from trnqc.mp2.hybrids.expansion import SeriesFunctional, semilocal_energy


def energy_with(mf: Any, functional: str | SeriesFunctional | None) -> float:
    """Evaluate the energy of the density of a converged Kohn-Sham object with another functional.

    Parameters
    ----------
    mf
        PySCF's RKS or UKS object. Its grids are used.
    functional
        In PySCF's notation or as a power series; None for the functional of `mf`.

    Returns
    -------
    float
        The total energy without perturbation and dispersion, Hartree.
    """
    if functional is None:
        return float(mf.e_tot)
    if isinstance(functional, SeriesFunctional):
        return _energy_with_series(mf, functional)
    return float(with_functional(mf, functional).energy_tot(mf.make_rdm1()))


def with_functional(mf: Any, functional: str) -> Any:
    """A copy of a Kohn-Sham object with the same orbitals and grids and another functional."""
    other = mf.copy()
    other.xc, other._numint = functional, dft.numint.NumInt()
    return other


def _energy_with_series(mf: Any, functional: SeriesFunctional) -> float:
    mol = mf.mol
    D = np.asarray(mf.make_rdm1())
    spins = D if D.ndim == 3 else np.array([D, D]) / 2
    total = spins.sum(axis=0)
    J, K = mf.get_jk(mol, spins)
    K_long = mf.get_k(mol, spins, omega=functional.omega)
    exchange = functional.short_range * K + (1 - functional.short_range) * K_long
    name, factor = functional.nonlocal_correlation
    vv10 = mf._numint.nr_nlc_vxc(mol, mf.nlcgrids, name, total)[1]
    return float(
        mf.energy_nuc()
        + np.vdot(mf.get_hcore(), total)
        + 0.5 * np.vdot(np.sum(J, axis=0), total)
        - 0.5 * np.vdot(exchange, spins)
        + semilocal_energy(functional, mol, mf.grids, spins)
        + factor * vv10
    )
