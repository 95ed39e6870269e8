"""Density fitting in the shape of PySCF's DF object: three-centre integrals by our kernels, J and K by BLAS.

molecule, fitting set -> fitted integrals in _cderi (fitted_integrals.py, or integrals_to_file.py) -> J and K (jk.py)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from pyscf import df, gto, lib
from pyscf.df import df_jk
from pyscf.lib import logger

from trnqc.eri.compiled import background, programs
from trnqc.eri.fitting import half_transform, jk
from trnqc.eri.fitting.file_rows import opened
from trnqc.eri.fitting.fitted_integrals import fitted_integrals
from trnqc.eri.fitting.integrals_to_file import write_fitted_integrals
from trnqc.eri.fitting.rounded import HostProducts, ReducedProducts, RoundedJK
from trnqc.eri.fitting.tagged import fitted_jk, has_orbitals
from trnqc.eri.prepare import needs
from trnqc.errors import CompilerError, InputError, StorageError, UnsupportedClass
from trnqc.fitted.memory import memory_left
from trnqc.host.memory import gigabytes
from trnqc.host.overrides import users_method


class DF(df.DF):
    """PySCF's DF object with integrals by our kernels, and J and K by BLAS. Results agree with PySCF's to rounding.

    Integrals that do not fit into max_memory, or are to be saved (_cderi_to_save), are written to a file, from which J
    and K are computed block by block. PySCF computes integrals that are beyond our kernels. Where kernels are not
    compiled yet or cannot be compiled, PySCF takes their place too. ``ran_on`` says who did what, and the log why.

    Parameters
    ----------
    mol, auxbasis
        As for PySCF's object.
    kernels
        What happens while kernels are not compiled yet, as in `trnqc.accelerate`. By default they are compiled first.
    """

    _keys = frozenset({"kernels", "ran_on"})
    _cderi: Any
    auxmol: Any
    rounded: RoundedJK | None = None
    # The precision of J and K of densities without orbitals, np.float64 or np.float32.
    response_precision: type[np.floating] = np.float64

    def __init__(self, mol: gto.Mole, auxbasis: Any = None, kernels: str = "wait") -> None:
        super().__init__(mol, auxbasis)
        self.kernels, self.ran_on = background.chosen(kernels), "nothing yet"

    @classmethod
    def of(cls, other: df.DF, kernels: str = "wait") -> DF:
        """Return an object with the state of another DF object, integrals included."""
        new = cls(other.mol, kernels=kernels)
        new.__dict__.update(_state(other))
        return new

    def undo(self) -> df.DF:
        """Return PySCF's object with the state of this one."""
        plain = df.DF(self.mol)
        plain.__dict__.update(_state(self))
        return plain

    def reset(self, mol: gto.Mole | None = None) -> DF:
        """Forget the integrals. PySCF resets a copy of this object for range-separated integrals."""
        self.rounded = None
        return super().reset(mol)

    def is_computed(self) -> bool:
        """Return whether J and K can be computed without computing integrals."""
        return self._cderi is not None

    def compute(self) -> None:
        """Compute the fitted integrals for J and K."""
        self.build()

    def build(self) -> DF:
        """Compute the fitted integrals into ``_cderi``: an array [naux, nao (nao + 1) / 2], or a file. Raises
        StorageError if the file cannot be written.
        """
        if self._cderi is not None and self.auxmol is None:
            return super().build()
        self.__dict__.pop("_file_norms", None)  # A file that is written again has other integrals.
        auxmol = df.addons.make_auxmol(self.mol, self.auxbasis)
        start = logger.process_clock(), logger.perf_counter()
        try:
            if reason := self._why_pyscf(auxmol) or self._why_not_yet(auxmol):
                self.ran_on = f"PySCF: {reason}"
                logger.note(self, "density-fitting integrals are left to PySCF: %s", reason)
                return self._built_by_pyscf()
            self.check_sanity()
            self.dump_flags()
            if reason := self._why_file(auxmol):
                self._write(auxmol)
            else:
                self._cderi = fitted_integrals(self.mol, auxmol)
        except (UnsupportedClass, CompilerError) as error:
            self.ran_on = f"PySCF: {error}"
            logger.warn(self, "density-fitting integrals are left to PySCF: %s", error)
            return self._built_by_pyscf()
        self.auxmol, self.ran_on = auxmol, programs.words() + (reason and f"; {reason}")
        logger.timer(self, "density-fitting integrals", *start)
        return self

    def _write(self, auxmol: gto.Mole) -> None:
        """Compute the fitted integrals into the user's file or a temporary one."""
        with self._storage_errors(), ExitStack() as failing:
            file: Any = self._cderi_to_save
            if file is None:
                file = failing.enter_context(lib.NamedTemporaryFile(dir=lib.param.TMPDIR))
            path = Path(getattr(file, "name", file))
            logger.info(self, "fitted integrals are written to %s", path)
            room = memory_left(self.max_memory)
            norms = write_fitted_integrals(self.mol, auxmol, path, self._dataname, room)
            failing.pop_all()
        self._cderi, self._file_norms = file, (file, lib.unpack_tril(norms))

    def _built_by_pyscf(self) -> DF:
        with self._storage_errors():
            return super().build()

    @contextmanager
    def _storage_errors(self) -> Iterator[None]:
        """A context in which errors of files become a StorageError that says what to do."""
        try:
            yield
        except OSError as error:
            file, reason = self._cderi_to_save or lib.param.TMPDIR, error.__cause__ or error
            raise StorageError(
                f"the fitted integrals cannot be written to {getattr(file, 'name', file)} ({reason}): free space "
                "there, set $PYSCF_TMPDIR or _cderi_to_save to another place, or raise max_memory"
            ) from error

    def _why_not_yet(self, auxmol: gto.Mole) -> str:
        """Return why our kernels cannot be used yet, or "". Raises UnsupportedClass, CompilerError."""
        if self.kernels == "wait":
            return ""
        needed = background.Needed(lambda: needs.for_fitting(self.mol, auxmol), self.kernels)
        return "" if needed.ready() else needed.reason

    def _can_transform(self) -> bool:
        """Return whether the program of J and K can be used now. Without a C compiler PySCF computes them."""
        return background.Needed(lambda: [half_transform.recipe("f64")], self.kernels).ready()

    def _why_pyscf(self, auxmol: gto.Mole) -> str:
        """Return why PySCF has to compute the integrals, or ""."""
        if self.mol.cart != auxmol.cart:
            return "orbitals and fitting functions are not both Cartesian or both spherical"
        return ""

    def _why_file(self, auxmol: gto.Mole) -> str:
        """Return why the integrals are written to a file, or ""."""
        if isinstance(self._cderi_to_save, str):
            return f"the integrals are saved in {self._cderi_to_save}"
        needed, left = 8 * self.mol.nao * (self.mol.nao + 1) // 2 * auxmol.nao, memory_left(self.max_memory)
        if needed >= left:
            return f"the integrals are in a file: they need {gigabytes(needed)}, max_memory leaves {gigabytes(left)}"
        return ""

    def fits_into_memory(self) -> bool:
        """Return whether our kernels can compute the integrals, and max_memory leaves room for them."""
        auxmol = df.addons.make_auxmol(self.mol, self.auxbasis)
        return not (self._why_pyscf(auxmol) or self._why_file(auxmol))

    def get_jk(
        self,
        dm: Any,
        hermi: int = 1,
        with_j: bool = True,
        with_k: bool = True,
        direct_scf_tol: float = 1e-13,
        omega: float | None = None,
    ) -> tuple[Any, Any]:
        """Compute J and K, as PySCF does, for any `hermi`. Orbitals in tags of dm (mo_coeff, mo_occ) are used for K."""
        if omega is not None:
            with self.range_coulomb(omega) as fitted:
                fitted.response_precision = self.response_precision
                return fitted.get_jk(dm, hermi, with_j, with_k, direct_scf_tol)
        if with_k and self._cderi is None:
            self.build()
        rounded = self.rounded if with_k and has_orbitals(dm) else None
        users = users_method(self, "loop")  # PySCF's J and K read the integrals through it.
        if users or self._cderi is None or np.iscomplexobj(dm) or not (rounded or self._can_transform()):
            return df_jk.get_jk(self, dm, hermi, with_j, with_k, direct_scf_tol)
        start = logger.process_clock(), logger.perf_counter()
        dms = np.asarray(dm, float)
        nao = self.mol.nao
        if dms.shape[-2:] != (nao, nao):
            raise InputError(f"dm is [{nao}, {nao}] or [..., {nao}, {nao}] for this molecule, found {dms.shape}")
        try:
            vj, vk = self._jk(dm, with_j, with_k, rounded)
        except jk.BoundExceeded:
            # The integrals were edited in place. Norms of what they are now bound all sums.
            self._forget_norms()
            vj, vk = self._jk(dm, with_j, with_k, rounded)
        logger.timer(self, "df vj and vk", *start)
        return vj, vk

    def _jk(self, dm: Any, with_j: bool, with_k: bool, rounded: RoundedJK | None) -> tuple[Any, Any]:
        room = memory_left(self.max_memory)
        if rounded:
            return rounded(dm, self._norms_of(rounded.rows), with_j, room)
        with self._rows() as rows:
            norms = self._norms_of(rows)
            return fitted_jk(rows, dm, norms, with_j, with_k, room, precision=self.response_precision)

    @contextmanager
    def _rows(self) -> Iterator[jk.Rows]:
        """A context with the fitted integrals, in memory or in a file."""
        if isinstance(self._cderi, np.ndarray):
            yield self._cderi
            return
        if "J and K" not in self.ran_on:
            self.ran_on += f"; J and K from a file by {programs.words()}"
        with opened(self._cderi, self._dataname) as rows:
            yield rows

    def _forget_norms(self) -> None:
        for name in ("_norms", "_file_norms"):
            self.__dict__.pop(name, None)

    def _norms_of(self, rows: jk.Rows) -> np.ndarray:
        if isinstance(rows, np.ndarray):
            norms: jk.Norms = self.__dict__.setdefault("_norms", jk.Norms())
            return norms(rows)
        if self.__dict__.get("_file_norms", (None,))[0] is not self._cderi:
            self._file_norms = self._cderi, lib.unpack_tril(rows.norms())
        return np.asarray(self._file_norms[1])

    @contextmanager
    def reduced_precision(
        self, products: Callable[[Any], ReducedProducts] = HostProducts
    ) -> Iterator[RoundedJK | None]:
        """A context in which J and K of densities with orbitals are computed in less than double precision.

        `products` is called with the fitted integrals and returns what computes J and K, by default in single precision
        on the host, which reads integrals from a file too. The context yields a RoundedJK; or None if a device would
        have to read them, or if the program for products of the host is missing. J and K are then as outside of the
        context.
        """
        if self._cderi is None:
            self.build()
        on_host, in_memory = products is HostProducts, isinstance(self._cderi, np.ndarray)
        if not (self._can_transform() if on_host else in_memory):
            yield None
            return
        with self._rows() as rows:
            self.rounded = RoundedJK(rows, products(rows))
            try:
                yield self.rounded
            finally:
                self.rounded = None


def _state(fitting: df.DF) -> dict[str, Any]:
    """Return the attributes that PySCF's and our objects share. Tables that depend on the class are left out."""
    own = ("kernels", "ran_on", "_rsh_df", "_vjopt", "rounded", "response_precision", "_norms", "_file_norms")
    return {name: v for name, v in fitting.__dict__.items() if name not in own}
