"""The correction that makes the grid integrate the overlap of any two orbitals exactly.

With the overlap S and its quadrature N = sum_g w X X^T, the orbitals X on the grid are replaced by P X with P = (S
N^-1)^(1/2), so that P N P^T = S. That is the overlap fitting of Izsak and Neese, J. Chem. Phys. 135, 144105 (2011), in
a form that treats both orbitals of a product alike. K is then the derivative of the exchange energy by the density, so
that an SCF converges to the minimum of its energy.
"""

from __future__ import annotations

import numpy as np

# Eigenvalues of S below this share of the largest are left out of the correction: N has no correct digits there.
DEPENDENT = 1e-9
# Eigenvalues of S^-1 N outside this range are not corrected: the grid does not resolve such a combination of orbitals.
RESOLVED = (0.5, 2.0)


def correction(overlap: np.ndarray, quadrature: np.ndarray) -> np.ndarray:
    """Return P [nao, nao] from the overlap matrix and its quadrature.

    Examples
    --------
    >>> import numpy as np
    >>> s, n = np.array([[1.0, 0.2], [0.2, 1.0]]), np.array([[1.1, 0.2], [0.2, 1.0]])
    >>> p = correction(s, n)
    >>> bool(np.allclose(p @ n @ p.T, s))
    True
    """
    size, c = np.linalg.eigh(overlap)
    kept = size > DEPENDENT * size.max(initial=0.0)
    basis = c[:, kept] / np.sqrt(size[kept])
    mu, u = np.linalg.eigh(basis.T @ quadrature @ basis)
    resolved = (mu > RESOLVED[0]) & (mu < RESOLVED[1])
    v = basis @ u[:, resolved]
    return np.eye(len(overlap)) + (overlap @ v) * (mu[resolved] ** -0.5 - 1) @ v.T
