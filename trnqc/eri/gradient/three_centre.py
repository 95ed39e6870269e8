"""Gradients of sums of three- and two-centre integrals with densities that come in blocks.

molecule -> pairs of shells; fitting set -> blocks of shells -> density of a block -> kernels (three_centre_program.py)
         -> derivatives by the centres of pairs and of fitting shells -> derivatives by atoms
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from pyscf import gto, lib

from trnqc.eri.classes import PRIMITIVE
from trnqc.eri.gradient.fitting_blocks import FittingBlock, FittingShells, blocks_of, segmented
from trnqc.eri.gradient.three_centre_classes import GradientClass, class_of, work_size
from trnqc.eri.gradient.three_centre_program import program
from trnqc.eri.jk.tasks import relative_cost
from trnqc.eri.kernels import boys
from trnqc.eri.library import programs as library
from trnqc.eri.operators import Operator
from trnqc.eri.shells.pairs import ShellPairs, fitting_shells, pairs_of
from trnqc.errors import InputError, UnsupportedClass
from trnqc.host.arrays import zeros
from trnqc.jit import CompiledFunction
from trnqc.ranks import ALONE, Ranks, in_order

Density = Callable[[np.ndarray], np.ndarray]

# Quartets whose Schwarz bound times the largest element of the density is below this are left out, in Hartree.
CUTOFF = 1e-14
# Bytes that the density of one block may take, by default.
BLOCK_BYTES = 2.5e8
# Fitting functions of a block, unless one shell has more. With more of them the kernels are hardly faster, and the page
# faults of a larger array take longer than that saves.
BLOCK_FUNCTIONS = 192
# The fewest tasks into which the pairs of a block are divided, if there are as many. The division does not depend on
# the number of threads, and so neither do the bits of the result.
TASKS = 64


def three_centre_gradient(
    mol: gto.Mole,
    auxmol: gto.Mole,
    density: Density | np.ndarray,
    *,
    block_bytes: float = BLOCK_BYTES,
    omega: float | None = None,
    threads: int | None = None,
    ranks: Ranks = ALONE,
) -> np.ndarray:
    """Compute sum_ijP G[i, j, P] d(ij|P)/dA, the derivative at constant G by the position of each atom.

    Parameters
    ----------
    mol, auxmol : pyscf.gto.Mole
        The molecule and its fitting functions, on the same atoms, both Cartesian or both spherical.
    density : callable or ndarray [nao, nao, naux]
        ``density(functions)`` returns G of a block of fitting functions, float64 [nao, nao, n] and C-contiguous, for
        the numbers of n functions. The blocks are disjoint, and together hold all functions, sorted by l. G need not be
        symmetric in i and j. The array is not read after the next call, which may overwrite it.
    block_bytes : float
        The most that G of one block may take, unless one shell needs more. Blocks have at most about 192 functions.
    omega : float, optional
        In 1/Bohr: positive for erf(omega r)/r, negative for erfc(|omega| r)/r, 0 for 1/r; None for the molecule's own.
    threads : int, optional
        By default `pyscf.lib.num_threads()`. The bits of the result do not depend on it.
    ranks : Ranks, optional
        The processes that share the blocks of fitting functions. All of them call this with the same arguments, and
        have the whole result, whose bits do not depend on their number.

    Returns
    -------
    ndarray [natm, 3]
        In Hartree/Bohr, if G is a derivative of an energy by an integral.

    Raises
    ------
    InputError
        If the atoms differ, or G does not have the shape of a block.
    UnsupportedClass, CompilerError
        If there are no kernels for these shells.

    Notes
    -----
    The derivative by the centre of P is minus the sum of the other two, because a translation of all three changes no
    integral.
    """
    if mol.cart != auxmol.cart:
        raise UnsupportedClass(f"expected one kind of functions, found cart={mol.cart} and cart={auxmol.cart}")
    if mol.natm != auxmol.natm or not np.array_equal(mol.atom_coords(), auxmol.atom_coords()):
        raise InputError("expected fitting functions on the atoms of the molecule, found other atoms")
    nao = mol.nao_nr()
    of_block = (lambda functions: density[:, :, functions]) if isinstance(density, np.ndarray) else density
    blocks = tuple(blocks_of(auxmol, min(block_bytes / (8 * max(nao, 1) ** 2), BLOCK_FUNCTIONS)))
    bra = _Bra.of(pairs_of(mol, exponents=True), mol, symmetric=True)
    return _gradient(bra, auxmol, blocks, of_block, (nao, nao), Operator.of(mol, omega), threads, ranks)


def two_centre_gradient(
    auxmol: gto.Mole, density: np.ndarray, *, omega: float | None = None, threads: int | None = None
) -> np.ndarray:
    """Compute sum_PQ G[P, Q] d(P|Q)/dA for a density G [naux, naux]; see `three_centre_gradient`."""
    naux = auxmol.nao_nr()
    if np.shape(density) != (naux, naux):
        raise InputError(f"expected a density [{naux}, {naux}], found {list(np.shape(density))}")
    single = segmented(auxmol)
    bra = _Bra.of(fitting_shells(single, exponents=True), single, symmetric=False)
    blocks = tuple(blocks_of(auxmol, np.inf))
    operator = Operator.of(auxmol, omega)
    return _gradient(bra, auxmol, blocks, lambda functions: density[:, functions], (naux,), operator, threads)


@dataclass(frozen=True, eq=False)
class _Bra:
    """Classes of pairs with the atoms of both shells, and whether two functions share two weights, (ij| and (ji|."""

    classes: tuple[ShellPairs, ...]
    atoms: np.ndarray
    symmetric: bool

    @classmethod
    def of(cls, classes: Sequence[ShellPairs], mol: gto.Mole, symmetric: bool) -> _Bra:
        ordered = tuple(pairs.take(np.argsort(-pairs.bound, kind="stable")) for pairs in classes)
        return cls(ordered, mol._bas[:, gto.ATOM_OF], symmetric)

    def factor(self, pairs: ShellPairs) -> np.ndarray:
        """Return the factor of the sum of both weights."""
        once = (pairs.first == pairs.second) | (not self.symmetric)
        return np.where(once, 0.5, 1.0)


@dataclass(frozen=True, eq=False)
class _Task:
    cls: GradientClass
    bra: ShellPairs
    ket: FittingShells
    begin: int
    end: int


def _gradient(
    bra: _Bra,
    auxmol: gto.Mole,
    blocks: Sequence[FittingBlock],
    density: Density,
    shape: tuple[int, ...],
    operator: Operator,
    threads: int | None,
    ranks: Ranks = ALONE,
) -> np.ndarray:
    kernels = _kernels(bra, blocks, operator)
    aux_atoms = segmented(auxmol)._bas[:, gto.ATOM_OF]
    threads = threads or lib.num_threads()
    with ThreadPoolExecutor(threads) as pool:

        def of_block(number: int) -> np.ndarray:
            block, total = blocks[number], np.zeros((auxmol.natm, 3))
            weights = np.ascontiguousarray(density(block.functions), dtype=np.float64)
            if weights.shape != (*shape, len(block.functions)):
                raise InputError(f"expected a density {[*shape, len(block.functions)]}, found {list(weights.shape)}")
            largest = float(np.max([*pool.map(_largest, weights)], initial=0.0))
            if not np.isfinite(largest):
                raise InputError("the density has elements that are not finite: the step that computed it has failed")
            if largest == 0.0:
                return total
            call = _Call(bra, auxmol.natm, aux_atoms, weights, CUTOFF / largest, operator.omega, kernels)
            for part in pool.map(call.run, _tasks(bra, block.shells, operator.name)):
                total += part
            return total

        total = np.zeros((auxmol.natm, 3))
        for part in in_order(of_block, len(blocks), total.shape, ranks):
            total += part
    return total


def _largest(weights: np.ndarray) -> float:
    """Return the largest absolute value of an array, without a temporary one of its size; NaN if it has any."""
    return float(np.maximum(weights.max(initial=0.0), -weights.min(initial=0.0)))


def _kernels(bra: _Bra, blocks: Sequence[FittingBlock], operator: Operator) -> dict[GradientClass, CompiledFunction]:
    """Return the compiled kernels of all classes."""
    kets = {ket.pairs.la: ket.pairs for block in blocks for ket in block.shells}.values()
    classes = dict.fromkeys(class_of(pairs, ket, operator.name) for pairs in bra.classes for ket in kets)
    programs = [program(cls) for cls in classes]
    libraries = library.build(programs, "kernels of fitted derivatives")
    return {cls: getattr(libraries[cls.name], cls.name) for cls in classes}


def _tasks(bra: _Bra, kets: Sequence[FittingShells], operator: str) -> list[_Task]:
    """Return ranges of the pairs of each class with each class of fitting shells, of similar cost."""
    costs = {
        (n, m): relative_cost(pairs, ket.pairs, len(pairs) * len(ket.pairs))
        for n, pairs in enumerate(bra.classes)
        for m, ket in enumerate(kets)
    }
    most = sum(costs.values()) / TASKS
    tasks = []
    for (n, m), cost in sorted(costs.items(), key=lambda item: -item[1]):
        pairs, ket = bra.classes[n], kets[m]
        parts = int(min(len(pairs), max(1, np.ceil(cost / most))))
        edges = np.linspace(0, len(pairs), parts + 1).astype(int).tolist()
        tasks += [_Task(class_of(pairs, ket.pairs, operator), pairs, ket, i, j) for i, j in pairwise(edges)]
    return tasks


@dataclass(frozen=True, eq=False)
class _Call:
    """What all calls of kernels for one block share."""

    bra: _Bra
    natm: int
    aux_atoms: np.ndarray
    weights: np.ndarray
    screen: float
    omega: float
    kernels: dict[GradientClass, CompiledFunction]

    def run(self, task: _Task) -> np.ndarray:
        """Return the contribution of a task to the gradient, [natm, 3]."""
        bra, ket, width = task.bra, task.ket, library.lanes()
        gradient = np.zeros((self.natm, 3))
        # Pairs are ordered by falling bound.
        end = min(task.end, int((bra.bound * ket.packed.bound.max() >= self.screen).sum()))
        if end <= task.begin:
            return gradient
        # Rows of other pairs are neither cleared nor written.
        by_pair, by_shell = np.empty((len(bra), 6)), np.zeros((len(ket.packed), 3, width))
        by_pair[task.begin : end] = 0.0
        self.kernels[task.cls](
            **self._arguments(task),
            work=zeros((work_size(task.cls, bra.contractions), width)),
            bra_gradient=by_pair,
            ket_gradient=by_shell,
            groups_begin=task.begin,
            groups_end=end,
        )
        own = slice(task.begin, end)
        for column, shells in ((0, bra.first), (3, bra.second)):
            np.add.at(gradient, self.bra.atoms[shells[own]], by_pair[own, column : column + 3])
        atoms = self.aux_atoms[ket.pairs.first[ket.packed.members]]
        np.add.at(gradient, atoms, by_shell.transpose(0, 2, 1))
        return gradient

    def _arguments(self, task: _Task) -> dict[str, Any]:
        bra, ket = task.bra, task.ket
        *rows, n = self.weights.shape
        step_a, step_b = (rows[1] * n, n) if len(rows) == 2 else (n, 0)
        return {
            "bra_rows": bra.records.shape[1],
            "ket_rows": ket.packed.records.shape[1],
            "rows": len(ket.packed),
            "n_ab": bra.contractions,
            "n_b": bra.ncb,
            "step_a": step_a,
            "step_b": step_b,
            "mirror_a": step_b if self.bra.symmetric else step_a,
            "mirror_b": step_a if self.bra.symmetric else step_b,
            "bra_count": bra.count,
            "bra": bra.records,
            "bra_centre": bra.centre,
            "bra_bound": bra.bound,
            "ao_a": bra.ao_first,
            "ao_b": bra.ao_second,
            "factor": self.bra.factor(bra),
            "ket_count": ket.packed.count,
            "ket": ket.packed.records,
            "ket_centre": ket.packed.centre,
            "ket_bound": ket.packed.bounds,
            "row_bound": ket.packed.bound,
            "ket_place": ket.place,
            "density": self.weights,
            "screen": self.screen,
            "cutoff": PRIMITIVE * self.screen,
            "omega": self.omega,
            "boys": boys.table(task.cls.order),
        }
