"""Grid points in compact blocks, and the orbitals that are not negligible on each block.

molecule, level -> points and weights -> blocks of near points, padded to whole vectors -> orbitals on a block

Each point moves with an atom, and its weight depends on the positions of all atoms: `weight_gradient`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
from pyscf import gto
from pyscf.dft.gen_grid import BLKSIZE
from pyscf.grad.rks import get_dw_partition_sorted
from pyscf.sgx.sgx_jk import get_gridss

from trnqc.eri.seminumerical.program import BLOCK, BLOCK_RADIUS
from trnqc.errors import InputError
from trnqc.host.arrays import zeros

# The levels of the grids that PySCF's sgx module defines, with their shells of points and pruning.
LEVELS = range(8)
# The points of a block. Larger blocks have faster matrix products, smaller blocks fewer significant pairs.
POINTS = 256
# Orbitals that are smaller than this on all points of a block are left out there, in Bohr^(-3/2).
NEGLIGIBLE = 1e-10
# Points where no orbital times the weight exceeds this are left out, in Bohr^(3/2). It is the default of PySCF's sgx.
NO_WEIGHT = 1e-10
# Points whose derivatives of weights are in memory at once; there are 3 for each atom.
MOVED = 10000


@dataclass(frozen=True, eq=False)
class Grid:
    """Points [n, 3] in Bohr with weights [n] in Bohr^3, and the atoms [n] with which they move.

    `radii` is what PySCF's derivatives of weights take: its function that adjusts radii of atoms, and the radii.
    """

    points: np.ndarray
    weights: np.ndarray
    atoms: np.ndarray
    radii: tuple[Any, Any]


@dataclass(frozen=True, eq=False)
class GridBlock:
    """Points [3, vectors, lanes] in Bohr that are close to one another, with weights [vectors * lanes] in Bohr^3.

    `index` are the numbers of the points in the grid. Padding repeats the first point with weight 0. `sphere` [BLOCK]
    is a sphere around the points, and a place for the norm of the largest orbital.
    """

    index: np.ndarray
    points: np.ndarray
    weights: np.ndarray
    sphere: np.ndarray

    @property
    def vectors(self) -> int:
        return self.points.shape[1]


def grid_of(mol: gto.Mole, level: int) -> Grid:
    """Return the grid of a level of PySCF's sgx module.

    Raises InputError for an unknown level, and for a grid without points.
    """
    if level not in LEVELS:
        raise InputError(f"the level of a grid is one of 0, ..., {LEVELS[-1]}, found {level!r}")
    grids = get_gridss(mol, level, NO_WEIGHT, use_opt_grids=True)
    real = grids.weights != 0
    if mol.nao_nr() and not real.any():
        raise InputError("the grid of this molecule has no points: use exchange='fitted' or exchange='direct'")
    radii = grids.radii_adjust, grids.atomic_radii
    return Grid(grids.coords[real], grids.weights[real], grids.atm_idx[real], radii)


def weight_gradient(mol: gto.Mole, grid: Grid, values: np.ndarray) -> np.ndarray:
    """Return the derivatives [natm, 3] of the sum of weights times fixed values [n] by the positions of the atoms."""
    total = np.zeros((mol.natm, 3))
    for begin in range(0, len(values), MOVED):
        part = slice(begin, begin + MOVED)
        own = grid.atoms[part], grid.points[part], grid.weights[part]
        total += (get_dw_partition_sorted(mol, *own, *grid.radii) @ values[part]).T
    return total


def blocks_of(points: np.ndarray, weights: np.ndarray, lanes: int) -> tuple[GridBlock, ...]:
    """Divide points [n, 3] with weights [n] into blocks."""
    return tuple(_block(part, points[part], weights[part], lanes) for part in bisected(points, POINTS))


def _block(index: np.ndarray, points: np.ndarray, weights: np.ndarray, lanes: int) -> GridBlock:
    vectors = ceil(len(points) / lanes)
    padded, weighted = zeros((3, vectors, lanes)), zeros(vectors * lanes)
    padded.reshape(3, -1)[:] = points[0][:, None]
    padded.reshape(3, -1)[:, : len(points)] = points.T
    weighted[: len(points)] = weights
    sphere = np.zeros(BLOCK)
    sphere[:3] = (points.min(axis=0) + points.max(axis=0)) / 2
    sphere[BLOCK_RADIUS] = np.linalg.norm(points - sphere[:3], axis=1).max()
    return GridBlock(index, padded, weighted, sphere)


def bisected(points: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Divide points [n, 3] into compact parts of `size` points, the last one smaller; yield the numbers of each.

    A part is halved across its longest extent until it is small enough.
    """
    # Each part with its coordinates [3, n], whose rows NumPy reduces several times faster than columns.
    stack = [(np.arange(len(points)), np.ascontiguousarray(points.T))] if len(points) else []
    while stack:
        part, here = stack.pop()
        if len(part) <= size:
            yield part
            continue
        axis = np.argmax(here.max(axis=1) - here.min(axis=1))
        half = -(-len(part) // size) // 2 * size
        order = np.argpartition(here[axis], half)
        stack += [(part[of], here.take(of, axis=1)) for of in (order[half:], order[:half])]


class GridOrbitals:
    """The atomic orbitals of a molecule on blocks of points."""

    def __init__(self, mol: gto.Mole) -> None:
        self.mol = mol
        self._centres = mol.atom_coords()[mol._bas[:, gto.ATOM_OF]] if mol.nbas else np.zeros((0, 3))
        self._reach = np.array([_reach(mol, shell) for shell in range(mol.nbas)])
        self._of_shell = np.repeat(np.arange(mol.nbas), np.diff(mol.ao_loc_nr()))

    def __call__(self, block: GridBlock) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of the orbitals that matter on a block, and their values [n, points]."""
        which, values = self._evaluated("GTOval", block)
        return which, np.ascontiguousarray(values.T[which])

    def with_gradients(self, block: GridBlock) -> tuple[np.ndarray, np.ndarray]:
        """Return the same numbers, and values and gradients [4, n, points] in Bohr^(-3/2) and Bohr^(-5/2)."""
        which, values = self._evaluated(f"GTOval_{'cart' if self.mol.cart else 'sph'}_deriv1", block)
        return which, np.ascontiguousarray(values.transpose(0, 2, 1)[:, which])

    def _evaluated(self, what: str, block: GridBlock) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of the orbitals that matter on a block, and what PySCF computes of all orbitals."""
        distance = np.linalg.norm(self._centres - block.sphere[:3], axis=1) - block.sphere[BLOCK_RADIUS]
        near = distance < self._reach
        points = np.ascontiguousarray(block.points.reshape(3, -1).T)
        mask = np.tile(near.astype(np.uint8), (ceil(len(points) / BLKSIZE), 1))
        return np.flatnonzero(near[self._of_shell]), self.mol.eval_gto(what, points, non0tab=mask)


def _reach(mol: gto.Mole, shell: int) -> float:
    """Return the distance from its centre beyond which a shell's functions are below NEGLIGIBLE, in Bohr."""
    r = np.linspace(0.0, 60.0, 1201)
    radial = np.exp(-np.multiply.outer(mol.bas_exp(shell), r**2))
    coefficients = np.abs(mol._libcint_ctr_coeff(shell))
    values = (coefficients.T @ radial).max(axis=0) * r ** mol.bas_angular(shell)
    large = np.flatnonzero(values >= NEGLIGIBLE)
    return float(r[min(large[-1] + 1, len(r) - 1)]) if len(large) else 0.0
