"""The two-electron terms of the gradient with derivatives of integrals from PySCF, while kernels are not compiled.

SCF object, densities -> PySCF's derivatives of J and K -> term of the SCF's integrals
blocks of Γ -> PySCF's derivatives of three-centre integrals -> term of the correlation
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pyscf import gto

from trnqc.eri.gradient.three_centre import Density
from trnqc.eri.integrals import PySCFThreeCentre
from trnqc.mp2.factors.shell_blocks import shell_blocks


def jk_gradient(
    mf: Any,
    d1: np.ndarray,
    d2: np.ndarray,
    *,
    omega: float | None = None,
    coulomb: float = 1.0,
    exchange: float = 1.0,
) -> np.ndarray:
    """Compute the derivative of E2(D1, D2), for exact or fitted integrals as the SCF object has them.

    Arguments and result are as in `trnqc.eri.gradient.jk_gradient.exact_jk_gradient`. PySCF has the derivative of
    E2(D, D), and E2(D1, D2) = (E2(D1 + D2, D1 + D2) - E2(D1 - D2, D1 - D2)) / 4.
    """
    gradients = (mf.undo() if hasattr(mf, "undo") else mf).nuc_grad_method()

    def of(density: np.ndarray) -> np.ndarray:
        """The derivative of E2(D, D) / 2."""
        spins = np.reshape(density, (-1, *density.shape[-2:]))
        factor = exchange * (0.5 if len(spins) == 1 else 1.0)
        j, k = gradients.get_jk(mf.mol, density, omega=omega)
        matrices = [np.reshape(one, (len(spins), 3, *spins.shape[1:])) for one in (j, k)]
        by_function = coulomb * np.einsum("sxij,tij->ix", matrices[0], spins)
        by_function -= factor * np.einsum("sxij,sij->ix", matrices[1], spins)
        total = _by_atoms(mf.mol, 2 * by_function)
        if hasattr(j, "aux"):  # The terms of the fitting functions' positions, by pairs of spins and by atoms.
            total += coulomb * j.aux.sum(axis=(0, 1)) - factor * np.trace(k.aux)
        return total

    return (of(d1 + d2) - of(d1 - d2)) / 2


def three_centre_gradient(mol: gto.Mole, auxmol: gto.Mole, density: Density, *, block_bytes: float) -> np.ndarray:
    """Compute sum_ijP G[i, j, P] d(ij|P)/dA; see `trnqc.eri.gradient.three_centre.three_centre_gradient`."""
    derivatives, loc, nao = PySCFThreeCentre(mol, auxmol, "int3c2e_ip1"), auxmol.ao_loc_nr(), mol.nao_nr()
    # The integrals of three directions and their products with G take about eight times the memory of G.
    width = max(1, int(block_bytes / (8 * 8 * max(nao, 1) ** 2)))
    by_function, by_fitting = np.zeros((nao, 3)), np.zeros((int(loc[-1]), 3))
    for first, last in shell_blocks(loc, width):
        functions = np.arange(loc[first], loc[last])
        g = density(functions)
        for x, one in enumerate(derivatives.as_pyscf((first, last), comp=3)):
            terms = one * (g + g.transpose(1, 0, 2))
            by_function[:, x] -= terms.sum(axis=(1, 2))
            by_fitting[functions, x] += terms.sum(axis=(0, 1))  # A translation of all functions changes nothing.
    return _by_atoms(mol, by_function) + _by_atoms(auxmol, by_fitting)


def two_centre_gradient(auxmol: gto.Mole, density: np.ndarray) -> np.ndarray:
    """Compute sum_PQ G[P, Q] d(P|Q)/dA; see `trnqc.eri.gradient.three_centre.two_centre_gradient`."""
    by_function = -np.einsum("xpq,pq->px", auxmol.intor("int2c2e_ip1"), density + density.T)
    return _by_atoms(auxmol, by_function)


def _by_atoms(mol: gto.Mole, by_function: np.ndarray) -> np.ndarray:
    """Sum the terms of functions [n, 3] over the functions of each atom. Shells may be in any order."""
    atoms = np.repeat(mol._bas[:, gto.ATOM_OF], np.diff(mol.ao_loc_nr()))
    total = np.zeros((mol.natm, 3))
    np.add.at(total, atoms, by_function)
    return total
