"""How an accelerated SCF object computes J and K: which kernels, from which integrals, and when PySCF's.

densities -> K on a grid (exchange.py) | fitted integrals (fitting/) | integrals in memory | direct (jk/) -> J, K

Fitted and direct J and K are computed by all ranks of a job if `shared` is attached (shared/).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from pyscf import gto, lib, scf
from pyscf.df.df_jk import _DFHF
from pyscf.lib import logger

from trnqc.eri.api import builder
from trnqc.eri.compiled import background
from trnqc.eri.fitting import on_device
from trnqc.eri.fitting.tagged import has_orbitals
from trnqc.eri.fitting.transitions import tagged
from trnqc.eri.integrals import int2e
from trnqc.eri.jk.builder import JKBuilder
from trnqc.eri.operators import signed_omega
from trnqc.eri.prepare import needs
from trnqc.eri.seminumerical.exchange import LEVEL, SeminumericalExchange
from trnqc.errors import MemoryLimit, UnsupportedError
from trnqc.host.overrides import users_method
from trnqc.pyscf import exchange as exchange_methods
from trnqc.pyscf.density_fitting import DF
from trnqc.pyscf.early.screening import EarlyScreening
from trnqc.pyscf.jk_time import seconds_of_jk
from trnqc.pyscf.molecule_cache import MoleculeCache, Timings, is_covered
from trnqc.pyscf.shared.builders import SharedBuilder
from trnqc.pyscf.shared.fitting import SpreadDF
from trnqc.pyscf.shared.work import SharedWork

# J and K by PySCF for whose time a job compiles quick forms of kernels at most: an SCF takes about as many.
WORTH = 8
# The classes that can be accelerated, with their subclasses ROHF, RKS, UKS and ROKS.
COVERED = (scf.hf.RHF, scf.uhf.UHF)


class CoulombExchange(lib.StreamObject):
    """The part of the layer of `accelerate` that computes J and K of densities."""

    backend: str
    kernels: str
    exchange: str | None
    ran_on: str
    timings: Timings
    mol: gto.Mole
    _cache: MoleculeCache
    _early_grid: exchange_methods.EarlyGrid | None = None
    _screening: EarlyScreening | None = None
    _eri: Any
    # The ranks that compute J and K together with this process.
    _shared: SharedWork | None = None

    @property
    def _program_backend(self) -> str:
        """Where generated programs run. Backends that compute J and K from fitted integrals have no such programs."""
        return "cpu" if self.backend in on_device.BACKENDS else self.backend

    def _own_fitting(self) -> DF | None:
        """Return the density-fitting object if it is ours."""
        fitting = self.with_df if isinstance(self, _DFHF) else None
        return fitting if type(fitting) in (DF, SpreadDF) else None

    def _built_fitting(self, with_k: bool = True) -> DF | None:
        """Return our density-fitting object, or None. Its integrals are computed if K or J can use them.

        J alone uses them if they fit into memory. Computing them once takes about as long as two J without them.
        """
        fitting = self._own_fitting()
        if fitting and not fitting.is_computed() and (with_k or fitting.fits_into_memory()):
            with self.timings.measure("fitted integrals"):
                fitting.compute()
        return fitting

    def _jk(
        self, mol: gto.Mole | None, dm: Any, hermi: int, with_j: bool, with_k: bool, omega: float | None
    ) -> tuple[Any, Any]:
        mol = self.mol if mol is None else mol
        dm = self.make_rdm1() if dm is None else dm
        if not isinstance(self, COVERED):
            # PySCF's converters, such as scf.addons.convert_to_ghf, change the class below this layer.
            self._leave_to_pyscf("generalised (two-component) orbitals are beyond trnqc's J and K")
            return super().get_jk(mol, dm, hermi, with_j, with_k, omega)
        if users := self._users_jk():
            self._leave(users)
            return super().get_jk(mol, dm, hermi, with_j, with_k, omega)
        if with_k and self._on_grid(mol):
            return self._seminumerical_jk(mol, dm, hermi, with_j, omega)
        if not (isinstance(self, _DFHF) and self.with_df):
            return self._four_centre_jk(mol, dm, hermi, with_j, with_k, omega)
        fitted_k = with_k and not self.only_dfj and self.exchange != "direct"
        vj, vk = None, None
        if with_j or fitted_k:
            shown = self._with_occupied(dm) if fitted_k else dm
            vj, vk = super().get_jk(mol, shown, hermi, with_j, fitted_k, omega)
            self.ran_on = getattr(self.with_df, "ran_on", "PySCF")
        if with_k and not fitted_k:
            vk = self._four_centre_jk(mol, dm, hermi, False, True, omega)[1]
        return vj, vk

    def _with_occupied(self, dm: Any) -> Any:
        """Return a density that is no SCF's with the occupied orbitals, since it may be between these and others.

        Response and transition densities are.
        """
        coefficients, occupations = self.mo_coeff, self.mo_occ
        if has_orbitals(dm) or coefficients is None or occupations is None or np.iscomplexobj(dm):
            return dm
        nao, nmo = np.shape(coefficients)[-2:]
        if np.shape(dm)[-2:] != (nao, nao) or np.iscomplexobj(coefficients):
            return dm
        sets = zip(np.reshape(coefficients, (-1, nao, nmo)), np.reshape(occupations, (-1, nmo)))
        return tagged(dm, [c[:, n > 0] for c, n in sets if (n > 0).any()])

    def _users_jk(self) -> str:
        """Return in words which method of the user computes J and K, or exact K beside a fitted J, or ""."""
        fitted = isinstance(self, _DFHF)
        exact = not fitted or not self.with_df or self.only_dfj
        return users_method(self, "get_jk", below=CoulombExchange) or (
            users_method(self, "get_jk", below=_DFHF) if fitted and exact else ""
        )

    def _on_grid(self, mol: gto.Mole) -> bool:
        """Return whether K is computed on a grid."""
        covered = isinstance(self, COVERED)
        choose = exchange_methods.is_seminumerical
        return covered and self._cache.get(mol, "on a grid", lambda: choose(self, mol, self.exchange))

    def _seminumerical_jk(
        self, mol: gto.Mole, dm: Any, hermi: int, with_j: bool, omega: float | None
    ) -> tuple[Any, np.ndarray]:
        """Return J as without seminumerical exchange, or None, and K on a grid."""
        vj = self._jk(mol, dm, hermi, True, False, omega)[0] if with_j else None
        own = self.exchange_on_grid(mol, omega, self._early_grid.level if self._early_grid else LEVEL)
        start = logger.process_clock(), logger.perf_counter()
        vk = own.get_k(dm, hermi)
        logger.timer(self, "vk on a grid", *start)
        self.ran_on = own.ran_on + (f"; J by {self.ran_on}" if with_j else "")
        return vj, vk

    def exchange_on_grid(
        self, mol: gto.Mole, omega: float | None, level: int = LEVEL, derivative: bool = False
    ) -> SeminumericalExchange:
        """Return the object that computes K on a grid; derivative: whether its gradient is wanted."""
        signed = signed_omega(mol, omega)
        own = self._cache.get(mol, ("K on a grid", signed, level), lambda: SeminumericalExchange(mol, signed, level))
        check = exchange_methods.check_programs
        self._cache.get(mol, ("checked", signed, derivative), lambda: check(own, self.kernels, derivative))
        return own

    def _leave_to_pyscf(self, reason: str) -> None:
        """Say in `ran_on`, and once in the log, why PySCF computes J and K."""
        self._leave(f"PySCF: {reason}")

    def _leave(self, source: str) -> None:
        """Say in `ran_on`, and once in the log, which code computes J and K in our place."""
        if self.ran_on != source:
            logger.note(self, "J and K are left to %s", source)
        self.ran_on = source

    def _four_centre_jk(
        self, mol: gto.Mole, dm: Any, hermi: int, with_j: bool, with_k: bool, omega: float | None
    ) -> tuple[Any, Any]:
        if not omega and (self._eri is not None or self._is_for_memory(mol)):
            if self._eri is None:
                pyscf = self._by_pyscf(mol, "memory", lambda: needs.for_memory(mol))
                self._eri = mol.intor("int2e", aosym="s8") if pyscf else int2e(mol, aosym="s8")
                self.ran_on = f"all integrals in memory, by {pyscf or 'generated kernels'}"
            return _from_memory(self._eri, dm, hermi, with_j, with_k)
        signed = signed_omega(mol, omega)
        purpose = signed, with_j, with_k
        pyscf = self._by_pyscf(
            mol,
            purpose,
            lambda: needs.for_jk(mol, signed, with_j, with_k),
            lambda: WORTH * self._cache.get(mol, "seconds by PySCF", lambda: seconds_of_jk(mol)),
        )
        if pyscf:
            self.ran_on = pyscf
            self._cache.get(mol, "builds by PySCF", list).append(pyscf)
            return scf.hf.SCF.get_jk(self, mol, dm, hermi, with_j, with_k, omega)
        start = logger.process_clock(), logger.perf_counter()
        key = ("direct", signed, self.direct_scf_tol)
        own = self._cache.get(mol, key, lambda: self._builder(mol, omega))
        early = self._screening.take() if self._screening else None
        try:
            matrices = own.get_jk(dm, hermi, with_j, with_k, *([early] if early else []))
        except MemoryLimit as error:
            if self._program_backend not in ("auto", "cpu"):
                raise
            self._leave_to_pyscf(str(error))
            return scf.hf.SCF.get_jk(self, mol, dm, hermi, with_j, with_k, omega)
        if own.quick_kernels:
            self._cache.get(mol, "builds by quick kernels", list).append(own.ran_on)
        self.ran_on = own.ran_on + self._earlier(mol, bool(own.quick_kernels))
        logger.timer(self, "vj and vk", *start)
        return matrices

    def _earlier(self, mol: gto.Mole, quick: bool) -> str:
        """Return in words what computed earlier J and K. quick: whether the last ones had quick kernels."""
        theirs, ours = (len(self._cache.get(mol, f"builds by {who}", list)) for who in ("PySCF", "quick kernels"))
        words = [f"the first {theirs} J and K by PySCF"] * bool(theirs)
        if ours and not quick:
            words.append(f"{'then' if theirs else 'the first'} {ours} with quick kernels")
        return f" ({', '.join(words)})" if words else ""

    def _by_pyscf(
        self,
        mol: gto.Mole,
        purpose: Any,
        programs: Callable[[], needs.Programs],
        patience: Callable[[], float] = lambda: 0.0,
    ) -> str:
        """Return a description of the code that replaces our kernels now, or "" if our kernels are to be used.

        patience: as for `Needed.ready`.
        """
        if not self._cache.get(mol, "covered", lambda: is_covered(mol)):
            return "PySCF"
        if self._program_backend not in ("auto", "cpu"):  # A device compiles its own when it needs them.
            return ""
        needed = self._cache.get(mol, ("needed", purpose), lambda: background.Needed(programs, self.kernels))
        return "" if needed.ready(patience) else f"PySCF ({needed.reason})"

    def _place(self) -> Any:
        """Return the GPU on which all matrices of an SCF can stay.

        Raises BackendUnavailable, or UnsupportedError if the GPU does not compute all J and K.
        """
        from trnqc.eri.cuda.scf.matrices import ScfDevice

        mol = self.mol
        if self._on_grid(mol) or not self._cache.get(mol, "covered", lambda: is_covered(mol)):
            raise UnsupportedError("J and K are not computed on the GPU alone")
        signed = signed_omega(mol, None)
        key = ("direct", signed, self.direct_scf_tol)
        own: Any = self._cache.get(mol, key, lambda: self._builder(mol, None))
        if len(own.devices) > 1:
            raise UnsupportedError(f"{len(own.devices)} GPUs share J and K")
        return self._cache.get(mol, ("place", *key), lambda: ScfDevice.of(own))

    def _is_for_memory(self, mol: gto.Mole) -> bool:
        """Return whether integrals are kept in memory: by PySCF's rule, but not for a device that was asked for."""
        return self._program_backend in ("auto", "cpu") and (mol.incore_anyway or self._is_mem_enough())

    def _builder(self, mol: gto.Mole, omega: float | None) -> Any:
        make = builder(self._program_backend)
        signed, tolerance = signed_omega(mol, omega), self.direct_scf_tol
        if self._shared and make is JKBuilder:
            return SharedBuilder(self._shared, mol, (signed, tolerance))
        if make is JKBuilder:
            return JKBuilder(mol, omega=signed, cutoff=tolerance, quick=self.kernels != "wait")
        return make(mol, omega=signed, cutoff=tolerance)


def _from_memory(eri: np.ndarray, dm: Any, hermi: int, with_j: bool, with_k: bool) -> tuple[Any, Any]:
    """Compute J and K from integrals in memory by PySCF's products.

    This also covers an empty stack of densities, for which PySCF raises an IndexError, and complex densities in single
    precision, of which it takes the real part.
    """
    dm = np.asarray(dm, np.complex128) if np.iscomplexobj(dm) else np.asarray(dm)
    if not dm.size:
        return (dm.copy() if with_j else None), (dm.copy() if with_k else None)
    return scf.hf.dot_eri_dm(eri, dm, hermi, with_j, with_k)
