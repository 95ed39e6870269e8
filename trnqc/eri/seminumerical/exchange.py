"""Exchange matrices of a molecule with one integration on a grid: K_il = sum_jk (ij|kl) D_jk.

  K_il = sum_g w_g X_ig sum_k A_kl(g) F_kg        F_kg = sum_j D_jk X_jg        A_kl(g) = (kl|g)

block of points -> orbitals X (grid.py) -> F by a matrix product -> norms of F -> sums over pairs (field.py)
add sum_k A_kl F_k to G -> K += G w X^T

(Neese, Wennmohs, Hansen and Becker, Chem. Phys. 356, 98 (2009).) The blocks are divided into groups that depend on the
molecule only, and their sums are added in order, so that the bits of K do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import numpy as np
from pyscf import gto, lib

from trnqc.eri.compiled import programs
from trnqc.eri.jk import densities
from trnqc.eri.operators import Operator
from trnqc.eri.seminumerical.field import Field
from trnqc.eri.seminumerical.grid import GridBlock, GridOrbitals, blocks_of, grid_of
from trnqc.eri.seminumerical.overlap_fit import correction
from trnqc.eri.seminumerical.pairs import cartesian_matrix
from trnqc.host.arrays import zeros
from trnqc.host.thread_pool import single_threaded_pool

# The level of PySCF's grids for this purpose; with it the error is below 1e-5 Hartree an atom.
LEVEL = 2
# The most groups of blocks, whose sums are added in order.
GROUPS = 64


class BlockSum(Protocol):
    """What is summed over blocks: `start` returns the array of a sum, and a call that of some blocks."""

    def start(self) -> np.ndarray: ...

    def __call__(self, blocks: tuple[GridBlock, ...]) -> np.ndarray: ...


class SeminumericalExchange:
    """K of one molecule for any number of densities. It keeps the grid, pairs and compiled functions.

    Parameters
    ----------
    mol : pyscf.gto.Mole
        The molecule.
    omega : float, optional
        In 1/Bohr: positive for erf(omega r)/r, negative for erfc(-omega r)/r, 0 for 1/r; None for the molecule's own.
    level : int
        The grid, one of the levels 0 (coarse), ..., 7 (fine) of PySCF's sgx module.
    threads : int, optional
        By default `pyscf.lib.num_threads()`. The bits of K do not depend on it.

    Raises
    ------
    InputError
        For an unknown level.
    CompilerError, UnsupportedClass, MoleculeError
        If there are no programs for the molecule's shells.

    Examples
    --------
    >>> from pyscf import gto
    >>> exchange = SeminumericalExchange(gto.M(atom="He", basis="sto-3g"), level=4)
    >>> float(exchange.get_k([[1.0]])[0, 0].round(4))
    1.0557
    """

    def __init__(
        self, mol: gto.Mole, omega: float | None = None, level: int = LEVEL, threads: int | None = None
    ) -> None:
        self.mol, self.level, self.operator = mol, level, Operator.of(mol, omega)
        self.threads = threads or lib.num_threads()
        self.grid = grid_of(mol, level)
        self.blocks = blocks_of(self.grid.points, self.grid.weights, programs.lanes())
        self.orbitals, self.cartesian = GridOrbitals(mol), cartesian_matrix(mol)
        self._field: Field | None = None
        self._fit: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def ran_on(self) -> str:
        """Description of the code that computes K."""
        points = sum(int((block.weights != 0).sum()) for block in self.blocks)
        return f"K on {points} points (level {self.level}), {programs.words()}, {self.threads} threads"

    def get_k(self, dm: Any, hermi: int = 1) -> np.ndarray:
        """Compute K of density matrices [..., nao, nao], real or complex.

        hermi: as in `trnqc.eri.get_jk`. Raises InputError for arrays that cannot be densities of this molecule.
        """
        dm = densities.checked(dm, self.mol.nao_nr(), hermi)
        if np.iscomplexobj(dm):
            real, imaginary = self.get_k(np.stack([dm.real, dm.imag]), 0)
            return real + 1j * imaginary
        dms = dm.reshape(-1, *dm.shape[-2:]).astype(np.float64, copy=False)
        vk = np.zeros(dms.shape)
        parts = densities.split(dms, True, np.ones(dms.shape[-1]), 0.0)
        if len(parts) and self.blocks:
            parts.add_exchange(vk, self._halves(parts.matrices))
        return densities.mirrored(vk, hermi).reshape(dm.shape)

    def prepare(self) -> tuple[Field, np.ndarray]:
        """Compile the programs and compute the overlap fit, unless that is done already, and return both."""
        if self._field is None:
            self._field = Field(self.mol, self.operator)
        return self._field, self.overlap_fit()[1]

    def overlap_fit(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the overlap matrix by quadrature and P, both [nao, nao], which are computed the first time."""
        if self._fit is None:
            with single_threaded_pool(self.threads) as pool:
                quadrature = self.summed(pool, _Overlap(self.orbitals, self.mol.nao_nr()))[0]
            self._fit = quadrature, correction(self.mol.intor_symmetric("int1e_ovlp"), quadrature)
        return self._fit

    def _halves(self, dms: np.ndarray) -> np.ndarray:
        """Return half of K, before it is symmetrised, of symmetric or antisymmetric densities."""
        field, p = self.prepare()
        c = self.cartesian
        with single_threaded_pool(self.threads) as pool:
            # What may be left out does not depend on the density: a small one, as in response equations, is enlarged.
            scale = np.minimum(np.abs(dms).max(axis=(1, 2)), 1.0)
            to_f = np.stack([c @ (dm.T / one) @ p for dm, one in zip(dms, scale)])
            sums = self.summed(pool, _Pass(self.orbitals, field, to_f))
        return np.stack([0.5 * factor * (p @ one.T @ c) for one, factor in zip(sums, scale)])

    def summed(self, pool: Any, work: BlockSum) -> np.ndarray:
        """Return the sum of the contributions of all blocks, from the threads of a pool, in the order of the groups."""
        size = -(-len(self.blocks) // GROUPS)
        groups = (self.blocks[begin : begin + size] for begin in range(0, len(self.blocks), size))
        total = work.start()
        for part in _in_order(pool, work, groups, 2 * self.threads):
            total += part
        return total


def _in_order(pool: Any, work: Any, groups: Iterator[tuple[GridBlock, ...]], ahead: int) -> Iterator[np.ndarray]:
    """Yield the results of all groups in order, with at most `ahead` of them in memory."""
    waiting: list[Future[np.ndarray]] = [pool.submit(work, group) for group in islice(groups, ahead)]
    while waiting:
        yield waiting.pop(0).result()
        waiting += [pool.submit(work, group) for group in islice(groups, 1)]


@dataclass(frozen=True, eq=False)
class _Overlap:
    """The quadrature of the overlap matrix."""

    orbitals: GridOrbitals
    nao: int

    def start(self) -> np.ndarray:
        return np.zeros((1, self.nao, self.nao))

    def __call__(self, blocks: tuple[GridBlock, ...]) -> np.ndarray:
        total = self.start()
        for block in blocks:
            which, x = self.orbitals(block)
            total[0][np.ix_(which, which)] += (x * block.weights) @ x.T
        return total


@dataclass(frozen=True, eq=False)
class _Pass:
    """One pass over the grid for densities, with to_f [n, ncart, nao] from orbitals to F."""

    orbitals: GridOrbitals
    field: Field
    to_f: np.ndarray

    def start(self) -> np.ndarray:
        return np.zeros_like(self.to_f)

    def __call__(self, blocks: tuple[GridBlock, ...]) -> np.ndarray:
        total = self.start()
        for block in blocks:
            self._add(block, total)
        return total

    def _add(self, block: GridBlock, total: np.ndarray) -> None:
        """Add sum_g G_kg w_g X_ig of a block to [n, ncart, nao]."""
        which, x = self.orbitals(block)
        if not len(which):
            return
        n, ncart, _ = self.to_f.shape
        f = zeros((n, ncart, *block.points.shape[1:]))
        g = zeros(f.shape)
        np.matmul(self.to_f[:, :, which], x, out=f.reshape(n, ncart, -1))
        self.field.add(block, f, g, float(np.sqrt(((x * x) @ np.abs(block.weights)).max())))
        total[:, :, which] += g.reshape(n, ncart, -1) @ (x * block.weights).T
