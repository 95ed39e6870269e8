"""Fitted three-centre integrals: the metric divided out of (P|ij).

(P|Q) = L L^T -> rows Q of L^-1 (P|ij), computed in the memory of (P|ij), one range of columns ij after the other
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pyscf import gto, lib
from pyscf.df.incore import LINEAR_DEP_THR
from pyscf.lib import logger

from trnqc.eri.integrals import int2c2e, int3c2e
from trnqc.fitted.metric import MetricFactor, factorise
from trnqc.host.blas import single_threaded

# Columns ij that a thread solves for at once, at least: they stay in its cache and are enough for matrix products.
COLUMNS = 2048


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
    factor = metric_factor(mol, auxmol)
    integrals = int3c2e(mol, auxmol, "s2ij").T
    return factor.fit_ranges(integrals, columns_of(mol, shell_blocks(mol)), lib.num_threads())


def metric_factor(mol: gto.Mole, auxmol: gto.Mole) -> MetricFactor:
    """Factorise the metric for the operator of `mol`; dependent functions are dropped by PySCF's threshold."""
    # Several threads would write (P|Q) and (Q|P) to one element in any order, and LAPACK's bits depend on threads.
    metric = int2c2e(auxmol, omega=mol.omega, threads=1)
    with single_threaded():
        factor = factorise(metric, LINEAR_DEP_THR)
    if factor.naux < factor.nfit:
        logger.info(mol, "metric of the fitting functions by %s", factor.note)
    return factor


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
