"""The metric (P|Q) of the auxiliary functions of the correlation step."""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import Executor

import numpy as np
from pyscf import gto

from trnqc.fitted.metric import MetricFactor, factorise
from trnqc.mp2.execution import Execution

# Reciprocal condition number of (P|Q) below which the Cholesky factor is not accurate, because it comes close to the
# rounding of fp64, 1.1e-16.
RCOND_CHOLESKY = 1e-14
# Eigenvalues of (P|Q) in Hartree up to which functions are dropped: the threshold of PySCF's density-fitted MP2.
EIGENVALUE_CUT = 1e-10


def metric_of(auxmol: gto.Mole) -> MetricFactor:
    """Factorise (P|Q) in the order of the functions of `auxmol`."""
    return factorise(auxmol.intor("int2c2e", hermi=1), EIGENVALUE_CUT, RCOND_CHOLESKY, np.linalg.eigh)


def fit_all(
    auxmol: gto.Mole, rows: Iterable[np.ndarray], pool: Executor, execution: Execution
) -> tuple[MetricFactor, dict[str, float]]:
    """Factorise (P|Q), and fit rows [nvir, P] in their memory; return the factor, and wall seconds by stage."""
    start = time.perf_counter()
    factor = metric_of(auxmol)
    middle = time.perf_counter()
    for _ in execution.finished(pool, factor.fit_rows, rows, "fitting"):
        pass
    return factor, {"metric": middle - start, "fitting": time.perf_counter() - middle}
