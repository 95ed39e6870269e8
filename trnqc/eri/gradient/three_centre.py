"""Gradients of sums of three- and two-centre integrals with densities that come in blocks.

molecule -> pairs of shells; fitting set -> blocks of shells -> density of a block -> kernels (three_centre_program.py)
         -> derivatives by the centres of pairs and of fitting shells -> derivatives by atoms
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise

import numpy as np
from pyscf import gto, lib

from trnqc.eri.gradient.fitting_blocks import FittingBlock, FittingShells, blocks_of, segmented
from trnqc.eri.gradient.three_centre_pass import CUTOFF, Bra, ThreeCentrePass, ThreeCentreTask, compiled_kernels
from trnqc.eri.jk.tasks import relative_cost
from trnqc.eri.operators import Operator
from trnqc.eri.shells.pairs import fitting_shells, pairs_of
from trnqc.errors import InputError, UnsupportedClass
from trnqc.ranks import ALONE, Ranks, in_order

Density = Callable[[np.ndarray], np.ndarray]

# Bytes that the density of one block may take, by default.
BLOCK_BYTES = 2.5e8
# Fitting functions of a block, unless one shell has more. With more of them the kernels are hardly faster, and the page
# faults of a larger array take longer than that saves.
BLOCK_FUNCTIONS = 192
# Fitting functions Q of a block in derivatives of (P|Q).
TWO_CENTRE_FUNCTIONS = 512
# Elements of a part of a density whose largest one is a task.
PART = 1 << 18
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
    owners: np.ndarray | None = None,
) -> np.ndarray:
    """Compute sum_ijP G[i, j, P] d(ij|P)/dA, the derivative at constant G by the position of each atom.

    Parameters
    ----------
    mol, auxmol : pyscf.gto.Mole
        The molecule and its fitting functions, on the same atoms, both Cartesian or both spherical.
    density : callable or ndarray [nao, nao, naux]
        ``density(functions)`` returns G of a block of fitting functions, float64 [nao, nao, n] and C-contiguous, for
        the numbers of n functions. The blocks are disjoint, and together hold all functions; the largest comes first. G
        need not be symmetric in i and j. The array is not read after the next call, which may overwrite it.
    block_bytes : float
        The most that G of one block may take, unless one shell needs more. Blocks have at most about 192 functions.
    omega : float, optional
        In 1/Bohr: positive for erf(omega r)/r, negative for erfc(-omega r)/r, 0 for 1/r; None for the molecule's own.
    threads : int, optional
        By default `pyscf.lib.num_threads()`. The bits of the result do not depend on it.
    ranks : Ranks, optional
        The processes that share the blocks of fitting functions. All of them call this with the same arguments, and
        have the whole result, whose bits do not depend on their number.
    owners : ndarray of int, optional
        The atom of `mol` with which each atom of `auxmol` moves, by default the one of the same number. With owners the
        atoms of `auxmol` may be anywhere.

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
    if owners is None:
        if mol.natm != auxmol.natm or not np.array_equal(mol.atom_coords(), auxmol.atom_coords()):
            raise InputError("expected fitting functions on the atoms of the molecule, found other atoms")
        owners = np.arange(mol.natm)
    nao = mol.nao_nr()
    of_block = (lambda functions: density[:, :, functions]) if isinstance(density, np.ndarray) else density
    blocks = _blocks(mol, auxmol, block_bytes)
    bra = Bra.of(pairs_of(mol, exponents=True), mol, symmetric=True)
    shape, operator = (nao, nao), Operator.of(mol, omega)
    return _gradient(bra, auxmol, owners, mol.natm, blocks, of_block, shape, operator, threads, ranks)


def functions_of_ranks(mol: gto.Mole, auxmol: gto.Mole, ranks: int) -> list[np.ndarray]:
    """Return the functions, in rising order, for whose weights `three_centre_gradient` asks on each of some ranks."""
    blocks = _blocks(mol, auxmol, BLOCK_BYTES)
    none = np.zeros(0, np.int64)
    return [np.sort(np.concatenate([none, *(b.functions for b in blocks[n::ranks])])) for n in range(ranks)]


def _blocks(mol: gto.Mole, auxmol: gto.Mole, block_bytes: float) -> tuple[FittingBlock, ...]:
    """Return the blocks of fitting functions, the largest first, so that memory for it is enough for all."""
    most = min(block_bytes / (8 * max(mol.nao_nr(), 1) ** 2), BLOCK_FUNCTIONS)
    return tuple(sorted(blocks_of(auxmol, most), key=lambda block: -len(block.functions)))


def two_centre_gradient(
    auxmol: gto.Mole,
    density: np.ndarray,
    *,
    omega: float | None = None,
    threads: int | None = None,
    ranks: Ranks = ALONE,
) -> np.ndarray:
    """Compute sum_PQ G[P, Q] d(P|Q)/dA for a density G [naux, naux]; see `three_centre_gradient`."""
    naux = auxmol.nao_nr()
    if np.shape(density) != (naux, naux):
        raise InputError(f"expected a density [{naux}, {naux}], found {list(np.shape(density))}")
    single = segmented(auxmol)
    bra = Bra.of(fitting_shells(single, exponents=True), single, symmetric=False)
    blocks = tuple(blocks_of(auxmol, TWO_CENTRE_FUNCTIONS))
    operator = Operator.of(auxmol, omega)
    natm = auxmol.natm
    of_block: Density = lambda functions: density[:, functions]  # noqa: E731
    return _gradient(bra, auxmol, np.arange(natm), natm, blocks, of_block, (naux,), operator, threads, ranks)


def _gradient(
    bra: Bra,
    auxmol: gto.Mole,
    owners: np.ndarray,
    natm: int,
    blocks: Sequence[FittingBlock],
    density: Density,
    shape: tuple[int, ...],
    operator: Operator,
    threads: int | None,
    ranks: Ranks = ALONE,
) -> np.ndarray:
    kernels = compiled_kernels(bra, blocks, operator)
    aux_atoms = owners[segmented(auxmol)._bas[:, gto.ATOM_OF]]
    threads = threads or lib.num_threads()
    with ThreadPoolExecutor(threads) as pool:

        def of_block(number: int) -> np.ndarray:
            block, total = blocks[number], np.zeros((natm, 3))
            weights = np.ascontiguousarray(density(block.functions), dtype=np.float64)
            if weights.shape != (*shape, len(block.functions)):
                raise InputError(f"expected a density {[*shape, len(block.functions)]}, found {list(weights.shape)}")
            largest = float(np.max([*pool.map(_largest, _parts(weights))], initial=0.0))
            if not np.isfinite(largest):
                raise InputError("the density has elements that are not finite: the step that computed it has failed")
            if largest == 0.0:
                return total
            one = ThreeCentrePass(bra, weights, CUTOFF / largest, operator.omega, kernels)
            by_atoms = partial(_by_atoms, one, aux_atoms, natm)
            for part in pool.map(by_atoms, _tasks(bra, block.shells, operator.name)):
                total += part
            return total

        total = np.zeros((natm, 3))
        for part in in_order(of_block, len(blocks), total.shape, ranks):
            total += part
    return total


def _parts(weights: np.ndarray) -> list[np.ndarray]:
    """Divide an array along its first axis into parts that are worth a task."""
    rows = max(1, PART // max(1, weights[:1].size))
    return [weights[first : first + rows] for first in range(0, len(weights), rows)]


def _largest(weights: np.ndarray) -> float:
    """Return the largest absolute value of an array without a temporary array of its size; NaN if the array contains
    NaN.
    """
    return float(np.maximum(weights.max(initial=0.0), -weights.min(initial=0.0)))


def _tasks(bra: Bra, kets: Sequence[FittingShells], operator: str) -> list[ThreeCentreTask]:
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
        tasks += [ThreeCentreTask.of(pairs, ket, operator, i, j) for i, j in pairwise(edges)]
    return tasks


def _by_atoms(one: ThreeCentrePass, aux_atoms: np.ndarray, natm: int, task: ThreeCentreTask) -> np.ndarray:
    """Return the contribution of a task to the gradient, [natm, 3]."""
    gradient = np.zeros((natm, 3))
    end, by_pair, by_shell = one(task)
    own = slice(task.begin, end)
    for column, shells in ((0, task.bra.first), (3, task.bra.second)):
        np.add.at(gradient, one.bra.atoms[shells[own]], by_pair[:, column : column + 3])
    np.add.at(gradient, aux_atoms[task.ket.shells], by_shell)
    return gradient
