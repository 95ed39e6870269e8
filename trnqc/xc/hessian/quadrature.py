"""Exchange-correlation terms of a Hessian by quadrature over blocks of points, on threads.

The grid does not move with the atoms, as in PySCF.
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
from trnqc.xc.hessian.block_densities import ORDER, SECOND, THIRD, VARIABLES, BlockDensities, half_potentials
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
    [2, nao, nao] those of alpha and beta electrons.
    """

    def __init__(
        self,
        mol: gto.Mole,
        grid: tuple[np.ndarray, np.ndarray],
        functional: Functional,
        dms: np.ndarray,
        threads: int,
    ) -> None:
        self.mol, self.grid, self.functional, self.dms, self.threads = mol, grid, functional, dms, threads
        self._atoms = np.repeat(mol._bas[:, gto.ATOM_OF], np.diff(mol.ao_loc_nr()))

    def energy(self) -> np.ndarray:
        """Compute second derivatives of the energy at constant densities, [natm, natm, 3, 3] in Hartree/Bohr^2."""
        blocks = Blocks.of(self.mol, *self.grid, self.functional.order + 2)
        total = np.zeros((self.mol.natm, self.mol.natm, 3, 3))

        def one(block: PointBlock, ao: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            atoms, starts = self._atoms_of(block)
            densities, weighted, kernel = self.evaluated(blocks, block, ao)
            by_atoms = densities.by_atoms(starts)
            terms = _response_terms(by_atoms, kernel) + _two_functions(densities, weighted, starts)
            diagonal = np.arange(len(atoms))
            terms[diagonal, diagonal] += _one_function(densities, weighted, starts)
            return atoms, terms

        for atoms, terms in self.over(AtomicOrbitals(blocks, blocks.order), one):
            total[np.ix_(atoms, atoms)] += terms
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
            densities, weighted, kernel = self.evaluated(blocks, block, ao)
            by_atoms = np.einsum("svtug,axtug->saxvg", kernel, densities.by_atoms(starts), optimize=True)
            halves = [[half_potentials(ao, axes, weigh, lanes) for axes in derivatives] for derivatives in by_atoms]
            return block, atoms, np.array(halves), np.array([_moved_functions(ao, w) for w in weighted])

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
        """Return the densities of a block, and the first and second derivatives of the energy times the weights."""
        own = self.dms[:, block.functions[:, None], block.functions]
        densities = BlockDensities(ao, own, self.functional.variables)
        v, f = self.functional.derivatives(densities.values)
        weights = blocks.weights[block.span]
        return densities, v * weights, f * weights

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


def _response_terms(by_atoms: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """Return sum_g w f rho^A rho^B, [atoms, atoms, 3, 3]."""
    n = len(by_atoms)
    changed = np.einsum("svtug,axtug->axsvg", kernel, by_atoms, optimize=True)
    return (by_atoms.reshape(3 * n, -1) @ changed.reshape(3 * n, -1).T).reshape(n, 3, n, 3).swapaxes(1, 2)


def _two_functions(densities: BlockDensities, weighted: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return sum_g w v rho^AB with the derivatives of two functions of a product, [atoms, atoms, 3, 3]."""
    ao, total = densities.ao, 0.0
    size = ao.shape[1]
    first = ao[1:4].reshape(3 * size, -1)
    for own, dm in zip(weighted, densities.dms):
        raised = 0.5 * own[0] * ao[1:4]
        if len(own) > 1:
            raised += np.einsum("xcig,cg->xig", ao[SECOND], own[1:4])
        matrix = (raised.reshape(3 * size, -1) @ first.T).reshape(3, size, 3, size)
        matrix = matrix + matrix.transpose(2, 3, 0, 1)
        if len(own) > 4:
            for c in range(3):
                second = ao[SECOND[:, c]].reshape(3 * size, -1)
                matrix += ((second * (0.5 * own[4])) @ second.T).reshape(matrix.shape)
        total = total + 2 * matrix * dm[:, None, :]
    by_atoms = np.add.reduceat(np.add.reduceat(total, starts, axis=1), starts, axis=3)
    return by_atoms.transpose(1, 3, 0, 2)


def _one_function(densities: BlockDensities, weighted: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return sum_g w v rho^AA with both derivatives of one function, [atoms, 3, 3]."""
    ao, total = densities.ao, np.zeros((3, 3, densities.ao.shape[1]))
    for own, x in zip(weighted, densities.products):
        value = own[0] * x[0]
        if len(own) > 1:
            value = np.einsum("cg,cig->ig", own[:4], x)
        by_c = [own[1 + c] * x[0] for c in range(3)] if len(own) > 1 else []
        if len(own) > 4:
            by_c = [one + (0.5 * own[4]) * x[1 + c] for c, one in enumerate(by_c)]
        for i in range(3):
            for j in range(i + 1):
                term = np.einsum("ig,ig->i", ao[SECOND[i, j]], value)
                for c, one in enumerate(by_c):
                    term += np.einsum("ig,ig->i", ao[THIRD[i, j, c]], one)
                total[i, j] += 2 * term
                if i != j:
                    total[j, i] += 2 * term
    return np.add.reduceat(total, starts, axis=2).transpose(2, 0, 1)


def _moved_functions(ao: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return sum_g of the potential between (d_x i) and j, [3, N, N]."""
    matrices = []
    value = weights[0] * ao[0] if len(weights) == 1 else np.einsum("cg,cig->ig", weights[:4], ao[:4])
    for axis in range(3):
        matrix = ao[1 + axis] @ value.T
        if len(weights) > 1:
            matrix += np.einsum("cg,cig->ig", weights[1:4], ao[SECOND[axis]]) @ ao[0].T
        if len(weights) > 4:
            for c in range(3):
                matrix += (ao[SECOND[axis, c]] * (0.5 * weights[4])) @ ao[1 + c].T
        matrices.append(matrix)
    return np.array(matrices)
