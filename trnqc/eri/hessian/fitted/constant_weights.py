"""Second derivatives of sums of three- and two-centre integrals with constant weights.

weights -> weights of integrals (u'v|P), u' a function of the derivative basis -> kernels of gradients -> by two atoms

A derivative by the atom of u is a combination of integrals with a shell of the derivative basis in the place of u. The
kernels of first derivatives give the second one, by the centre of v or of P. The terms of one atom follow from
translational invariance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from pyscf import gto

from trnqc.eri.gradient.fitting_blocks import FittingBlock, blocks_of, segmented
from trnqc.eri.gradient.three_centre_pass import CUTOFF, Bra, ThreeCentrePass, ThreeCentreTask, compiled_kernels
from trnqc.eri.hessian.energy import completed
from trnqc.eri.hessian.fitted.integral_derivatives import IntegralDerivatives
from trnqc.eri.operators import Operator
from trnqc.eri.shells.pairs import ShellPairs, pairs_between
from trnqc.host.thread_pool import single_threaded_pool

# Bytes that the weights of one block of fitting functions take for one direction of a derivative.
BLOCK_BYTES = 1e8

Weights = Callable[[np.ndarray], np.ndarray]


def three_centre_hessian(derivatives: IntegralDerivatives, weights: Weights, threads: int) -> np.ndarray:
    """Compute sum_uvP G[u, v, P] d^2(uv|P)/dA dB, [natm, natm, 3, 3]. The bits do not depend on the number of
    threads.

    ``weights(functions)`` returns G of fitting functions with these numbers, [nao, nao, n]; the next call may overwrite
    it.
    """
    mol, basis, aux = derivatives.mol, derivatives.basis, derivatives.aux_basis.cartesian
    operator = Operator.of(mol, derivatives.omega)
    atoms = basis.mol._bas[:, gto.ATOM_OF]
    classes = [_by_atom(pairs, atoms) for pairs in pairs_between(basis.mol, basis.cartesian, exponents=True)]
    bra = Bra(tuple(classes), basis.cartesian._bas[:, gto.ATOM_OF], symmetric=False)
    most = BLOCK_BYTES / (8 * basis.mol.nao_cart() * basis.cartesian.nao_cart())
    blocks = tuple(blocks_of(aux, most))
    kernels = compiled_kernels(bra, blocks, operator)
    aux_atoms = segmented(aux)._bas[:, gto.ATOM_OF]
    terms = np.zeros((2, mol.natm, mol.natm, 3, 3))
    with single_threaded_pool(threads) as pool:
        for block in blocks:
            for axis, mixed in enumerate(_weights_of_block(derivatives, weights, block)):
                largest = float(max(mixed.max(initial=0.0), -mixed.min(initial=0.0)))
                if largest == 0.0:
                    continue
                one = ThreeCentrePass(bra, mixed, CUTOFF / largest, operator.omega, kernels)
                of_task = _ByAtoms(one, aux_atoms, mol.natm)
                tasks = [task for pairs in classes for task in _tasks(pairs, atoms, block, operator.name)]
                for atom, rows in pool.map(of_task, tasks):
                    terms[:, atom, :, axis] += rows
    by_v, by_p = terms
    return completed(by_v + by_p + by_p.transpose(1, 0, 3, 2))


def two_centre_hessian(derivatives: IntegralDerivatives, weights: np.ndarray) -> np.ndarray:
    """Compute sum_PQ G[P, Q] d^2(P|Q)/dA dB for symmetric G [naux, naux]; [natm, natm, 3, 3]."""
    natm, slices = derivatives.mol.natm, derivatives.aux_slices
    held = np.flatnonzero(slices[:, 1] > slices[:, 0])
    starts = slices[held, 0]
    products = 2 * derivatives.twice_in_metric * weights
    sums = np.add.reduceat(np.add.reduceat(products, starts, axis=2), starts, axis=3)
    terms = np.zeros((natm, natm, 3, 3))
    terms[np.ix_(held, held)] = sums.transpose(2, 3, 0, 1)
    return completed(terms)


def _by_atom(pairs: ShellPairs, atoms: np.ndarray) -> ShellPairs:
    """Sort pairs (u', v) by the atom of u', and by falling bound within an atom."""
    return pairs.take(np.lexsort((-pairs.bound, atoms[_derivative(pairs)])))


def _derivative(pairs: ShellPairs) -> np.ndarray:
    """Return the shells u' of pairs."""
    return pairs.second if pairs.swapped else pairs.first


def _weights_of_block(derivatives: IntegralDerivatives, weights: Weights, block: FittingBlock) -> Iterator[np.ndarray]:
    """Yield the weights of (u'v|P) in the derivative by the atom of u along x, y and z, [u', v, P], all Cartesian."""
    basis, to_aux = derivatives.basis, derivatives.aux_basis.transform[block.functions]
    functions = np.unique(to_aux.indices)
    of_block = weights(functions)
    # u stands for both functions of the symmetric product, and the derivative is by the position of the nucleus.
    both = -(of_block + of_block.swapaxes(0, 1))
    nao, n = len(both), len(block.functions)
    plain = (to_aux[:, functions] @ both.reshape(-1, len(functions)).T).reshape(n, nao, nao)
    right = (basis.transform @ plain.transpose(2, 1, 0).reshape(nao, -1)).reshape(-1, nao, n)
    right = np.ascontiguousarray(right.swapaxes(0, 1)).reshape(nao, -1)
    for axis in basis.gradient:
        yield (axis @ right).reshape(axis.shape[0], -1, n)


def _tasks(
    pairs: ShellPairs, atoms: np.ndarray, block: FittingBlock, operator: str
) -> Iterator[tuple[int, ThreeCentreTask]]:
    """Yield the pairs of each atom with each class of fitting shells."""
    own = atoms[_derivative(pairs)]
    for atom in np.unique(own):
        begin, end = np.searchsorted(own, [atom, atom + 1]).tolist()
        for ket in block.shells:
            yield int(atom), ThreeCentreTask.of(pairs, ket, operator, begin, end)


class _ByAtoms:
    """The sums of a task by the atoms of v and of P."""

    def __init__(self, one: ThreeCentrePass, aux_atoms: np.ndarray, natm: int) -> None:
        self._pass, self._aux_atoms, self._natm = one, aux_atoms, natm

    def __call__(self, numbered: tuple[int, ThreeCentreTask]) -> tuple[int, np.ndarray]:
        """Return the atom of u', and the derivatives by v and by P, [2, natm, 3]."""
        atom, task = numbered
        end, by_pair, by_shell = self._pass(task)
        pairs, own, sums = task.bra, slice(task.begin, end), np.zeros((2, self._natm, 3))
        v, columns = (pairs.first, by_pair[:, :3]) if pairs.swapped else (pairs.second, by_pair[:, 3:])
        np.add.at(sums[0], self._pass.bra.atoms[v[own]], columns)
        np.add.at(sums[1], self._aux_atoms[task.ket.shells], by_shell)
        return atom, sums
