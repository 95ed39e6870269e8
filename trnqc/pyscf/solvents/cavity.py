"""The charges of PCM on the surface of a cavity: their equations K q = R v, and the derivative of their energy.

surface -> S, D, in blocks of rows on threads -> factors -> potentials v -> charges q
v, q -> products of vectors with derivatives of S and D, which are never stored -> gradient

The names are those of PySCF, which follows A. W. Lange and J. M. Herbert, J. Chem. Phys. 133, 244111 (2010): S_ij are
the interactions of Gaussian charges, D_ij those of charges i with dipoles j along the normals n_j, A are areas, F
switching functions, and with a factor f of the permittivity

    C-PCM, COSMO   K = S                               R = -f
    IEF-PCM        K = S - f/(2 pi) D A S              R = -f (1 - D A/(2 pi))
    SS(V)PE        K = S - f/(4 pi) (D A S + S A D^T)  R as IEF-PCM
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
from pyscf import lib
from pyscf.solvent.grad.pcm import get_dF_dA
from scipy.spatial.distance import cdist
from scipy.special import erf

from trnqc.host.blas import blas_threads
from trnqc.host.thread_pool import single_threaded_pool

# Elements of a block of rows: some arrays of as many fit into a thread's cache.
ELEMENTS = 100_000
CONDUCTORS = ("C-PCM", "CPCM", "COSMO")
ISOTROPIC = ("IEF-PCM", "IEFPCM")
SYMMETRIC = ("SS(V)PE",)

Pairs = list[tuple[np.ndarray, np.ndarray]]
"""Vectors a and b [n] of sums a_i X_ij b_j."""


class Cavity:
    """The equations of the charges on a surface.

    Parameters
    ----------
    surface : dict
        PySCF's description of the surface, `pyscf.solvent.pcm.gen_surface`.
    method : str
        One of CONDUCTORS, ISOTROPIC or SYMMETRIC.
    factor : float
        The factor f.
    """

    def __init__(self, surface: dict[str, Any], method: str, factor: float) -> None:
        self.surface, self.method, self.factor = surface, method, factor
        self.area = surface["weights"] * surface["R_vdw"] ** 2 * surface["switch_fun"]
        self._rows = _Rows(surface)

    @cached_property
    def s(self) -> np.ndarray:
        """S [n, n]."""
        return self._matrices[0]

    @cached_property
    def d(self) -> np.ndarray:
        """D [n, n]."""
        return self._matrices[1]

    @cached_property
    def _matrices(self) -> tuple[np.ndarray, np.ndarray]:
        n = len(self.area)
        s, d = np.empty((n, n)), np.empty((n, n))

        def fill(rows: slice) -> None:
            r, r3, projected, charge, field = self._rows(rows)
            np.divide(charge, r, out=s[rows])
            np.multiply(field, projected, out=d[rows])
            d[rows] /= r3

        list(_on_threads(fill, n))
        xi = self.surface["charge_exp"]
        np.fill_diagonal(s, xi * np.sqrt(2 / np.pi) / self.surface["switch_fun"])
        np.fill_diagonal(d, -xi * np.sqrt(2 / np.pi) / (2 * self.surface["R_vdw"]))
        return s, d

    def k(self) -> np.ndarray:
        """Return K [n, n]."""
        if self.method in CONDUCTORS:
            return self.s
        das = (self.d * self.area) @ self.s
        if self.method in ISOTROPIC:
            return self.s - self.factor / (2 * np.pi) * das
        return self.s - self.factor / (4 * np.pi) * (das + das.T)

    def r(self) -> np.ndarray:
        """Return R [n, n]."""
        one = np.eye(len(self.area))
        if self.method in CONDUCTORS:
            return -self.factor * one
        return -self.factor * (one - self.d * (self.area / (2 * np.pi)))

    def charges(self, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return K^-1 R v and R^T K^-T v for potentials [n], or for some as columns [n, m]."""
        with _all_threads():
            return self._charges(v)

    def _charges(self, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self.method in CONDUCTORS:
            q = -self.factor * self._solve_s(v)
            return q, q
        if self.method in ISOTROPIC:
            # With X = D A/(2 pi), M is 1 - f X and R is -f (1 - X) = (1 - f) - M: M^-1 R is (1 - f) M^-1 - 1.
            rest, columns = 1 - self.factor, v.reshape(len(v), -1)
            both = self._solve_s(np.hstack([columns, self._divided(columns)]))
            direct, through = both[:, : columns.shape[1]], both[:, columns.shape[1] :]
            transposed = self._divided(direct, transposed=True)
            return (rest * through - direct).reshape(v.shape), (rest * transposed - direct).reshape(v.shape)
        return self._solve(self._times_r(v)), self._times_r(self._solve(v, transposed=True), transposed=True)

    def _times_r(self, v: np.ndarray, transposed: bool = False) -> np.ndarray:
        """Return R v or R^T v."""
        area = self.area if v.ndim == 1 else self.area[:, None]
        product = area * (self.d.T @ v) if transposed else self.d @ (area * v)
        return -self.factor * (v - product / (2 * np.pi))

    def _solve(self, v: np.ndarray, transposed: bool = False) -> np.ndarray:
        """Return K^-1 v or K^-T v. For IEF-PCM K is M S, with M = 1 - f/(2 pi) D A."""
        if self.method in CONDUCTORS:
            return self._solve_s(v)
        if self.method in SYMMETRIC:
            return self._divided(v)
        if transposed:
            return self._divided(self._solve_s(v), transposed=True)
        return self._solve_s(self._divided(v))

    def _divided(self, v: np.ndarray, transposed: bool = False) -> np.ndarray:
        """Return M^-1 v or M^-T v for IEF-PCM, and K^-1 v for SS(V)PE, whose K is symmetric."""
        return np.asarray(scipy.linalg.lu_solve(self._factors, v, trans=0 if transposed else 1))

    @cached_property
    def _factors(self) -> Any:
        """The factors of M^T for IEF-PCM, and of K for SS(V)PE. LAPACK would copy matrices in the order of C."""
        if self.method in SYMMETRIC:
            matrix = self.k()
        else:
            matrix = self.d * (-self.factor / (2 * np.pi) * self.area)
            matrix[np.diag_indices_from(matrix)] += 1
        return scipy.linalg.lu_factor(matrix.T, overwrite_a=True, check_finite=False)

    @cached_property
    def _solve_s(self) -> Callable[[np.ndarray], np.ndarray]:
        try:
            cholesky = scipy.linalg.cho_factor(self.s.T, lower=True, check_finite=False)
            return lambda v: np.asarray(scipy.linalg.cho_solve(cholesky, v))
        except np.linalg.LinAlgError:  # Charges that nearly coincide: rounding decides about the sign.
            lu = scipy.linalg.lu_factor(self.s.T, check_finite=False)
            return lambda v: np.asarray(scipy.linalg.lu_solve(lu, v))

    def gradient(self, v: np.ndarray, discretization: str) -> np.ndarray:
        """Return the derivative of v K^-1 R v / 2 by the positions of the atoms at constant v [n]; [natm, 3].

        It is w (dR - dK q) / 2 with w = K^-T v. `discretization` is PySCF's name of the switching functions.
        """
        with _all_threads():
            q, w = self._charges(v)[0], self._solve(v, transposed=True)
        of_switch, of_area = get_dF_dA(self.surface, discretization)
        on_s: Pairs = [(-w / 2, q)]
        on_d: Pairs = []
        by_area = np.zeros(len(v))
        if self.method not in CONDUCTORS:
            c = self.factor / (4 * np.pi)
            of_k = c if self.method in ISOTROPIC else c / 2
            wd, sq = w @ self.d, self.s @ q
            on_d += [(w, self.area * (c * v + of_k * sq))]
            on_s += [(of_k * self.area * wd, q)]
            by_area += wd * (c * v + of_k * sq)
            if self.method in SYMMETRIC:
                ws, qd = self.s @ w, q @ self.d
                on_d += [(q, of_k * self.area * ws)]
                on_s += [(w, of_k * self.area * qd)]
                by_area += of_k * ws * qd
        by_point = self._rows.products(on_s, on_d)
        diagonal = -self.surface["charge_exp"] * np.sqrt(2 / np.pi) / self.surface["switch_fun"] ** 2
        by_switch = diagonal * sum(a * b for a, b in on_s)
        of_points = np.array([by_point[a:b].sum(axis=0) for a, b in self.surface["gslice_by_atom"]])
        return of_points + np.einsum("i,iax->ax", by_switch, of_switch) + np.einsum("i,iax->ax", by_area, of_area)


class _Rows:
    """The distances of the charges of some rows i to all charges j, and functions of them."""

    def __init__(self, surface: dict[str, Any]) -> None:
        self._points, self._normals, self._xi = (surface[key] for key in ("grid_coords", "norm_vec", "charge_exp"))
        self._projections = np.einsum("jx,jx->j", self._normals, self._points)

    def __call__(self, rows: slice) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return r, r^3, n_j (r_i - r_j), erf(x) and erf(x) - 2 x exp(-x^2)/sqrt(pi) with x = xi_ij r, [rows, n].

        r is 1 on the diagonal, where the last two are 0.
        """
        r = cdist(self._points[rows], self._points)
        x = r * self._joint(rows)
        diagonal = np.arange(len(r)), np.arange(*rows.indices(len(self._points)))
        r[diagonal] = 1.0
        charge = erf(x)
        field = charge - 2 / np.sqrt(np.pi) * x * np.exp(-x * x)
        projected = self._points[rows] @ self._normals.T - self._projections
        return r, r**3, projected, charge, field

    def _joint(self, rows: slice) -> np.ndarray:
        """Return xi_ij = xi_i xi_j / sqrt(xi_i^2 + xi_j^2)."""
        i, j = self._xi[rows, None], self._xi
        return np.asarray(i * j / np.sqrt(i * i + j * j))

    def products(self, on_s: Pairs, on_d: Pairs) -> np.ndarray:
        """Return the derivatives of sums a_i S_ij b_j and a_i D_ij b_j, i != j, by the positions of the charges [n, 3].

        The derivative of S_ij by r_i is s_ij (r_i - r_j), that of D_ij is p_ij (r_i - r_j) + field_ij n_j / r^3, and
        those by r_j are their negatives.
        """
        points, normals, n = self._points, self._normals, len(self._xi)

        def of(rows: slice) -> np.ndarray:
            r, r3, projected, _, field = self(rows)
            along = field / r3
            out = np.zeros((n, 3))
            for a, b in on_s:
                _add_central(out, -along, points, a, b, rows)
            if on_d:
                x2 = (r * self._joint(rows)) ** 2
                p = 4 / np.sqrt(np.pi) * x2 * self._joint(rows) * np.exp(-x2) / (r * r) - 3 * along
                p *= projected / (r * r)
                p[np.arange(len(r)), np.arange(*rows.indices(n))] = 0.0
            for a, b in on_d:
                _add_central(out, p, points, a, b, rows)
                out[rows] += a[rows, None] * (along @ (b[:, None] * normals))
                out -= (b * (a[rows] @ along))[:, None] * normals
            return out

        total = np.zeros((n, 3))
        for part in _on_threads(of, n):
            total += part
        return total


def _add_central(out: np.ndarray, m: np.ndarray, points: np.ndarray, a: np.ndarray, b: np.ndarray, rows: slice) -> None:
    """Add a_i m_ij (r_i - r_j) b_j to the charges i, and subtract it from the charges j."""
    own, weighted = points[rows], a[rows, None]
    out[rows] += weighted * (own * (m @ b)[:, None] - m @ (b[:, None] * points))
    out -= b[:, None] * (m.T @ (weighted * own) - points * (a[rows] @ m)[:, None])


def _all_threads() -> AbstractContextManager[Any]:
    """Let BLAS and LAPACK use all threads, which an SCF of few functions, whose matrices are small, does not allow."""
    return blas_threads(lib.num_threads())


def _on_threads(function: Callable[[slice], Any], n: int) -> Iterator[Any]:
    """Yield the results of a function of blocks of rows."""
    step = max(1, ELEMENTS // max(n, 1))
    with single_threaded_pool(lib.num_threads()) as pool:
        yield from pool.map(function, [slice(i, min(i + step, n)) for i in range(0, n, step)])
