"""Fitted three-centre integrals: the metric divided out of (P|ij).

(P|Q) = L L^T -> rows Q of L^-1 (P|ij), computed in the memory of (P|ij), one range of columns ij after the other
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from pyscf import gto, lib
from pyscf.df.incore import LINEAR_DEP_THR
from pyscf.lib import logger

from trnqc.eri.integrals import int2c2e, int3c2e
from trnqc.host.rank_updates import add_general_product
from trnqc.host.thread_pool import single_threaded_pool

# Rows of a block on the diagonal of L: enough for fast matrix products, and few beside the metric.
ROWS = 64
# Columns ij that a thread solves for at once, at least: they stay in its cache and are enough for matrix products.
COLUMNS = 2048
# Where more columns than this share have integrals, copying these columns takes longer than solving for the others.
WORTH = 0.9
# The share of the memory below PySCF's max_memory that arrays of fitted integrals may take.
SHARE_OF_MEMORY = 0.9


def fitted_integrals(mol: gto.Mole, auxmol: gto.Mole) -> np.ndarray:
    """Compute L^-1 (P|ij) for the operator of a molecule, with (P|Q) = L L^T.

    Returns
    -------
    numpy.ndarray [naux, nao (nao + 1) / 2]
        Rows Q of packed pairs ij, in Hartree^1/2. The bits do not depend on the number of threads.

    Raises
    ------
    UnsupportedClass, CompilerError
        If there are no kernels for these shells.
    """
    factor = MetricFactor.of(mol, auxmol)
    return factor.divide_out(int3c2e(mol, auxmol, "s2ij").T, columns_of(mol, shell_blocks(mol)))


@dataclass(frozen=True, eq=False)
class MetricFactor:
    """A factor of the metric: L, or U w^-1/2 of its eigenvectors U where it has no Cholesky factor.

    Eigenvectors are kept if their eigenvalue w is above PySCF's threshold for linear dependence. Then there are fewer
    rows Q than fitting functions P.
    """

    matrix: np.ndarray
    is_lower: bool

    @classmethod
    def of(cls, mol: gto.Mole, auxmol: gto.Mole) -> MetricFactor:
        """Compute the factor for the operator of `mol`."""
        # Several threads would write (P|Q) and (Q|P) to one element in any order, and LAPACK's bits depend on threads.
        metric = int2c2e(auxmol, omega=mol.omega, threads=1)
        with single_threaded_pool(1):
            try:
                return cls(np.asfortranarray(scipy.linalg.cholesky(metric, lower=True)), True)
            except scipy.linalg.LinAlgError:
                w, u = scipy.linalg.eigh(metric)
        keep = w > LINEAR_DEP_THR
        logger.info(mol, "%d of %d fitting functions are linearly dependent", (~keep).sum(), len(w))
        return cls(u[:, keep] / np.sqrt(w[keep]), False)

    @property
    def naux(self) -> int:
        """Number of rows Q."""
        return self.matrix.shape[1]

    def divide_out(self, integrals: np.ndarray, columns: Sequence[tuple[int, int]]) -> np.ndarray:
        """Replace (P|ij) [nfit, pairs] by fitted rows [naux, pairs] in the same memory; one task a range of columns."""
        with single_threaded_pool(lib.num_threads()) as pool:
            fit = self.fit()
            list(pool.map(lambda part: fit(integrals[:, slice(*part)]), columns))
        return integrals[: self.naux]

    def fit(self) -> Callable[[np.ndarray], None]:
        """Return the function that replaces columns [nfit, m] of (P|ij) by fitted ones, in the first naux rows."""
        solver = LowerSolver.of(self.matrix) if self.is_lower else None

        def replace(block: np.ndarray) -> None:
            if solver:
                solver.solve(block)
            else:
                block[: self.naux] = self.matrix.T @ block

        def fit(block: np.ndarray) -> None:
            # In large molecules many pairs of functions are too far from each other to have integrals.
            filled = np.einsum("qp,qp->p", block, block) > 0
            if np.count_nonzero(filled) > WORTH * len(filled):
                replace(block)
            else:
                packed = np.ascontiguousarray(block[:, filled])
                replace(packed)
                block[:, filled] = packed

        return fit


def shell_blocks(mol: gto.Mole) -> list[tuple[int, int]]:
    """Return ranges of shells i with about COLUMNS pairs ij, i >= j; the same for any number of threads and ranks."""
    loc = mol.ao_loc_nr().astype(int)
    first, blocks = 0, []
    for last in range(1, mol.nbas + 1):
        if last == mol.nbas or _pairs(loc[last]) - _pairs(loc[first]) >= COLUMNS:
            blocks.append((first, last))
            first = last
    return blocks


def columns_of(mol: gto.Mole, blocks: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the ranges of packed pairs ij of blocks of shells, counted from the first pair of all blocks."""
    loc = mol.ao_loc_nr().astype(int)
    start = _pairs(loc[blocks[0][0]]) if blocks else 0
    return [(_pairs(loc[a]) - start, _pairs(loc[b]) - start) for a, b in blocks]


def _pairs(n: int) -> int:
    return int(n * (n + 1) // 2)


@dataclass(frozen=True, eq=False)
class LowerSolver:
    """Solves L X = B for a lower triangular matrix L by matrix products alone; the object keeps -L and the inverses of
    the blocks on the diagonal.

    The first half of the rows is solved for, multiplied by the square of L below, and subtracted from the other half.
    The blocks on the diagonal are inverted beforehand, because a BLAS library multiplies much faster than it solves.
    """

    negative: np.ndarray
    inverses: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, lower: np.ndarray) -> LowerSolver:
        """Prepare for L [n, n]."""
        blocks = [lower[i : i + ROWS, i : i + ROWS] for i in range(0, len(lower), ROWS)]
        inverses = (scipy.linalg.solve_triangular(block, np.eye(len(block)), lower=True) for block in blocks)
        return cls(np.negative(lower, order="C"), tuple(map(np.ascontiguousarray, inverses)))

    def solve(self, rows: np.ndarray) -> None:
        """Replace B [n, m], whose rows are contiguous, by X."""
        if len(self.inverses):
            self._solve(rows, 0, len(self.inverses))

    def _solve(self, rows: np.ndarray, first: int, last: int) -> None:
        """Solve for the rows of some blocks on the diagonal."""
        if last == first + 1:
            block = rows[first * ROWS : last * ROWS]
            block[:] = self.inverses[first] @ block
            return
        half = (first + last) // 2
        above, below = slice(first * ROWS, half * ROWS), slice(half * ROWS, last * ROWS)
        self._solve(rows, first, half)
        add_general_product(rows[below], self.negative[below, above], rows[above])
        self._solve(rows, half, last)


def memory_left(max_memory: float) -> float:
    """Return the bytes that arrays may take below PySCF's max_memory, which is in MB and limits the whole process."""
    return SHARE_OF_MEMORY * 1e6 * max(max_memory - lib.current_memory()[0], 0)
