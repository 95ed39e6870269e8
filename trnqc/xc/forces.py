"""Forces of the exchange-correlation energy on the nuclei, with the density matrix and the weights of points fixed.

density matrices -> low-rank factors -> blocks: atomic orbitals to second derivatives -> products with the density
-> density (force_program.py) -> functional (libxc) -> weighted functions -> products -> sums over points -> atoms

The energy depends on the position of an atom through its functions phi_mu, whose derivatives are -phi_x. With the
names of `force_program.py`, dE/dA_x = -2 sum_(mu of A) t_x; see B. G. Johnson, P. M. W. Gill and J. A. Pople, J. Chem.
Phys. 98, 5612 (1993). A block takes thin products with factors of the density, in place of derivative matrices of the
potential.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from pyscf import gto, lib

from trnqc.eri.compiled import programs
from trnqc.host.arrays import zeros
from trnqc.host.thread_pool import single_threaded_pool
from trnqc.jit import Recipe
from trnqc.ranks import ALONE, Ranks
from trnqc.xc import ao
from trnqc.xc.ao import AtomicOrbitals
from trnqc.xc.blocks import Blocks, PointBlock
from trnqc.xc.densities import VARIABLES, DensityMatrix, densities_of
from trnqc.xc.programs import point_programs, vv10_program
from trnqc.xc.programs.force_program import PRODUCTS, force
from trnqc.xc.quadrature import Derivatives, Quadrature
from trnqc.xc.response import functional_of
from trnqc.xc.vv10 import NonlocalPotential


def programs_for(mol: gto.Mole, kind: str) -> tuple[Recipe, ...]:
    """Return the programs of `xc_gradient` for a kind of functional, a key of VARIABLES."""
    return (*ao.programs_for(mol, _order(kind)), *_recipes(kind))


def nonlocal_programs_for(mol: gto.Mole) -> tuple[Recipe, ...]:
    """Return the programs of `nonlocal_gradient`."""
    return (*programs_for(mol, "GGA"), vv10_program.recipe())


def _recipes(kind: str) -> tuple[Recipe, Recipe, Recipe]:
    """The programs of the density, of weighted functions and of the forces."""
    return point_programs.density(kind), point_programs.weighted(), force(kind)


def _order(kind: str) -> int:
    """The derivatives of atomic orbitals in the gradient of a functional."""
    return 1 if kind == "LDA" else 2


def xc_gradient(ni: Any, mol: gto.Mole, grids: Any, xc_code: str, dm: np.ndarray) -> np.ndarray:
    """Return the gradient [atoms, 3] of the exchange-correlation energy, with fixed density matrix and weights, in
    Hartree/Bohr.

    Each atomic orbital moves with its nucleus; the points of the grid, which is built, do not move. `ni` evaluates the
    functional, which PySCF's notation describes: LDA, GGA or meta-GGA, or their part of a hybrid. `dm` is symmetric,
    [nao, nao], or [2, nao, nao] for both spins.
    """
    return gradient_on(ni, mol, grids.coords, grids.weights, xc_code, dm)


def gradient_on(
    ni: Any,
    mol: gto.Mole,
    coords: np.ndarray,
    weights: np.ndarray,
    xc_code: str,
    dm: np.ndarray,
    ranks: Ranks = ALONE,
) -> np.ndarray:
    """Return the gradient for points [n, 3] and weights [n]; see `xc_gradient`. Several ranks, which all call this with
    the same arguments, share the blocks of points.
    """
    kind = ni._xc_type(xc_code)
    if kind not in VARIABLES:
        return np.zeros((mol.natm, 3))
    blocks = Blocks.of(mol, coords, weights, _order(kind)).share(ranks)

    def derivatives(block: PointBlock, rho: np.ndarray) -> np.ndarray:
        spin = len(rho) - 1
        by_spin = rho[..., 0, :] if kind == "LDA" else rho
        with functional_of(ni):
            vxc = ni.eval_xc_eff(xc_code, by_spin if spin else by_spin[0], 1, xctype=kind, spin=spin)[1]
        return np.ascontiguousarray(vxc.reshape(rho.shape) * blocks.weights[block.span])

    return ranks.sum(_by_atom(mol, _Forces(kind, blocks, tuple(densities_of(dm, 1)), derivatives)))


def nonlocal_gradient(ni: Any, mol: gto.Mole, grids: Any, xc_code: str, dm: np.ndarray) -> np.ndarray:
    """Return the gradient [atoms, 3] of nonlocal correlation (VV10), with fixed weights and density matrix, in
    Hartree/Bohr.

    The symmetric density matrix [nao, nao] is that of electrons of both spins. Other arguments are as in `xc_gradient`.
    """
    blocks = Blocks.of(mol, grids.coords, grids.weights, _order("GGA"))
    density = DensityMatrix.of(dm)
    potential = NonlocalPotential.of(Quadrature(blocks, "GGA", lib.num_threads()), density, ni.nlc_coeff(xc_code))
    return _by_atom(mol, _Forces("GGA", blocks, (density,), potential.derivatives))


def _by_atom(mol: gto.Mole, forces: _Forces) -> np.ndarray:
    """Return the gradient [atoms, 3] by the forces on the functions of all blocks."""
    blocks = forces.orbitals.blocks.blocks
    with single_threaded_pool(lib.num_threads()) as pool:
        parts = list(pool.map(forces, blocks))
    by_function = np.zeros((mol.nao, 3))
    for block, part in zip(blocks, parts):
        by_function[block.functions] += part
    ends = mol.aoslice_by_atom()[:, 2:]
    return np.array([-2 * by_function[begin:end].sum(axis=0) for begin, end in ends]).reshape(-1, 3)


class _Forces:
    """The forces on the functions of one block, for a kind of functional in VARIABLES. It may be called on several
    threads.

    `spins` are the density matrix, or one for each spin; `derivatives` is the functional, see `trnqc.xc.quadrature`.
    """

    def __init__(self, kind: str, blocks: Blocks, spins: tuple[DensityMatrix, ...], derivatives: Derivatives) -> None:
        self.kind, self.spins, self.derivatives = kind, spins, derivatives
        self.orbitals = AtomicOrbitals(blocks, _order(kind))
        recipes = _recipes(kind)
        libraries = programs.build(recipes)
        self._add_density, self._weigh, self._add_forces = (getattr(libraries[r.name], r.name) for r in recipes)
        self._lanes, self._local = programs.lanes(), threading.local()

    def __call__(self, block: PointBlock) -> np.ndarray:
        """Return the sums t [N, 3] over the points of a block for its N functions."""
        n, total = len(block.functions), np.zeros((len(block.functions), 3))
        if not n:
            return total
        phi, products, rows = self._arrays(block)
        counts = {"functions": n, "vectors": block.points // self._lanes}
        rho = zeros((len(self.spins), VARIABLES[self.kind], block.points))
        for density, x, variables in zip(self.spins, products, rho):
            for component, product in zip(phi, x):
                _times(density, block, component, product)
            self._add_density(**counts, bra=phi, ket=x, rho=variables)
        part = np.empty_like(total)
        for density, x, w in zip(self.spins, products, self.derivatives(block, rho)):
            if self.kind == "LDA":
                np.multiply(x[0], w, out=rows[1])
            else:
                self._weigh(**counts, ao=phi, weights=w, out=rows[0])
                _times(density, block, *rows)
            self._add_forces(**counts, ao=phi, x=x, w=w, z=rows[1], force=part, groups_begin=0, groups_end=n)
            total += part
        return total

    def _arrays(self, block: PointBlock) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the atomic orbitals, and memory for products [spins, 1 or 4, N, points] and rows [2, N, points]."""
        counts = (len(self.spins) * PRODUCTS[self.kind], 2)
        if not hasattr(self._local, "ao"):
            self._local.ao = self.orbitals.buffer()
            self._local.memory = [zeros(count * self.orbitals.blocks.largest) for count in counts]
        size = len(block.functions) * block.points
        products, rows = (
            memory[: count * size].reshape(count, len(block.functions), block.points)
            for memory, count in zip(self._local.memory, counts)
        )
        shape = len(self.spins), PRODUCTS[self.kind], *products.shape[1:]
        return self.orbitals(block, self._local.ao), products.reshape(shape), rows


def _times(density: DensityMatrix, block: PointBlock, rows: np.ndarray, out: np.ndarray) -> None:
    """Compute D times rows [N, points] of the functions of a block, by orbitals where that takes fewer operations."""
    if density.by_orbitals(len(rows), "GGA"):
        assert density.orbitals is not None
        orbitals = density.orbitals[block.functions]
        np.matmul(orbitals, orbitals.T @ rows, out=out)
    else:
        np.matmul(density.matrix[np.ix_(block.functions, block.functions)], rows, out=out)
