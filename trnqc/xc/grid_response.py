"""Gradients of exchange-correlation energies on a grid that moves with the atoms.

points of each atom -> forces at constant weights (forces.py) -> + forces on the points, which move with their atom
-> + derivatives of the points' weights times the energy density
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pyscf import gto, lib
from pyscf.grad.rks import grids_response_cc

from trnqc.xc.blocks import Blocks
from trnqc.xc.densities import ORDER, VARIABLES, densities_of
from trnqc.xc.forces import gradient_on
from trnqc.xc.quadrature import Quadrature


def xc_gradient_of_moving_grid(ni: Any, mol: gto.Mole, grids: Any, xc_code: str, dm: np.ndarray) -> np.ndarray:
    """Return the gradient [atoms, 3] of the exchange-correlation energy with the response of the grid, in
    Hartree/Bohr.

    Each atomic orbital moves with its nucleus, and so does each point with the atom of its radial shell. The weights of
    the points depend on the positions of all atoms; PySCF computes their derivatives. A translation of all functions
    and points changes nothing: the force on the points of an atom is therefore minus the sum of the forces on the
    functions at these points. Arguments are as in `trnqc.xc.forces.xc_gradient`.
    """
    kind = ni._xc_type(xc_code)
    total = np.zeros((mol.natm, 3))
    if kind not in VARIABLES:
        return total
    for atom, (coords, weights, moved) in enumerate(grids_response_cc(grids)):
        forces = gradient_on(ni, mol, coords, weights, xc_code, dm)
        total += forces
        total[atom] -= forces.sum(axis=0)
        total += moved @ _energy_density(ni, mol, coords, xc_code, dm)
    return total


def _energy_density(ni: Any, mol: gto.Mole, coords: np.ndarray, xc_code: str, dm: np.ndarray) -> np.ndarray:
    """Return the exchange-correlation energy per volume on points [n, 3], in Hartree/Bohr^3."""
    kind = ni._xc_type(xc_code)
    blocks = Blocks.of(mol, coords, None, ORDER[kind])
    rho = Quadrature(blocks, kind, lib.num_threads()).densities(densities_of(dm, 1))
    by_spin = rho[:, 0] if kind == "LDA" else rho
    spin = len(rho) - 1
    exc = ni.eval_xc_eff(xc_code, by_spin if spin else by_spin[0], 0, xctype=kind, spin=spin)[0]
    result = np.empty(len(coords))
    result[blocks.index] = exc * rho[:, 0].sum(axis=0)
    return result
