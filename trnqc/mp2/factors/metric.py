"""The metric (P|Q) of the auxiliary functions of the correlation step."""

from __future__ import annotations

import numpy as np
from pyscf import gto

from trnqc.fitted.metric import MetricFactor, factorise

# Reciprocal condition number of (P|Q) below which the Cholesky factor is not accurate, because it comes close to the
# rounding of fp64, 1.1e-16.
RCOND_CHOLESKY = 1e-14
# Eigenvalues of (P|Q) in Hartree up to which functions are dropped: the threshold of PySCF's density-fitted MP2.
EIGENVALUE_CUT = 1e-10


def metric_of(auxmol: gto.Mole) -> MetricFactor:
    """Factorise (P|Q) in the order of the functions of `auxmol`."""
    return factorise(auxmol.intor("int2c2e", hermi=1), EIGENVALUE_CUT, RCOND_CHOLESKY, np.linalg.eigh)
