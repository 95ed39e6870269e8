"""Interactions of densities with Gaussian charges, such as those on the surface of a cavity in a solvent.

points, exponents -> PySCF's molecule of s functions -> (ij|g), packed, in blocks of charges on threads
    -> potentials sum_ij D_ij (ij|g), matrices sum_g q_g (ij|g), and forces on the functions and the charges
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from pyscf import gto, lib

from trnqc.eri.gradient.fitted.products import BlockProducts
from trnqc.eri.gradient.three_centre import three_centre_gradient
from trnqc.eri.integrals import PySCFThreeCentre, ThreeCentre
from trnqc.host.thread_pool import single_threaded_pool

# Charges of a block. The results do not depend on the number of threads.
CHARGES = 64

Block = tuple[int, int]
"""The first charge, and the one after the last."""
Rows = Callable[[Block], np.ndarray]
"""Returns the integrals [charges, i >= j] of a range of charges."""


def gaussian_charges(points: np.ndarray, exponents: np.ndarray, cartesian: bool = False) -> gto.Mole:
    """Return a molecule whose functions are unit charges with densities proportional to exp(-exponent r^2).

    points [n, 3] are in Bohr, exponents [n] in 1/Bohr^2.
    """
    charges = gto.fakemol_for_charges(points, expnt=exponents)
    charges.cart = cartesian
    return charges


class ChargeIntegrals:
    """(ij|g) of a molecule and of Gaussian charges, of which as many are kept as fit into memory.

    Parameters
    ----------
    mol : pyscf.gto.Mole
        The molecule.
    charges : pyscf.gto.Mole
        The charges, see `gaussian_charges`.
    room : float
        Bytes that integrals may take. Each call computes those again that do not fit.
    by_pyscf : bool
        Whether PySCF computes the integrals, and not our kernels.

    Raises
    ------
    UnsupportedClass, CompilerError
        If there are no kernels for these shells.
    """

    def __init__(self, mol: gto.Mole, charges: gto.Mole, room: float, by_pyscf: bool = False) -> None:
        self._nao = mol.nao_nr()
        pairs = self._nao * (self._nao + 1) // 2
        edges = [*range(0, charges.nbas, CHARGES), charges.nbas]
        self._blocks = list(pairwise(edges))
        self._compute: Rows = (PySCFThreeCentre if by_pyscf else ThreeCentre)(mol, charges)
        self._kept: list[np.ndarray] = []
        fitting = min(room / (8 * max(pairs, 1) * CHARGES), len(self._blocks))
        self._kept = list(self._each(lambda block, rows: rows, int(fitting)))

    def potentials(self, densities: np.ndarray) -> np.ndarray:
        """Return sum_ij D_ij (ij|g) [n, charges] of densities [n, nao, nao], in Hartree per unit charge."""
        folded = lib.pack_tril(densities + densities.transpose(0, 2, 1))
        folded[:, np.cumsum(np.arange(1, self._nao + 1)) - 1] /= 2
        return np.concatenate(list(self._each(lambda block, rows: folded @ rows.T)), axis=1)

    def matrices(self, charges: np.ndarray) -> np.ndarray:
        """Return sum_g q_g (ij|g) [n, nao, nao] of sets of charges [n, charges], in Hartree."""
        total = np.zeros((len(charges), self._nao * (self._nao + 1) // 2))
        for term in self._each(lambda block, rows: charges[:, slice(*block)] @ rows):
            total += term
        return np.asarray(lib.unpack_tril(total))

    def _each(
        self, function: Callable[[Block, np.ndarray], np.ndarray], count: int | None = None
    ) -> Iterator[np.ndarray]:
        """Yield the results of a function of a block and of its integrals [charges, i >= j], for the first `count`
        blocks or all.
        """
        kept = self._kept

        def of(number: int) -> np.ndarray:
            block = self._blocks[number]
            return function(block, kept[number] if number < len(kept) else self._compute(block))

        with single_threaded_pool(lib.num_threads()) as pool:
            yield from pool.map(of, range(len(self._blocks[:count])))


def charge_gradient(
    mol: gto.Mole,
    charges: gto.Mole,
    owners: np.ndarray,
    density: np.ndarray,
    values: np.ndarray,
    *,
    threads: int | None = None,
    **options: Any,
) -> np.ndarray:
    """Return the derivative of sum_ijg D_ij q_g (ij|g) by the positions of atoms, [natm, 3], Hartree/Bohr.

    `values` [n] are the charges q, which stay as they are and move with the atoms `owners` [n], and the symmetric
    density [nao, nao] stays as it is, too. `threads` and `options` are those of `three_centre_gradient`.
    """
    products = BlockProducts(np.empty((len(density), 0)), threads or lib.num_threads(), density[None])

    def weights(functions: np.ndarray) -> np.ndarray:
        return products.weights(products.right(len(functions)), values[None, functions])

    return three_centre_gradient(mol, charges, weights, owners=owners, threads=threads, **options)
