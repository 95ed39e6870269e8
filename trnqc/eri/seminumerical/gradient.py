"""The derivative of the seminumerical exchange energy by the positions of the atoms, at fixed densities.

  E = -1/2 sum_s sum_g w_g F_g^T A(g) F_g        F_g = D_s P X_g        G_g = A(g) F_g

first pass     F -> G and forces on the centres of integrals -> -w P^T D G times the gradients of X
               -> dE/dP = -sum_g w D G X^T
dE/dP -> dE/dN and dE/dS of the overlap fit P(N, S), N = sum_g w X X^T (overlap_fit.py)
second pass    2 w dE/dN X times the gradients of X
all            forces on points move their atoms; derivatives of weights times the energy on points

It is the derivative of the energy that `SeminumericalExchange` computes, to rounding and what is left out as small: the
points move with their atoms and the weights depend on all atoms. The customary gradient (Neese, Wennmohs, Hansen and
Becker, Chem. Phys. 356, 98 (2009)), four times the derivative by the orbitals on the grid, is that of an exact
integration, and differs from this one by 2e-4 Hartree/Bohr for formamide on the default grid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from trnqc.eri.jk import densities
from trnqc.eri.seminumerical.exchange import SeminumericalExchange
from trnqc.eri.seminumerical.field import GradientField
from trnqc.eri.seminumerical.grid import GridBlock, GridOrbitals, weight_gradient
from trnqc.eri.seminumerical.overlap_fit import correction_gradient
from trnqc.errors import InputError
from trnqc.host.arrays import zeros
from trnqc.host.thread_pool import single_threaded_pool

# Elements by which a density may differ from its transpose, relative to the largest or to 1.
SYMMETRIC = 1e-8


def exchange_gradient(exchange: SeminumericalExchange, dm: Any) -> np.ndarray:
    """Compute the derivative of the exchange energy by the positions of the atoms, at a fixed density.

    Parameters
    ----------
    exchange : SeminumericalExchange
        What computes K.
    dm : array_like
        A real symmetric density [nao, nao] of a closed shell, with the energy -tr(D K) / 4, or those of two spins [2,
        nao, nao], with -sum_s tr(D_s K_s) / 2.

    Returns
    -------
    ndarray [natm, 3]
        In Hartree/Bohr. Its bits do not depend on the number of threads. The sum over the atoms is zero to rounding.

    Raises
    ------
    InputError
        For other densities.
    CompilerError, UnsupportedClass, MoleculeError
        If there are no programs for the molecule's shells.

    Examples
    --------
    >>> from pyscf import gto
    >>> mol = gto.M(atom="H 0 0 0; H 0 0 0.7", basis="sto-3g", verbose=0)
    >>> exchange = SeminumericalExchange(mol, level=4)
    >>> exchange_gradient(exchange, [[0.6, 0.6], [0.6, 0.6]])[:, 2].round(4)
    array([-0.3909,  0.3909])
    """
    mol, dms = exchange.mol, _densities(exchange, dm)
    total = np.zeros((mol.natm, 3))
    if not exchange.blocks or not dms.any():
        return total
    field, c = GradientField(mol, exchange.operator), exchange.cartesian
    quadrature, p = exchange.overlap_fit()
    points = len(exchange.grid.points)
    of_points, energies = np.zeros((points, 3)), np.zeros(points)
    with single_threaded_pool(exchange.threads) as pool:
        first = _Pass(exchange.orbitals, field, np.stack([c @ dm @ p for dm in dms]), of_points, energies)
        sums, of_orbitals, shells = first.parts(exchange.summed(pool, first))
        by_p = -sum(dm @ c.T @ one for dm, one in zip(dms, sums))
        by_n, by_s = correction_gradient(mol.intor_symmetric("int1e_ovlp"), quadrature, by_p)
        second = _FitPass(exchange.orbitals, by_n, of_points, energies)
        of_orbitals -= exchange.summed(pool, second)
    of_orbitals -= 2 * np.einsum("xij,ij->ix", mol.intor("int1e_ipovlp", comp=3), by_s)
    owner = np.repeat(np.arange(mol.natm), np.diff(mol.aoslice_by_atom()[:, 2:]).ravel())
    np.add.at(total, owner, of_orbitals)
    np.add.at(total, mol._bas[:, 0], -shells)
    np.add.at(total, exchange.grid.atoms, of_points)
    return total + weight_gradient(mol, exchange.grid, energies)


def _densities(exchange: SeminumericalExchange, dm: Any) -> np.ndarray:
    """Return densities [n, nao, nao] with the energy -sum_s tr(D_s K_s) / 2."""
    dm = densities.checked(dm, exchange.mol.nao_nr(), 1)
    if dm.ndim > 3 or (dm.ndim == 3 and len(dm) != 2):
        raise InputError(f"dm is [nao, nao] or [2, nao, nao] for gradients of exchange, found {dm.shape}")
    if np.iscomplexobj(dm):
        raise InputError("gradients of exchange take real densities, found complex ones")
    if not np.allclose(dm, dm.swapaxes(-1, -2), rtol=0, atol=SYMMETRIC * max(1.0, float(np.abs(dm).max(initial=0)))):
        raise InputError("gradients of exchange take symmetric densities")
    dms = dm.astype(np.float64, copy=False) if dm.ndim == 3 else dm[None].astype(np.float64) / 2**0.5
    return (dms + dms.swapaxes(1, 2)) / 2


@dataclass(frozen=True, eq=False)
class _Pass:
    """The first pass, with to_f [n, ncart, nao] from orbitals to F.

    Forces on points [points, 3] and energies on them, over their weights, are written to `of_points` and `energies`:
    each block has its own points. The sums of blocks are in one array: sum_g w G X^T [n, ncart, nao], the derivatives
    of E by the centres of orbitals [nao, 3], and minus those by the centres of integrals [shells, 3].
    """

    orbitals: GridOrbitals
    field: GradientField
    to_f: np.ndarray
    of_points: np.ndarray
    energies: np.ndarray

    def start(self) -> np.ndarray:
        return np.zeros(self.to_f.size + 3 * self.to_f.shape[2] + 3 * self.orbitals.mol.nbas)

    def parts(self, total: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return views of the three sums."""
        sums, of_orbitals, shells = np.split(total, [self.to_f.size, self.to_f.size + 3 * self.to_f.shape[2]])
        return sums.reshape(self.to_f.shape), of_orbitals.reshape(-1, 3), shells.reshape(-1, 3)

    def __call__(self, blocks: tuple[GridBlock, ...]) -> np.ndarray:
        total = self.start()
        for block in blocks:
            self._add(block, *self.parts(total))
        return total

    def _add(self, block: GridBlock, sums: np.ndarray, of_orbitals: np.ndarray, shells: np.ndarray) -> None:
        which, (x, *gradients) = self.orbitals.with_gradients(block)
        if not len(which):
            return
        n, ncart, _ = self.to_f.shape
        f = zeros((n, ncart, *block.points.shape[1:]))
        g, pull = zeros(f.shape), zeros(block.points.shape)
        to_f = np.ascontiguousarray(self.to_f[:, :, which])
        np.matmul(to_f, x, out=f.reshape(n, ncart, -1))
        norm = float(np.sqrt(((x * x) @ np.abs(block.weights)).max()))
        self.field.add_gradient(block, f, g, norm, shells, pull)
        flat_f, flat_g = f.reshape(n * ncart, -1), g.reshape(n * ncart, -1)
        sums[:, :, which] += g.reshape(n, ncart, -1) @ (x * block.weights).T
        # The orbitals move with their nuclei: the derivative by a nucleus is minus the gradient in space.
        y = (to_f.reshape(n * ncart, -1).T @ flat_g) * block.weights
        on_points = -pull.reshape(3, -1)
        for axis, gradient in enumerate(gradients):
            force = y * gradient
            of_orbitals[which, axis] += force.sum(axis=1)
            on_points[axis] -= force.sum(axis=0)
        self.of_points[block.index] += on_points[:, : len(block.index)].T
        self.energies[block.index] -= 0.5 * np.einsum("kg,kg->g", flat_f, flat_g)[: len(block.index)]


@dataclass(frozen=True, eq=False)
class _FitPass:
    """The second pass, with dE/dN: minus derivatives of E by the centres of orbitals [nao, 3], as in `_Pass`."""

    orbitals: GridOrbitals
    by_n: np.ndarray
    of_points: np.ndarray
    energies: np.ndarray

    def start(self) -> np.ndarray:
        return np.zeros((len(self.by_n), 3))

    def __call__(self, blocks: tuple[GridBlock, ...]) -> np.ndarray:
        total = self.start()
        for block in blocks:
            which, (x, *gradients) = self.orbitals.with_gradients(block)
            y = self.by_n[np.ix_(which, which)] @ x
            self.energies[block.index] += np.einsum("ig,ig->g", x, y)[: len(block.index)]
            y *= 2 * block.weights
            for axis, gradient in enumerate(gradients):
                force = y * gradient
                total[which, axis] += force.sum(axis=1)
                self.of_points[block.index, axis] += force.sum(axis=0)[: len(block.index)]
        return total
