"""Functionals that multiply the energies of the uniform electron gas by power series, such as wB97M-V and wB97M(2).

    rho, gradient, tau of each spin -> w, u -> series g -> sum of g times the uniform gas' energy -> integral

N. Mardirossian and M. Head-Gordon, J. Chem. Phys. 144, 214110 (2016), section V, defines the variables and the form.
PySCF's libxc has the series of wB97M-V only, with its own powers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyscf import dft

Series = Mapping[tuple[int, int], float]
"""Coefficients of w^i u^j by (i, j)."""

# Parameters of u for exchange, same-spin and opposite-spin correlation: 2016, section V.
GAMMA_X, GAMMA_SS, GAMMA_OS = 0.004, 0.2, 0.006
# Kinetic-energy density of the uniform gas of one spin is UNIFORM_TAU rho^(5/3), with tau = 1/2 sum |grad phi|^2.
UNIFORM_TAU = 0.3 * (6 * np.pi**2) ** (2 / 3)
# Densities per Bohr^3 below which a point is left out, as libxc does for these functionals.
LEAST_DENSITY = 1e-13


@dataclass(frozen=True)
class SeriesFunctional:
    """A range-separated hybrid whose semilocal part consists of three power series.

    `omega` is in 1/Bohr. `short_range` is the exact exchange at short range; all of it is exact at long range.
    `nonlocal_correlation` is PySCF's name of a functional with VV10 correlation, and the factor of the VV10 energy.
    """

    exchange: Series
    same_spin: Series
    opposite_spin: Series
    omega: float
    short_range: float
    nonlocal_correlation: tuple[str, float]


# N. Mardirossian and M. Head-Gordon, J. Chem. Phys. 148, 241736 (2018), table II. VV10 has b = 6.0 and C = 0.01 as in
# wB97M-V, and the factor 1 - c_PT2.
WB97M2 = SeriesFunctional(
    exchange={(0, 0): 0.37806, (0, 1): 0.13642, (2, 0): 0.28193, (3, 0): -0.21886, (4, 1): 0.70767},
    same_spin={(0, 0): 0.54846, (1, 0): -1.17724, (2, 0): -3.67267},
    opposite_spin={(0, 0): 0.46152, (0, 1): -1.94794, (0, 2): 3.24910, (2, 0): 2.30490, (2, 2): -2.26280},
    omega=0.3,
    short_range=0.62194,
    nonlocal_correlation=("wB97M-V", 0.65904),
)


def semilocal_energy(functional: SeriesFunctional, mol: Any, grids: Any, densities: np.ndarray) -> float:
    """Integrate short-range semilocal exchange and correlation of density matrices [2, nao, nao] on PySCF's built
    grids, Hartree.
    """
    ni, energy = dft.numint.NumInt(), 0.0
    for ao, mask, weights, _ in ni.block_loop(mol, grids, mol.nao, deriv=1):
        spins = [ni.eval_rho(mol, ao, D, mask, "MGGA", hermi=1, with_lapl=False) for D in densities]
        energy += float(weights @ energy_density(functional, *spins))
    return energy


def energy_density(functional: SeriesFunctional, alpha: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """Return the semilocal energy per volume [points], Hartree / Bohr^3.

    `alpha` and `beta` are [5, points]: the density of the spin, its gradient, and tau = 1/2 sum |grad phi|^2, in atomic
    units.
    """
    spins = [_variables(spin) for spin in (alpha, beta)]
    (rho_a, x2_a, t_a), (rho_b, x2_b, t_b) = spins
    energy = np.zeros_like(rho_a)
    opposite = _uniform("LDA_C_PW_MOD", rho_a, rho_b)
    for rho, x2, t in spins:
        exchange = _uniform("LDA_X_ERF", rho, np.zeros_like(rho), functional.omega)
        correlation = _uniform("LDA_C_PW_MOD", rho, np.zeros_like(rho))
        energy += exchange * _series(functional.exchange, t, GAMMA_X * x2)
        energy += correlation * _series(functional.same_spin, t, GAMMA_SS * x2)
        opposite -= correlation
    both = (rho_a > LEAST_DENSITY) & (rho_b > LEAST_DENSITY)
    mean = _series(functional.opposite_spin, (t_a + t_b) / 2, GAMMA_OS * (x2_a + x2_b) / 2)
    return energy + np.where(both, opposite * mean, 0.0)


def _variables(spin: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The density, x^2 = |grad rho|^2 / rho^(8/3) and t = tau of the uniform gas / tau; zero where there is none."""
    there = spin[0] > LEAST_DENSITY
    rho = np.where(there, spin[0], 1.0)
    x2 = np.where(there, (spin[1:4] ** 2).sum(axis=0) / rho ** (8 / 3), 0.0)
    t = UNIFORM_TAU * rho ** (5 / 3) / np.maximum(spin[4], 1e-20)
    return np.where(there, rho, 0.0), x2, np.where(there, t, 0.0)


def _series(coefficients: Series, t: np.ndarray, s: np.ndarray) -> np.ndarray:
    """Sum c_ij w^i u^j with w = (t - 1) / (t + 1) and u = s / (1 + s)."""
    w, u = (t - 1) / (t + 1), s / (1 + s)
    return np.sum([c * w**i * u**j for (i, j), c in coefficients.items()], axis=0)


def _uniform(name: str, alpha: np.ndarray, beta: np.ndarray, omega: float | None = None) -> np.ndarray:
    """Energy per volume of a uniform gas with these densities of each spin, by libxc."""
    per_electron = dft.libxc.eval_xc(name, (alpha, beta), spin=1, deriv=0, omega=omega)[0]
    return per_electron * (alpha + beta)
