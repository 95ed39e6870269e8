"""Grids whose points move with the atoms, and gradients of exchange-correlation energies on them.

points of each atom -> forces at constant weights (forces.py) -> + forces on the points, which move with their atom
-> + derivatives of the points' weights (partition_derivatives.py) times the energy density
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyscf import gto, lib
from pyscf.grad.rks import grids_response_cc

from trnqc.xc.blocks import Blocks
from trnqc.xc.densities import ORDER, VARIABLES, densities_of
from trnqc.xc.forces import gradient_on
from trnqc.xc.partition_derivatives import Partition, moved_with, why_not
from trnqc.xc.quadrature import Quadrature


@dataclass(frozen=True, eq=False)
class MovingPoints:
    """The points of a grid that move with one atom.

    `points` [n, 3] are in Bohr, and `volumes` [n], in Bohr^3, are weights before space is divided among the atoms.
    `weights` [n] are the weights of the molecule's grid and `derivatives` [natm, 3, n] theirs by all atoms, in Bohr^2.
    """

    partition: Partition
    owner: int
    points: np.ndarray
    volumes: np.ndarray
    weights: np.ndarray
    derivatives: np.ndarray

    def second(self, values: np.ndarray) -> np.ndarray:
        """Return the sum over points of second derivatives of the weights with factors [n], [natm, natm, 3, 3]."""
        return self.partition.second(self.owner, self.points, self.volumes * values)


def moving_points(grids: Any) -> Iterator[MovingPoints]:
    """Yield the points of each atom of a grid of PySCF.

    Raises UnsupportedError if the derivatives of its weights are not available; see `Partition.of`.
    """
    mol, partition = grids.mol, Partition.of(grids)
    table = grids.gen_atomic_grids(mol, grids.atom_grid, grids.radi_method, grids.level, grids.prune)
    for atom, centre in enumerate(mol.atom_coords()):
        around, volumes = table[mol.atom_symbol(atom)]
        share, first = partition.shares(atom, around + centre)
        yield MovingPoints(partition, atom, around + centre, volumes, volumes * share, volumes * first)


def _weights_by_atom(grids: Any) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield points, weights and derivatives of the weights of each atom."""
    if why_not(grids):
        yield from grids_response_cc(grids)
    else:
        for one in moving_points(grids):
            yield one.points, one.weights, one.derivatives


def xc_gradient_of_moving_grid(ni: Any, mol: gto.Mole, grids: Any, xc_code: str, dm: np.ndarray) -> np.ndarray:
    """Return the gradient [atoms, 3] of the exchange-correlation energy with the response of the grid, in
    Hartree/Bohr.

    Each atomic orbital moves with its nucleus, and so does each point with the atom of its radial shell. The weights of
    the points depend on the positions of all atoms; PySCF computes their derivatives for partitions of space other than
    those of Becke and Stratmann. Arguments are as in `trnqc.xc.forces.xc_gradient`.
    """
    kind = ni._xc_type(xc_code)
    total = np.zeros((mol.natm, 3))
    if kind not in VARIABLES:
        return total
    for atom, (coords, weights, derivatives) in enumerate(_weights_by_atom(grids)):
        total += moved_with(gradient_on(ni, mol, coords, weights, xc_code, dm), atom, 0)
        total += derivatives @ energy_density(ni, mol, coords, xc_code, dm)
    return total


def energy_density(ni: Any, mol: gto.Mole, coords: np.ndarray, xc_code: str, dm: np.ndarray) -> np.ndarray:
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
