"""The Kohn-Sham object of a double hybrid: made for a molecule, or checked, and its energy with another functional.

molecule or Kohn-Sham object, HybridRecipe -> Kohn-Sham object with the functional of the SCF
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pyscf import dft, gto, scf

from trnqc.errors import InputError, UnsupportedError
from trnqc.mp2.hybrids.expansion import SeriesFunctional, semilocal_energy
from trnqc.mp2.hybrids.recipes import HybridRecipe
from trnqc.pyscf.accelerate import accelerate


def kohn_sham(mol: gto.Mole, functional: HybridRecipe, density_fit: bool | str) -> Any:
    """The accelerated SCF of a molecule with the functional that the recipe has for the SCF."""
    kind = dft.UKS if mol.spin else dft.RKS
    mf = kind(mol, xc=functional.scf)
    if density_fit:
        mf = mf.density_fit(density_fit if isinstance(density_fit, str) else None)
    return accelerate(mf)


def checked(mf: Any, functional: HybridRecipe) -> Any:
    """Return a Kohn-Sham object of the recipe's functional for the SCF, or raise an error if the object is another
    one.
    """
    if not isinstance(mf, dft.rks.KohnShamDFT | scf.hf.SCF):
        raise InputError(f"a molecule, RKS or UKS object was expected, got {type(mf).__name__}")
    unrestricted = isinstance(mf, scf.uhf.UHF)
    closed = isinstance(mf, scf.hf.RHF) and not isinstance(mf, scf.rohf.ROHF)
    if not isinstance(mf, dft.rks.KohnShamDFT) or not (unrestricted or closed):
        raise UnsupportedError(f"double hybrids need an RKS or UKS object, got {type(mf).__name__}")
    if _terms(mf.xc) != _terms(functional.scf):
        raise InputError(f"{functional.name} needs orbitals of the functional {functional.scf!r}, found {mf.xc!r}")
    if mf.do_disp():
        raise InputError("mf adds a dispersion energy of its own: set mf.disp = None, and disp on the double hybrid")
    return mf


def _terms(xc: str) -> tuple[Any, dict[int, float]]:
    """The exact exchange and the terms of a functional, rounded so that spellings of the same numbers agree."""
    hybrid, terms = dft.libxc.parse_xc(xc)
    total: dict[int, float] = {}
    for number, factor in terms:
        total[int(number)] = round(total.get(int(number), 0.0) + factor, 10)
    return tuple(round(float(part), 10) for part in hybrid), total


def energy_with(mf: Any, functional: str | SeriesFunctional | None) -> float:
    """Evaluate the total energy (Hartree, without perturbation and dispersion) of a converged density with another
    functional.

    The grids are those of `mf`. The functional is in PySCF's notation or a power series; None is that of `mf`.
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
