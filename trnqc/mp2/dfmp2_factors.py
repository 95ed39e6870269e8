"""The orbitals and factors of a DF-MP2 method object.

mf -> active orbitals, auxiliary basis -> checkpoint, scratch or memory -> build_spin_factors
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from pyscf import gto, lib

from trnqc.errors import InputError, UnsupportedError
from trnqc.host.memory import memory_limit
from trnqc.host.overrides import users_method
from trnqc.host.threads import thread_count
from trnqc.mp2.density.sets import LEAST_GAP, PairMemory, least_width
from trnqc.mp2.execution import Execution, Progress, choose
from trnqc.mp2.factors.auxiliary_basis import AuxiliaryBasis, auxiliary_basis
from trnqc.mp2.factors.build import build_spin_factors
from trnqc.mp2.factors.factors import Factors, SpinFactors
from trnqc.mp2.factors.ovl import factors_of_ovl, save_ovl
from trnqc.mp2.jobs.checkpoint import Checkpoint, job_of
from trnqc.mp2.pairs.pairs import pair_step_bytes
from trnqc.mp2.reference.orbitals import ActiveOrbitals, SpinFrozen, correlated_orbitals, kind_of_reference
from trnqc.mp2.reference.semicanonical import fock_matrices, semicanonical_orbitals
from trnqc.mp2.scf.hartree_fock import jk_ran_on
from trnqc.mp2.storage.store import Scratch, Store
from trnqc.ranks import Ranks


class FactorSteps:
    """The part of `trnqc.DFMP2` that selects the orbitals and computes the factors."""

    _scf: Any
    mol: gto.Mole
    mo_coeff: Any
    mo_energy: Any
    mo_occ: Any
    frozen: SpinFrozen
    with_df: Any
    precision: str | None
    backend: str
    max_memory: float
    fused: bool
    threads: int | None
    progress: Progress | None
    checkpoint: str | Path | None
    ranks: Ranks
    schedule: str
    force_outcore: bool
    _scf_settings: dict[str, Any]
    _fock: np.ndarray | None

    @property
    def auxbasis(self) -> str | dict[str, Any] | None:
        """The auxiliary basis, which is that of `with_df`; None for the RI set of the orbital basis."""
        return self.with_df.auxbasis

    @auxbasis.setter
    def auxbasis(self, auxbasis: str | dict[str, Any] | None) -> None:
        self.with_df.auxbasis = auxbasis

    @property
    def nmo(self) -> int | tuple[int, int]:
        """Number of active orbitals, which is PySCF's meaning of nmo."""
        return _by_spin([spin.nocc + spin.nvir for spin in self.orbitals()])

    @property
    def nocc(self) -> int | tuple[int, int]:
        """Number of active occupied orbitals."""
        return _by_spin([spin.nocc for spin in self.orbitals()])

    def orbitals(self) -> tuple[ActiveOrbitals, ...]:
        """The correlated orbitals of a closed shell, or of alpha and beta spin."""
        return self._orbitals_and_singles()[0]

    def _orbitals_and_singles(self) -> tuple[tuple[ActiveOrbitals, ...], float]:
        if kind_of_reference(self._scf) != "ROHF":
            return correlated_orbitals(self.mo_coeff, self.mo_energy, self.mo_occ, self.frozen), 0.0
        if self._fock is None:
            self._fock = fock_matrices(self._scf)
        return semicanonical_orbitals(self.mo_coeff, self.mo_occ, self._fock, self.frozen)

    def ao2mo(self, mo_coeff: Any = None, ovL: Any = None, ovL_to_save: str | None = None) -> Factors | SpinFactors:
        """Compute the fitted three-index integrals of the active orbitals (fp64, Hartree^1/2).

        Parameters
        ----------
        mo_coeff
            None or the orbitals of this object, since PySCF's method has this argument.
        ovL
            Integrals to use instead: arrays as `Factors.ovL` of the result has them, or the name of a file that
            `ovL_to_save` has written.
        ovL_to_save
            Name of an HDF5 file to which the integrals are also written.
        """
        if mo_coeff is not None and mo_coeff is not self.mo_coeff:
            raise InputError("ao2mo computes the integrals of the orbitals of this object: set its mo_coeff")
        if ovL is not None:
            return factors_of_ovl(ovL, self.orbitals())
        with self._open_factors() as (factors, _):
            pass
        if ovL_to_save is not None:
            save_ovl(factors, ovL_to_save)
        return factors

    def auxiliary_basis(self) -> AuxiliaryBasis:
        """The auxiliary functions of `ao2mo`."""
        return auxiliary_basis(self.mol, self.auxbasis)

    def _execution(self) -> Execution:
        return Execution(
            choose(self.backend, self.precision),
            threads=thread_count(self.threads, lib.num_threads),
            memory=memory_limit(self.max_memory),
            fused=self.fused,
            ranks=self.ranks,
            schedule=self.schedule,
            progress=self.progress,
        )

    def _store(
        self, auxiliary: AuxiliaryBasis, execution: Execution, on_disk: bool = False
    ) -> AbstractContextManager[Store | None]:
        """The checkpoint, which rank 0 keeps, or files without names, or None."""
        if self.ranks.rank:
            return nullcontext()
        if self.checkpoint is None:
            return nullcontext(Scratch() if self.force_outcore or on_disk else None)
        kind = kind_of_reference(self._scf)
        about = job_of(self.mol, auxiliary, self.frozen, execution, kind) | self._scf_settings
        return Checkpoint(self.checkpoint, about)

    @contextmanager
    def _open_factors(self, for_densities: bool = False) -> Iterator[tuple[Factors | SpinFactors, Store | None]]:
        """The factors, and the checkpoint for further work with them, or None.

        Factors for densities are kept on disk if they would leave too little memory for a block of pairs.
        """
        if for_densities and (eris := self._users_factors()) is not None:
            yield eris, None
            return
        execution, auxiliary = self._execution(), self.auxiliary_basis()
        on_disk = for_densities and execution.ranks.size == 1 and not self._leave_room_for_pairs(auxiliary, execution)
        with self._store(auxiliary, execution, on_disk) as store:
            factors = self._factors(auxiliary, execution, store)
            yield factors, store if isinstance(store, Checkpoint) else None

    def _users_factors(self) -> Factors | SpinFactors | None:
        """Return the factors of `ao2mo` if that is a method of the user, else None."""
        if not (users := users_method(self, "ao2mo")):
            return None
        if self.checkpoint is not None:
            raise UnsupportedError(f"a checkpoint keeps its own factors, not those of {users}: set no checkpoint")
        return checked_eris(self.ao2mo(), self.orbitals())

    def _leave_room_for_pairs(self, auxiliary: AuxiliaryBasis, execution: Execution) -> bool:
        """Whether the smallest block of pairs of densities fits beside the factors."""
        spins, naux, choice = self.orbitals(), auxiliary.auxmol.nao_nr(), execution.choice
        memory = PairMemory(tuple((spin.nocc, spin.nvir, naux) for spin in spins), execution.threads)
        gap = LEAST_GAP[choice.precision if choice.precision in choice.backend.gamma_precisions else "fp64"]
        width = least_width([spin.eps_occ for spin in spins], gap)
        return memory.factors + memory.block(width) <= execution.memory

    def _factors(self, auxiliary: AuxiliaryBasis, execution: Execution, store: Store | None) -> Factors | SpinFactors:
        spins, auxmol = self.orbitals(), auxiliary.auxmol
        if isinstance(store, Checkpoint):
            ran_on = jk_ran_on(self._scf)
            store.keep_orbitals(float(self._scf.e_tot), self.mo_energy, self.mo_coeff, self.mo_occ, ran_on)
        sizes = [(spin.nocc, spin.nvir) for spin in spins]
        beside = pair_step_bytes(sizes, auxmol.nao_nr(), execution)
        return build_spin_factors(self.mol, auxmol, spins, execution, store, beside)


def _by_spin(numbers: list[int]) -> int | tuple[int, int]:
    """The number of a closed shell, or those of both spins."""
    return numbers[0] if len(numbers) == 1 else (numbers[0], numbers[1])


def checked_eris(eris: Factors | SpinFactors, spins: Sequence[ActiveOrbitals]) -> Factors | SpinFactors:
    """Factors of the caller, which must be those of these orbitals. Raises InputError."""
    parts = (eris,) if isinstance(eris, Factors) else eris
    if not (isinstance(parts, tuple) and all(isinstance(part, Factors) for part in parts)):
        raise InputError(f"eris must be factors that ao2mo() has returned, got {type(eris).__name__}")
    equal = len(parts) == len(spins) and all(
        np.array_equal(part.eps_occ, o.eps_occ) and np.array_equal(part.eps_vir, o.eps_vir)
        for part, o in zip(parts, spins)
    )
    if not equal:
        theirs = " and ".join(f"{len(p.eps_occ)} occupied and {len(p.eps_vir)} virtual" for p in parts)
        ours = " and ".join(f"{o.nocc} and {o.nvir}" for o in spins)
        raise InputError(
            f"eris with {theirs} orbitals are not those of the {ours} active orbitals of this object: call ao2mo() "
            "again"
        )
    return eris
