"""The nonlocal correlation VV10 on the points of a grid.

density and its gradient -> omega_0 and kappa of each point -> sums over pairs of points (programs/vv10_program.py), on
threads -> energy per electron, derivatives of the energy density

O. Vydrov and T. Van Voorhis, J. Chem. Phys. 133, 244103 (2010).
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from pyscf.dft import xc_deriv

from trnqc.host.arrays import zeros
from trnqc.host.threads import in_parallel, parts_of
from trnqc.jit import find_compiler, library
from trnqc.xc.blocks import PointBlock
from trnqc.xc.densities import DensityMatrix
from trnqc.xc.programs import vv10_program
from trnqc.xc.quadrature import Quadrature

# Points with smaller densities, in Bohr^-3, are left out, as by PySCF.
NEGLIGIBLE = 1e-8
# Vectors of points in the smallest part that a thread takes.
LEAST_VECTORS = 16

Terms = Iterable[tuple[tuple[float, float], float]]


@dataclass(frozen=True, eq=False)
class _Points:
    """Points [n, 3], in Bohr, with densities that matter; all attributes are arrays with one number for each of
    them.

    `rho` and `gamma` [n] are the density and the square of its gradient, and `gradient_term` is the part C (gamma /
    rho^2)^2 of omega_0^2. `omega` and `kappa` are omega_0 = (C (gamma / rho^2)^2 + 4 pi rho / 3)^(1/2) and kappa = b 3
    pi / 2 (rho / (9 pi))^(1/6), equations 5 and 7.
    """

    coords: np.ndarray
    rho: np.ndarray
    gamma: np.ndarray
    gradient_term: np.ndarray
    omega: np.ndarray
    kappa: np.ndarray

    @classmethod
    def of(cls, rho: np.ndarray, coords: np.ndarray, parameters: tuple[float, float]) -> _Points:
        b, c = parameters
        gamma = (rho[1:4] ** 2).sum(axis=0)
        gradient_term = c * (gamma / rho[0] ** 2) ** 2
        omega = np.sqrt(gradient_term + 4 * np.pi / 3 * rho[0])
        kappa = 1.5 * np.pi * b * (rho[0] / (9 * np.pi)) ** (1 / 6)
        return cls(coords, rho[0], gamma, gradient_term, omega, kappa)


def vv10(
    rho: np.ndarray, coords: np.ndarray, weights: np.ndarray, parameters: tuple[float, float], threads: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Return the energy per electron [n] of VV10 in Hartree, and the derivatives [2, n] of the energy density by the
    density and by the square of its gradient.

    `rho` [4, n] is the density of electrons of both spins and its gradient, in Bohr^-3 and Bohr^-4, at points [n, 3] in
    Bohr with weights [n] in Bohr^3; `parameters` are b and C. The derivatives contain the dependence of the energy at
    other points on these; so the derivative of the energy is the sum of their products with the weights. The bits do
    not depend on the number of threads.

    With the sums F, U and W of `vv10_program`, which are without the factor -3/2 of equation 2, the energy per electron
    is beta - 3/4 F, and beta = (3 / b^2)^(3/4) / 32 makes that of the uniform electron gas zero.
    """
    exc, vxc = np.zeros(rho.shape[1]), np.zeros((2, rho.shape[1]))
    kept = rho[0] >= NEGLIGIBLE
    p = _Points.of(rho[:, kept], coords[kept], parameters)
    f, u, w = _sums(p, weights[kept], threads)
    beta = (3 / parameters[0] ** 2) ** 0.75 / 32
    # rho d(omega_0)/d(rho), rho d(omega_0)/d(gamma), rho d(kappa)/d(rho)
    omega_rho = (2 * np.pi / 3 * p.rho - 2 * p.gradient_term) / p.omega
    omega_gamma = np.divide(p.gradient_term * p.rho, p.gamma * p.omega, out=np.zeros_like(p.rho), where=p.gamma > 0)
    exc[kept] = beta - 0.75 * f
    vxc[0, kept] = beta - 1.5 * f + 1.5 * (u * p.kappa / 6 + w * omega_rho)
    vxc[1, kept] = 1.5 * w * omega_gamma
    return exc, vxc


@dataclass(frozen=True, eq=False)
class NonlocalPotential:
    """Nonlocal correlation of a density on the points of a grid, in the order of its blocks.

    `rho` [4, n] is the density and its gradient, `exc` [n] the energy per electron in Hartree, and `weighted` [4, n]
    the derivatives of the energy by `rho` at each point: they include the weights.
    """

    rho: np.ndarray
    exc: np.ndarray
    weighted: np.ndarray

    @classmethod
    def of(cls, quadrature: Quadrature, density: DensityMatrix, terms: Terms) -> NonlocalPotential:
        """Return the nonlocal correlation of the density of both spins, by the quadrature of a GGA.

        `terms` are the parameters and the factor of each term, as `nlc_coeff` of PySCF's NumInt returns them.
        """
        blocks = quadrature.blocks
        rho = quadrature.densities([density])[0]
        exc, vxc = np.zeros(rho.shape[1]), np.zeros((2, rho.shape[1]))
        begin = time.perf_counter()
        for parameters, factor in terms:
            energies, derivatives = vv10(rho, blocks.points.T, blocks.weights, parameters, quadrature.threads)
            exc += factor * energies
            vxc += factor * derivatives
        spent = (time.perf_counter() - begin) * quadrature.threads
        quadrature.seconds["pairs of points"] = quadrature.seconds.get("pairs of points", 0.0) + spent
        return cls(rho, exc, xc_deriv.transform_vxc(rho, vxc, "GGA", spin=0) * blocks.weights)

    def derivatives(self, block: PointBlock, rho: np.ndarray) -> np.ndarray:
        """Return the derivatives [1, 4, points] of the energy by the density variables of a block."""
        return np.ascontiguousarray(self.weighted[None, :, block.span])


def _sums(p: _Points, weights: np.ndarray, threads: int) -> np.ndarray:
    """Return the sums F, U and W [3, n] of all points."""
    lanes, count = find_compiler().lanes(), len(p.rho)
    vectors, together = -(-count // lanes), vv10_program.TOGETHER
    # Padding: points r at the origin, with omega_0 = kappa = 1, and points r' of weight 0.
    outer, inner = zeros((5, vectors * lanes)), zeros((-(-count // together) * together, vv10_program.NUMBERS))
    outer[3:], inner[:, 3:5] = 1.0, 1.0
    for array in (outer.T, inner):
        array[:count, :3], array[:count, 3], array[:count, 4] = p.coords, p.omega, p.kappa
    inner[:count, 5] = p.rho * weights
    sums = zeros((3, vectors * lanes))
    call = library(vv10_program.recipe()).vv10.bind(
        vectors=vectors, points=len(inner), outer=outer, inner=inner, sums=sums
    )
    parts = parts_of(vectors, LEAST_VECTORS, threads)
    bounds = np.linspace(0, vectors, parts + 1).astype(int)
    in_parallel(lambda n: call(first=bounds[n], last=bounds[n + 1]), parts, threads)
    return sums[:, :count]
