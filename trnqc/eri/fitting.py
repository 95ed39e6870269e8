"""Density fitting in the shape of PySCF's DF object: three-centre integrals by our kernels, J and K by large products.

(P|ij), (P|Q) = L L^T -> L^-1 (P|ij), in place -> _cderi -> rows unpacked -> half transformed -> K as a rank-n update
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
from pyscf import df, gto, lib
from pyscf.df import df_jk
from pyscf.df.incore import LINEAR_DEP_THR
from pyscf.lib import logger
from scipy.linalg.blas import dgemm, dsyrk, dtrsm

from trnqc.eri import library
from trnqc.eri.integrals import int2c2e, int3c2e
from trnqc.errors import CompilerError, UnsupportedClass

# Rows of L that are solved for at once: large enough for products, small against the metric.
ROWS = 256
# Auxiliary functions unpacked at once: their half-transformed integrals still lie in a cache when they are used.
UNPACKED = 48
SHARE_OF_MEMORY = 0.9
# Eigenvalues of a density that are rounding errors, as a share of the largest.
NEGLIGIBLE = 1e-14


class DF(df.DF):
    """PySCF's DF with integrals of our kernels, and J and K by BLAS; results as PySCF's to rounding.

    Where the fitted integrals do not fit into max_memory, are to be saved (_cderi_to_save), or lie beyond our kernels,
    PySCF makes them as it does, on disk if need be; ``ran_on`` says in words who did, and a log line why.
    """

    _keys = frozenset({"ran_on"})
    _cderi: Any
    auxmol: Any

    def __init__(self, mol: gto.Mole, auxbasis: Any = None) -> None:
        super().__init__(mol, auxbasis)
        self.ran_on = "nothing yet"

    @classmethod
    def of(cls, other: df.DF) -> DF:
        """The same density fitting as another DF object's, with its integrals where it has some."""
        new = cls(other.mol)
        new.__dict__.update(
            {name: value for name, value in other.__dict__.items() if name not in ("_rsh_df", "_vjopt")}
        )
        return new

    def undo(self) -> df.DF:
        """PySCF's object with the state of this one."""
        plain = df.DF(self.mol)
        plain.__dict__.update(_state(self))
        return plain

    def build(self) -> DF:
        """Make the fitted integrals; they are in ``_cderi`` then, [naux, nao (nao + 1) / 2] or a file."""
        if self._cderi is not None and self.auxmol is None:
            return super().build()
        auxmol = df.addons.make_auxmol(self.mol, self.auxbasis)
        if reason := self._left_to_pyscf(auxmol):
            self.ran_on = f"PySCF: {reason}"
            logger.note(self, "density fitting is left to PySCF: %s", reason)
            return super().build()
        start = logger.process_clock(), logger.perf_counter()
        self.check_sanity()
        self.dump_flags()
        try:
            self._cderi = fitted_integrals(self.mol, auxmol)
        except (UnsupportedClass, CompilerError) as error:
            self.ran_on = f"PySCF: {error}"
            logger.warn(self, "density fitting is left to PySCF: %s", error)
            return super().build()
        self.auxmol, self.ran_on = auxmol, library.words()
        logger.timer(self, "density-fitting integrals", *start)
        return self

    def _left_to_pyscf(self, auxmol: gto.Mole) -> str:
        """Why the integrals are not to be made here; empty when they are."""
        if isinstance(self._cderi_to_save, str):
            return f"the integrals are to be saved in {self._cderi_to_save}"
        if self.mol.cart != auxmol.cart:
            return "orbitals and fitting functions are not both Cartesian or both spherical"
        room = self.max_memory - lib.current_memory()[0]
        needed = 8e-6 * self.mol.nao * (self.mol.nao + 1) // 2 * auxmol.nao
        if needed >= SHARE_OF_MEMORY * room:
            return f"the integrals need {needed:.0f} MB, of which {max(room, 0):.0f} MB are free below max_memory"
        return ""

    def get_jk(
        self,
        dm: Any,
        hermi: int = 1,
        with_j: bool = True,
        with_k: bool = True,
        direct_scf_tol: float = 1e-13,
        omega: float | None = None,
    ) -> tuple[Any, Any]:
        """J and K as PySCF's; orbitals tagged to dm (mo_coeff, mo_occ) are used for K."""
        if omega is not None:
            with self.range_coulomb(omega) as fitted:
                return fitted.get_jk(dm, hermi, with_j, with_k, direct_scf_tol)
        if with_k and self._cderi is None:
            self.build()
        if not isinstance(self._cderi, np.ndarray) or np.iscomplexobj(dm):
            return df_jk.get_jk(self, dm, hermi, with_j, with_k, direct_scf_tol)
        start = logger.process_clock(), logger.perf_counter()
        dms = np.asarray(dm, float)
        square = dms.reshape(-1, *dms.shape[-2:])
        vj = coulomb(self._cderi, square).reshape(dms.shape) if with_j else None
        vk = self._exchange(dm, square, hermi).reshape(dms.shape) if with_k else None
        logger.timer(self, "df vj and vk", *start)
        return vj, vk

    def _exchange(self, dm: Any, dms: np.ndarray, hermi: int) -> np.ndarray:
        nao = dms.shape[-1]
        width = self._width(nao)
        if getattr(dm, "mo_coeff", None) is not None:
            return np.stack([exchange_of_orbitals(self._cderi, c, width) for c in _occupied(dm, len(dms), nao)])
        if hermi == 1:
            return np.stack([exchange_of_symmetric(self._cderi, one, width) for one in dms])
        return np.stack([exchange(self._cderi, one, width) for one in dms])

    def _width(self, nao: int) -> int:
        """Auxiliary functions that are unpacked at once: the square, and as much again for what is made from it."""
        room = 1e6 * (self.max_memory - lib.current_memory()[0])
        return int(max(4, min(UNPACKED, SHARE_OF_MEMORY * room / (16 * nao**2))))


def _state(fitting: df.DF) -> dict[str, Any]:
    """What two kinds of DF object have in common; objects and tables of one kind are made anew."""
    return {name: v for name, v in fitting.__dict__.items() if name not in ("ran_on", "_rsh_df", "_vjopt")}


def fitted_integrals(mol: gto.Mole, auxmol: gto.Mole) -> np.ndarray:
    """L^-1 (P|ij) for the operator of mol, f64 [naux, nao (nao + 1) / 2], (P|Q) = L L^T.

    Where the metric has no Cholesky factor, U w^-1/2 takes the place of L^-T, of the eigenvalues above PySCF's
    threshold for linear dependence, so that rows are fewer. Raises UnsupportedClass, CompilerError.
    """
    metric = int2c2e(auxmol, omega=mol.omega)
    integrals = int3c2e(mol, auxmol, "s2ij").T
    try:
        lower = scipy.linalg.cholesky(metric, lower=True)
    except scipy.linalg.LinAlgError:
        w, u = scipy.linalg.eigh(metric)
        keep = w > LINEAR_DEP_THR
        logger.info(mol, "%d of %d fitting functions are linearly dependent", (~keep).sum(), len(w))
        return (u[:, keep] / np.sqrt(w[keep])).T @ integrals
    return solve_lower(lower, integrals)


def solve_lower(lower: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """L^-1 rows, in place: by blocks of rows, all products but for those on the diagonal. rows [n, m], C-contiguous."""
    lower = np.asfortranarray(lower)
    for begin in range(0, len(lower), ROWS):
        block = slice(begin, min(begin + ROWS, len(lower)))
        # The transpose of C-contiguous rows is what BLAS takes in place.
        right = rows[block].T
        if begin:
            right = dgemm(-1.0, rows[:begin].T, lower[block, :begin], 1.0, right, trans_b=True, overwrite_c=True)
        solved = dtrsm(1.0, lower[block, block], right, side=1, lower=1, trans_a=1, overwrite_b=True)
        assert np.shares_memory(solved, rows)
    return rows


def coulomb(cderi: np.ndarray, dms: np.ndarray) -> np.ndarray:
    """J [n, nao, nao] from rows cderi [naux, pairs] and densities [n, nao, nao]."""
    nao = dms.shape[-1]
    i, j = np.tril_indices(nao)
    both = (dms + dms.transpose(0, 2, 1))[:, i, j] * np.where(i == j, 0.5, 1.0)
    packed = np.zeros_like(both)
    for begin in range(0, len(cderi), UNPACKED):
        rows = cderi[begin : begin + UNPACKED]
        packed += (both @ rows.T) @ rows
    return lib.unpack_tril(packed)


def exchange_of_orbitals(cderi: np.ndarray, orbitals: np.ndarray, width: int) -> np.ndarray:
    """K [nao, nao] of the density C C^T, C [nao, nocc]: sum over Q and i of (Q|i mu) (Q|i nu), half of it computed."""
    nao, nocc = orbitals.shape
    k = np.zeros((nao, nao), order="F")
    left = np.ascontiguousarray(orbitals.T)
    square, half = np.empty((width, nao, nao)), np.empty((width, nocc, nao))
    for begin in range(0, len(cderi) if nocc else 0, width):
        rows = cderi[begin : begin + width]
        full = lib.unpack_tril(rows, out=square[: len(rows)])
        made = np.matmul(left, full, out=half[: len(rows)])
        k = dsyrk(1.0, made.reshape(-1, nao).T, 1.0, k, lower=1, overwrite_c=True)
    return np.tril(k) + np.tril(k, -1).T


def exchange_of_symmetric(cderi: np.ndarray, dm: np.ndarray, width: int) -> np.ndarray:
    """K [nao, nao] of a symmetric density, by its eigenvectors where these are fewer than half the functions."""
    w, c = np.linalg.eigh((dm + dm.T) / 2)
    large = np.abs(w) > NEGLIGIBLE * np.abs(w).max(initial=0.0)
    if 2 * large.sum() > len(w):
        return exchange(cderi, dm, width)
    plus, minus = (c[:, part] * np.sqrt(np.abs(w[part])) for part in (large & (w > 0), large & (w < 0)))
    return exchange_of_orbitals(cderi, plus, width) - exchange_of_orbitals(cderi, minus, width)


def exchange(cderi: np.ndarray, dm: np.ndarray, width: int) -> np.ndarray:
    """K [nao, nao] of any real density [nao, nao]: sum over Q of (Q|mu la) D[la, si] (Q|si nu)."""
    nao = len(dm)
    k = np.zeros((nao, nao))
    left = np.ascontiguousarray(dm.T)
    square, half = np.empty((width, nao, nao)), np.empty((width, nao, nao))
    for begin in range(0, len(cderi), width):
        rows = cderi[begin : begin + width]
        full = lib.unpack_tril(rows, out=square[: len(rows)])
        made = np.matmul(left, full, out=half[: len(rows)])
        k += made.reshape(-1, nao).T @ full.reshape(-1, nao)
    return k


def _occupied(dm: Any, count: int, nao: int) -> list[np.ndarray]:
    """Occupied orbitals times the root of their occupation, for each of `count` densities; for ROHF by spin."""
    coefficients = np.asarray(dm.mo_coeff).reshape(-1, nao, np.shape(dm.mo_coeff)[-1])
    occupations = np.asarray(dm.mo_occ).reshape(-1, coefficients.shape[-1])
    if 2 * len(occupations) == count:
        occupations = np.concatenate([occupations > 0, occupations == 2]).astype(float)
        coefficients = np.concatenate([coefficients, coefficients])
    return [c[:, n > 0] * np.sqrt(n[n > 0]) for c, n in zip(coefficients, occupations)]
