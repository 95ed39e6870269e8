"""Density fitting in the shape of PySCF's DF object: three-centre integrals by our kernels, J and K by large products.

(P|ij), (P|Q) = L L^T -> L^-1 (P|ij), in place -> _cderi -> J and K (fitted_jk.py)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from pyscf import df, gto, lib
from pyscf.df import df_jk
from pyscf.df.incore import LINEAR_DEP_THR
from pyscf.lib import logger
from scipy.linalg.blas import dgemm, dtrsm

from trnqc.eri.fitting import jk
from trnqc.eri.fitting.workers import workers
from trnqc.eri.integrals import int2c2e, int3c2e
from trnqc.eri.library import background, needs, programs
from trnqc.errors import CompilerError, InputError, UnsupportedClass
from trnqc.ranks import ALONE, Ranks

# Rows of L that are solved for at once: large enough for products, small against the metric.
ROWS = 256
# Columns that one thread solves for at a time, at the least: they stay near it, and are many enough for products.
COLUMNS = 2048
SHARE_OF_MEMORY = 0.9


class DF(df.DF):
    """PySCF's DF with integrals of our kernels, and J and K by BLAS; results as PySCF's to rounding.

    Where the fitted integrals do not fit into max_memory, are to be saved (_cderi_to_save), or lie beyond our kernels,
    PySCF makes them as it does, on disk if need be; ``ran_on`` says in words who did, and a log line why. kernels: as
    in `trnqc.accelerate`; by default they are compiled when they are first needed.
    """

    _keys = frozenset({"kernels", "ran_on"})
    _cderi: Any
    auxmol: Any

    def __init__(self, mol: gto.Mole, auxbasis: Any = None, kernels: str = "wait") -> None:
        super().__init__(mol, auxbasis)
        self.kernels, self.ran_on = background.chosen(kernels), "nothing yet"

    @classmethod
    def of(cls, other: df.DF, kernels: str = "wait") -> DF:
        """The same density fitting as another DF object's, with its integrals where it has some."""
        new = cls(other.mol, kernels=kernels)
        new.__dict__.update(_state(other))
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
        start = logger.process_clock(), logger.perf_counter()
        try:
            if reason := self._left_to_pyscf(auxmol) or self._waiting(auxmol):
                self.ran_on = f"PySCF: {reason}"
                logger.note(self, "density fitting is left to PySCF: %s", reason)
                return super().build()
            self.check_sanity()
            self.dump_flags()
            self._cderi = fitted_integrals(self.mol, auxmol)
        except (UnsupportedClass, CompilerError) as error:
            self.ran_on = f"PySCF: {error}"
            logger.warn(self, "density fitting is left to PySCF: %s", error)
            return super().build()
        self.auxmol, self.ran_on = auxmol, programs.words()
        logger.timer(self, "density-fitting integrals", *start)
        return self

    def _waiting(self, auxmol: gto.Mole) -> str:
        """Why our kernels are not to be used yet; empty when they are. Raises UnsupportedClass, CompilerError."""
        if self.kernels == "wait":
            return ""
        needed = background.Needed(needs.for_fitting(self.mol, auxmol), self.kernels)
        return "" if needed.ready() else needed.reason

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
        """J and K as PySCF's, whatever `hermi` says; orbitals tagged to dm (mo_coeff, mo_occ) are used for K."""
        if omega is not None:
            with self.range_coulomb(omega) as fitted:
                return fitted.get_jk(dm, hermi, with_j, with_k, direct_scf_tol)
        if with_k and self._cderi is None:
            self.build()
        if not isinstance(self._cderi, np.ndarray) or np.iscomplexobj(dm):
            return df_jk.get_jk(self, dm, hermi, with_j, with_k, direct_scf_tol)
        start = logger.process_clock(), logger.perf_counter()
        dms = np.asarray(dm, float)
        nao = self.mol.nao
        if dms.shape[-2:] != (nao, nao):
            raise InputError(f"dm is [{nao}, {nao}] or [..., {nao}, {nao}] for this molecule, found {dms.shape}")
        square = dms.reshape(-1, *dms.shape[-2:])
        norms = self.__dict__.setdefault("_norms", jk.Norms())(self._cderi)
        vj = jk.coulomb(self._cderi, square, norms).reshape(dms.shape) if with_j else None
        vk = exchange_of(self._cderi, dm, square, norms, self._room()).reshape(dms.shape) if with_k else None
        logger.timer(self, "df vj and vk", *start)
        return vj, vk

    def _room(self) -> float:
        return SHARE_OF_MEMORY * 1e6 * max(self.max_memory - lib.current_memory()[0], 0)


def exchange_of(
    rows: np.ndarray, dm: Any, dms: np.ndarray, norms: np.ndarray, room: float, ranks: Ranks = ALONE
) -> np.ndarray:
    """K [n, nao, nao] of densities dms [n, nao, nao], which are dm without its tags, from rows of fitted integrals.

    norms, room and ranks as in `fitted_jk`.
    """
    if getattr(dm, "mo_coeff", None) is not None:
        orbitals = _occupied(dm, len(dms), dms.shape[-1])
        return np.array([jk.exchange_of_orbitals(rows, c, norms, room, ranks) for c in orbitals])
    return np.array([jk.exchange(rows, one, norms, room, ranks) for one in dms])


def _state(fitting: df.DF) -> dict[str, Any]:
    """What two kinds of DF object have in common; objects and tables of one kind are made anew."""
    own = ("kernels", "ran_on", "_rsh_df", "_vjopt")
    return {name: v for name, v in fitting.__dict__.items() if name not in own}


def fitted_integrals(mol: gto.Mole, auxmol: gto.Mole) -> np.ndarray:
    """L^-1 (P|ij) for the operator of mol, f64 [naux, nao (nao + 1) / 2], (P|Q) = L L^T.

    The bits do not depend on the number of threads. Raises UnsupportedClass, CompilerError.
    """
    fit = Fit.of(mol, auxmol)
    return fit.divide_out(int3c2e(mol, auxmol, "s2ij").T, columns_of(mol, shell_blocks(mol)))


@dataclass(frozen=True, eq=False)
class Fit:
    """What divides the metric out of integrals: L or, where it has no Cholesky factor, U w^-1/2.

    In the second case only eigenvalues w above PySCF's threshold for linear dependence are kept, and rows are fewer.
    """

    matrix: np.ndarray
    is_lower: bool

    @classmethod
    def of(cls, mol: gto.Mole, auxmol: gto.Mole) -> Fit:
        # Several threads write (P|Q) and (Q|P) to one place in any order, and LAPACK's bits depend on its threads.
        metric = int2c2e(auxmol, omega=mol.omega, threads=1)
        with workers(1):
            try:
                return cls(np.asfortranarray(scipy.linalg.cholesky(metric, lower=True)), True)
            except scipy.linalg.LinAlgError:
                w, u = scipy.linalg.eigh(metric)
        keep = w > LINEAR_DEP_THR
        logger.info(mol, "%d of %d fitting functions are linearly dependent", (~keep).sum(), len(w))
        return cls(u[:, keep] / np.sqrt(w[keep]), False)

    @property
    def naux(self) -> int:
        return self.matrix.shape[1]

    def divide_out(self, integrals: np.ndarray, columns: Sequence[tuple[int, int]]) -> np.ndarray:
        """Fitted rows in the place of (P|ij) [naux, pairs], one range of columns a task."""

        def work(part: tuple[int, int]) -> None:
            block = np.ascontiguousarray(integrals[:, slice(*part)])
            made = solve_lower(self.matrix, block) if self.is_lower else self.matrix.T @ block
            integrals[: self.naux, slice(*part)] = made

        with workers(lib.num_threads()) as pool:
            list(pool.map(work, columns))
        return integrals[: self.naux]


def shell_blocks(mol: gto.Mole) -> list[tuple[int, int]]:
    """Ranges of shells i that have about COLUMNS pairs ij with i >= j: the same for any number of threads and ranks."""
    loc = mol.ao_loc_nr().astype(int)
    first, found = 0, []
    for last in range(1, mol.nbas + 1):
        if last == mol.nbas or _pairs(loc[last]) - _pairs(loc[first]) >= COLUMNS:
            found.append((first, last))
            first = last
    return found


def columns_of(mol: gto.Mole, blocks: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Their packed pairs, counted from the first of all of them."""
    loc = mol.ao_loc_nr().astype(int)
    start = _pairs(loc[blocks[0][0]]) if blocks else 0
    return [(_pairs(loc[a]) - start, _pairs(loc[b]) - start) for a, b in blocks]


def _pairs(n: int) -> int:
    return int(n * (n + 1) // 2)


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


def _occupied(dm: Any, count: int, nao: int) -> list[np.ndarray]:
    """Occupied orbitals times the root of their occupation, for each of `count` densities; for ROHF by spin."""
    coefficients = np.asarray(dm.mo_coeff).reshape(-1, nao, np.shape(dm.mo_coeff)[-1])
    occupations = np.asarray(dm.mo_occ).reshape(-1, coefficients.shape[-1])
    if 2 * len(occupations) == count:
        occupations = np.concatenate([occupations > 0, occupations == 2]).astype(float)
        coefficients = np.concatenate([coefficients, coefficients])
    return [c[:, n > 0] * np.sqrt(n[n > 0]) for c, n in zip(coefficients, occupations)]
