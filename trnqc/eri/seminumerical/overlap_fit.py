"""The correction of orbitals on a grid, with which the quadrature of their overlaps is exact, and its derivative.

With the overlap matrix S, its quadrature N, and N v = mu S v, V^T S V = 1, the correction is P = (S N^-1)^(1/2) = S V
f(mu) V^T with f(mu) = mu^(-1/2), but f = 1 where the grid does not resolve a combination of orbitals. As a function of
the matrix N S^-1 it has the derivative (Higham, Functions of Matrices (2008), eq. 3.11)

  dP = S V (f[mu_i, mu_j] (V^T dN V - mu_i V^T dS V)_ij) V^T        f[x, y] = (f(x) - f(y)) / (x - y)
"""

from __future__ import annotations

import numpy as np

# Eigenvalues of S below this share of the largest are left out of the correction: N has no correct digits there.
DEPENDENT = 1e-9
# Eigenvalues of S^-1 N outside this range are not corrected: the grid does not resolve such a combination of orbitals.
RESOLVED = (0.5, 2.0)


def correction(overlap: np.ndarray, quadrature: np.ndarray) -> np.ndarray:
    """Return P [nao, nao] from the overlap matrix and its quadrature.

    >>> import numpy as np
    >>> s, n = np.array([[1.0, 0.2], [0.2, 1.0]]), np.array([[1.1, 0.2], [0.2, 1.0]])
    >>> p = correction(s, n)
    >>> bool(np.allclose(p @ n @ p.T, s))
    True
    """
    mu, v = _vectors(overlap, quadrature)
    resolved = _resolved(mu)
    own = v[:, resolved]
    return np.eye(len(overlap)) + (overlap @ own) * (mu[resolved] ** -0.5 - 1) @ own.T


def correction_gradient(overlap: np.ndarray, quadrature: np.ndarray, by_p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the derivatives of an energy by N and by S [nao, nao] from that by P; both are symmetric.

    Combinations of orbitals that are left out as dependent are taken as fixed.
    """
    mu, v = _vectors(overlap, quadrature)
    in_vectors = (v.T @ overlap @ by_p @ v) * _divided_differences(mu)
    by_n, by_s = v @ in_vectors @ v.T, -v @ (mu[:, None] * in_vectors) @ v.T
    return (by_n + by_n.T) / 2, (by_s + by_s.T) / 2


def _vectors(overlap: np.ndarray, quadrature: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mu [n] and V [nao, n]."""
    size, c = np.linalg.eigh(overlap)
    kept = size > DEPENDENT * size.max(initial=0.0)
    basis = c[:, kept] / np.sqrt(size[kept])
    mu, u = np.linalg.eigh(basis.T @ quadrature @ basis)
    return mu, basis @ u


def _resolved(mu: np.ndarray) -> np.ndarray:
    return (mu > RESOLVED[0]) & (mu < RESOLVED[1])


def _divided_differences(mu: np.ndarray) -> np.ndarray:
    """Return f[mu_i, mu_j], in a form without cancellation where both are resolved."""
    resolved = _resolved(mu)
    x, y = mu[:, None], mu[None, :]
    root = np.sqrt(np.where(resolved, mu, 1.0))
    f = np.where(resolved, 1 / root, 1.0)
    both, one = resolved[:, None] & resolved, resolved[:, None] ^ resolved
    within = -1 / (np.outer(root, root) * (root[:, None] + root))
    across = (f[:, None] - f) / np.where(one, x - y, 1.0)
    return np.where(both, within, np.where(one, across, 0.0))
