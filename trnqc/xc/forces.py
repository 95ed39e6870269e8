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
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyscf import gto, lib

from trnqc.eri.fitting.thread_pool import single_threaded_pool
from trnqc.host.arrays import zeros
from trnqc.jit import Recipe, find_compiler, library
from trnqc.xc import ao
from trnqc.xc.ao import AtomicOrbitals
from trnqc.xc.blocks import Block, Blocks
from trnqc.xc.force_program import DENSITY, PRODUCTS, recipe

# Eigenvalues of a density below this share of the largest are rounding errors.
NEGLIGIBLE = 1e-14


@dataclass(frozen=True, eq=False)
class Factors:
    """A symmetric density matrix D = sum_k s_k u_k u_k^T.

    Attributes
    ----------
    vectors : ndarray [nao, rank]
        The vectors u.
    signs : ndarray [rank]
        The signs s.
    matrix : ndarray [nao, nao]
        D itself.
    """

    vectors: np.ndarray
    signs: np.ndarray
    matrix: np.ndarray

    @classmethod
    def of(cls, dm: np.ndarray) -> Factors:
        """Return the factors of a matrix by its eigenvalues."""
        matrix = (dm + dm.T) / 2
        values, vectors = np.linalg.eigh(matrix)
        kept = np.abs(values) > NEGLIGIBLE * np.abs(values).max(initial=0)
        vectors = vectors[:, kept] * np.sqrt(np.abs(values[kept]))
        return cls(np.ascontiguousarray(vectors), np.sign(values[kept]), matrix)

    def times(self, functions: np.ndarray, rows: np.ndarray, out: np.ndarray) -> np.ndarray:
        """Compute D times rows [N, points] of the given functions, by the cheaper of two ways."""
        if 2 * len(self.signs) < len(functions):
            vectors = self.vectors[functions]
            return np.matmul(vectors, (vectors.T @ rows) * self.signs[:, None], out=out)
        return np.matmul(self.matrix[np.ix_(functions, functions)], rows, out=out)


def programs_for(mol: gto.Mole, kind: str) -> tuple[Recipe, ...]:
    """Return the programs of `xc_gradient` for a kind of functional, a key of DENSITY."""
    return (*ao.programs_for(mol, _order(kind)), recipe(kind))


def _order(kind: str) -> int:
    """The derivatives of atomic orbitals in the gradient of a functional."""
    return 1 if kind == "LDA" else 2


def xc_gradient(ni: Any, mol: gto.Mole, grids: Any, xc_code: str, dm: np.ndarray) -> np.ndarray:
    """Return the gradient of the exchange-correlation energy, with fixed density matrix and weights.

    Parameters
    ----------
    ni : pyscf.dft.numint.NumInt
        Evaluates the functional.
    mol : pyscf.gto.Mole
        The molecule.
    grids : pyscf.dft.gen_grid.Grids
        Points and weights, which are built.
    xc_code : str
        The functional, as PySCF writes it: LDA, GGA or meta-GGA, or their part of a hybrid.
    dm : ndarray [nao, nao] or [2, nao, nao]
        The density matrix, or those of both spins. They are symmetric.

    Returns
    -------
    ndarray [atoms, 3]
        The gradient in Hartree/Bohr. Each atomic orbital moves with its nucleus. The points of the grid do not move.
    """
    return gradient_on(ni, mol, grids.coords, grids.weights, xc_code, dm)


def gradient_on(
    ni: Any, mol: gto.Mole, coords: np.ndarray, weights: np.ndarray, xc_code: str, dm: np.ndarray
) -> np.ndarray:
    """Return the gradient for points [n, 3] and weights [n]; see `xc_gradient`."""
    kind = ni._xc_type(xc_code)
    if kind not in DENSITY:
        return np.zeros((mol.natm, 3))
    order = _order(kind)
    blocks = Blocks.of(mol, coords, weights, order)
    spins = tuple(Factors.of(one) for one in np.reshape(dm, (-1, mol.nao, mol.nao)))
    work = _Work(ni, xc_code, kind, AtomicOrbitals(blocks, order), spins)
    with single_threaded_pool(lib.num_threads()) as pool:
        parts = list(pool.map(work, blocks.blocks))
    by_function = np.zeros((mol.nao, 3))
    for block, part in zip(blocks.blocks, parts):
        by_function[block.functions] += part
    ends = mol.aoslice_by_atom()[:, 2:]
    return np.array([-2 * by_function[begin:end].sum(axis=0) for begin, end in ends]).reshape(-1, 3)


class _Work:
    """The forces on the functions of one block. It may be called on several threads.

    Parameters
    ----------
    ni : pyscf.dft.numint.NumInt
        Evaluates the functional.
    xc_code, kind : str
        The functional and its kind, a key of DENSITY.
    orbitals : AtomicOrbitals
        The atomic orbitals on all blocks.
    spins : tuple of Factors
        The density matrix, or one for each spin.
    """

    def __init__(self, ni: Any, xc_code: str, kind: str, orbitals: AtomicOrbitals, spins: tuple[Factors, ...]) -> None:
        self.ni, self.xc_code, self.kind, self.orbitals, self.spins = ni, xc_code, kind, orbitals, spins
        self._library, self._lanes = library(recipe(kind)), find_compiler().lanes()
        self._local = threading.local()

    def __call__(self, block: Block) -> np.ndarray:
        """Return the sums t [N, 3] over the points of a block for its N functions."""
        if not len(block.functions):
            return np.zeros((0, 3))
        phi, products, rows = self._arrays(block)
        rho = zeros((len(self.spins), DENSITY[self.kind], block.points))
        for factors, x, density in zip(self.spins, products, rho):
            for component, product in zip(phi, x):
                factors.times(block.functions, component, product)
            self._run("density", block, ao=phi, x=x, rho=density)
        potential = self._potential(rho, self.orbitals.blocks.weights[block.span])
        total, force = np.zeros((len(block.functions), 3)), np.empty((len(block.functions), 3))
        for factors, x, w in zip(self.spins, products, potential):
            self._run("weighted", block, ao=phi, w=w, rows=rows[0])
            factors.times(block.functions, rows[0], rows[1])
            self._run("force", block, ao=phi, x=x, w=w, rows=rows[1], force=force)
            total += force
        return total

    def _run(self, name: str, block: Block, **arrays: np.ndarray) -> None:
        """Call a program on all of its groups."""
        functions, vectors = len(block.functions), block.points // self._lanes
        getattr(self._library, name)(
            functions=functions,
            vectors=vectors,
            groups_begin=0,
            groups_end=vectors if name == "density" else functions,
            **arrays,
        )

    def _potential(self, rho: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return the weighted derivatives of the energy density [spins, components, points]."""
        spin = len(rho) - 1
        densities = rho if spin else rho[0]
        if self.kind == "LDA":
            densities = densities[..., 0, :]
        vxc = self.ni.eval_xc_eff(self.xc_code, densities, 1, xctype=self.kind, spin=spin)[1]
        return np.ascontiguousarray(vxc.reshape(rho.shape) * weights)

    def _arrays(self, block: Block) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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
