"""Exchange-correlation terms of a Hessian by quadrature over blocks of points, on threads.

The points do not move with the atoms; `moving_grid.py` makes those of a grid that moves from them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import numpy as np
from pyscf import gto

from trnqc.eri.compiled import programs
from trnqc.errors import UnsupportedError
from trnqc.host.thread_pool import single_threaded_pool
from trnqc.xc.ao import AtomicOrbitals
from trnqc.xc.blocks import Blocks, PointBlock
from trnqc.xc.hessian.block_densities import ORDER, VARIABLES, BlockDensities, half_potentials
from trnqc.xc.hessian.block_terms import moved_functions, one_function, response_terms, two_functions, weight_terms
from trnqc.xc.programs import point_programs
from trnqc.xc.response import functional_of

T = TypeVar("T")

# Blocks for each thread that are computed before their results are needed.
AHEAD = 4


@dataclass(frozen=True, eq=False)
class Functional:
    """A density functional as PySCF's `NumInt` evaluates it; `spins` is 1 for closed shells, 2 for densities of each
    spin.
    """

    numint: Any
    code: str
    spins: int

    @property
    def kind(self) -> str:
        """The kind of functional, in PySCF's words. Raises UnsupportedError for one without variables."""
        kind = str(self.numint._xc_type(self.code))
        if kind not in VARIABLES:
            raise UnsupportedError(f"second derivatives are those of LDA, GGA and meta-GGA, found {self.code} ({kind})")
        return kind

    @property
    def variables(self) -> int:
        """The number of variables of a density."""
        return VARIABLES[self.kind]

    @property
    def order(self) -> int:
        """The order of derivatives of AO values in a matrix of the potential."""
        return ORDER[self.kind]

    def derivatives(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return first and second derivatives of the energy density by the variables [spins, variables, points]."""
        kind, count = self.kind, values.shape[-1]
        rho = values[:, 0] if kind == "LDA" else values
        spin = self.spins - 1
        with functional_of(self.numint):
            _, v, f = self.numint.eval_xc_eff(self.code, rho if spin else rho[0], deriv=2, xctype=kind, spin=spin)[:3]
        n = self.spins, self.variables
        return v.reshape(*n, count), f.reshape(*n, *n, count)


class HessianQuadrature:
    """Exchange-correlation terms of the Hessian of one molecule.

    `grid` are the points [n, 3] and weights [n], in Bohr and Bohr^3; `dms` [1, nao, nao] the spin-summed density, or
    [2, nao, nao] those of alpha and beta electrons. `weight_derivatives` [natm, 3, n] are the first derivatives of the
    weights by the atoms, in Bohr^2; without them, weights are constant.
    """

    def __init__(
        self,
        mol: gto.Mole,
        grid: tuple[np.ndarray, np.ndarray],
        functional: Functional,
        dms: np.ndarray,
        threads: int,
        weight_derivatives: np.ndarray | None = None,
    ) -> None:
        self.mol, self.grid, self.functional, self.dms, self.threads = mol, grid, functional, dms, threads
        self.weight_derivatives = weight_derivatives
        self._atoms = np.repeat(mol._bas[:, gto.ATOM_OF], np.diff(mol.ao_loc_nr()))

    def energy(self) -> np.ndarray:
        """Compute second derivatives of the energy at constant densities, [natm, natm, 3, 3] in Hartree/Bohr^2.

        Products of first derivatives of the weights with those of the energy density are included, second derivatives
        of the weights are not.
        """
        blocks = Blocks.of(self.mol, *self.grid, self.functional.order + 2)
        total = np.zeros((self.mol.natm, self.mol.natm, 3, 3))

        def one(block: PointBlock, ao: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
            atoms, starts = self._atoms_of(block)
            densities, v, kernel = self.evaluated(blocks, block, ao)
            by_atoms, weighted = densities.by_atoms(starts), v * blocks.weights[block.span]
            terms = response_terms(by_atoms, kernel) + two_functions(densities, weighted, starts)
            diagonal = np.arange(len(atoms))
            terms[diagonal, diagonal] += one_function(densities, weighted, starts)
            moved = self._weights_of(blocks, block)
            return atoms, terms, None if moved is None else weight_terms(moved, by_atoms, v)

        for atoms, terms, products in self.over(AtomicOrbitals(blocks, blocks.order), one):
            total[np.ix_(atoms, atoms)] += terms
            if products is not None:
                total[:, atoms] += products
                total[atoms] += products.transpose(1, 0, 3, 2)
        return total

    def fock(self) -> np.ndarray:
        """Compute first derivatives of the potential's matrices by all atoms, [spins, natm, 3, nao, nao]."""
        blocks, nao = Blocks.of(self.mol, *self.grid, self.functional.order + 1), len(self._atoms)
        total = np.zeros((len(self.dms), self.mol.natm, 3, nao, nao))
        rows = np.zeros((len(self.dms), 3, nao, nao))

        recipe, lanes = point_programs.weighted(), programs.lanes()
        weigh = getattr(programs.build([recipe])[recipe.name], recipe.name)

        def one(block: PointBlock, ao: np.ndarray) -> tuple[PointBlock, np.ndarray, np.ndarray, np.ndarray]:
            atoms, starts = self._atoms_of(block)
            densities, v, kernel = self.evaluated(blocks, block, ao)
            by_atoms = np.einsum("svtug,axtug->saxvg", kernel, densities.by_atoms(starts), optimize=True)
            if (moved := self._weights_of(blocks, block)) is not None:
                of_weights = np.einsum("axg,svg->saxvg", moved, v)
                of_weights[:, atoms] += by_atoms
                atoms, by_atoms = np.arange(self.mol.natm), of_weights
            halves = [[half_potentials(ao, axes, weigh, lanes) for axes in derivatives] for derivatives in by_atoms]
            weighted = v * blocks.weights[block.span]
            return block, atoms, np.array(halves), np.array([moved_functions(ao, w) for w in weighted])

        # Blocks are added in order, so that the bits do not depend on the number of threads.
        for block, atoms, halves, own in self.over(AtomicOrbitals(blocks, blocks.order), one):
            i, j = block.functions[:, None], block.functions
            for spin, matrices in enumerate(halves):
                for atom, axes in zip(atoms, matrices):
                    total[spin, atom][:, i, j] += axes
            rows[:, :, i, j] += own
        for matrices in total.reshape(-1, 3, nao, nao):
            matrices += matrices.swapaxes(1, 2).copy()
        for atom, (begin, end) in enumerate(self.mol.aoslice_by_atom()[:, 2:]):
            total[:, atom, :, begin:end] -= rows[:, :, begin:end]
            total[:, atom, :, :, begin:end] -= rows[:, :, begin:end].swapaxes(2, 3)
        return total

    def _atoms_of(self, block: PointBlock) -> tuple[np.ndarray, np.ndarray]:
        """Return the atoms of a block's functions, and the first function of each."""
        return np.unique(self._atoms[block.functions], return_index=True)

    def evaluated(
        self, blocks: Blocks, block: PointBlock, ao: np.ndarray
    ) -> tuple[BlockDensities, np.ndarray, np.ndarray]:
        """Return the densities of a block, derivatives of the energy density, and second ones times the weights."""
        own = self.dms[:, block.functions[:, None], block.functions]
        densities = BlockDensities(ao, own, self.functional.variables)
        v, f = self.functional.derivatives(densities.values)
        return densities, v, f * blocks.weights[block.span]

    def _weights_of(self, blocks: Blocks, block: PointBlock) -> np.ndarray | None:
        """Return the derivatives of the weights of a block, [natm, 3, points], or None if weights are constant."""
        if self.weight_derivatives is None:
            return None
        # The points that fill up a block are copies of another one, with weight 0.
        return self.weight_derivatives[..., blocks.index[block.span]] * (blocks.weights[block.span] != 0)

    def over(self, aos: AtomicOrbitals, one: Callable[[PointBlock, np.ndarray], T]) -> Iterator[T]:
        """Yield one(block, its AO values) for every block with functions, computed on threads, in order.

        Few results wait at any time.
        """
        local = threading.local()

        def run(block: PointBlock) -> T:
            if not hasattr(local, "buffer"):
                local.buffer = aos.buffer()
            return one(block, aos(block, local.buffer))

        blocks = iter([block for block in aos.blocks.blocks if len(block.functions)])
        with single_threaded_pool(self.threads) as pool:
            running = deque(pool.submit(run, block) for block in islice(blocks, AHEAD * self.threads))
            while running:
                result = running.popleft().result()
                running.extend(pool.submit(run, block) for block in islice(blocks, 1))
                yield result
