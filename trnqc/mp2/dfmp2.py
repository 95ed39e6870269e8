"""The DF-MP2 method object with PySCF's interface.

mf -> active orbitals, auxiliary basis -> build_factors -> run_pairs -> MP2Result
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from pyscf import lib

from trnqc.errors import InputError
from trnqc.host.memory import memory_limit
from trnqc.host.threads import thread_count
from trnqc.mp2.assembly import result_of_molecule
from trnqc.mp2.execution import Execution, Progress, choose
from trnqc.mp2.factors.auxiliary_basis import AuxiliaryBasis, auxiliary_basis
from trnqc.mp2.factors.build import build_factors
from trnqc.mp2.factors.factors import Factors
from trnqc.mp2.jobs.checkpoint import Checkpoint, job_of
from trnqc.mp2.pairs.pairs import pair_step_bytes, run_pairs, warn
from trnqc.mp2.reference.hartree_fock import jk_ran_on
from trnqc.mp2.reference.orbitals import ActiveOrbitals, active_orbitals, check_reference, chemical_core
from trnqc.mp2.reference.orbitals import Frozen as FrozenOrbitals
from trnqc.mp2.result import SCS, SOS, MP2Result, check_scaling
from trnqc.ranks import ALONE, Ranks
from trnqc.types import PairEnergies


class DFMP2:
    """Closed-shell DF-MP2 on a converged PySCF RHF object, density-fitted or not.

    The object reads mo_coeff, mo_energy, mo_occ and e_tot of `mf` and computes the three-index integrals itself.

    Parameters
    ----------
    mf
        The reference.
    auxbasis
        None for the MP2-fitting (RI) set of the orbital basis, the name of a set, or PySCF's dict by element. The
        fitting set of the SCF is never used. PySCF's dfmp2 differs: it uses the JK set of a density-fitted `mf`.
    frozen
        As in PySCF. None or 0 correlates all electrons, n freezes the n lowest orbitals, and a list freezes the
        occupied or virtual orbitals with these indices. `set_frozen` freezes the chemical core, which is the default of
        the command line.
    precision
        Precision of the pair step: "fp64", "fp32", "bf16x3" or "bf16". None selects the best that the backend has.
        Integrals, metric and factors are always fp64.
    backend
        The name of a backend, or "auto": a usable Trainium device that has the precision, else the CPU.
    max_memory
        MB (10^6 bytes) that this object may allocate; by default ``mf.max_memory``. Factors that do not fit are kept on
        disk, below TMPDIR or in the checkpoint.
    fused
        Whether the energy expression is evaluated inside the product kernel. The results agree to the precision.
    threads
        Number of threads; by default PySCF's.
    allow_unconverged
        Whether to accept the orbitals of an SCF that has not converged.
    scs, sos
        Factors (c_os, c_ss) of SCS-MP2, and c_os of SOS-MP2.
    progress
        Called as progress(stage, done, total).
    checkpoint
        A directory in which `kernel` keeps the factors and the energies of finished pairs. An interrupted job continues
        from it with the same digits, if its orbitals are the same to the last digit (docs/jobs.md).
    ranks
        The processes that share the work. All of them create this object from the same orbitals and call the same
        methods; `max_memory` is the limit of each process.
    schedule
        How tasks are divided among ranks, see `trnqc.ranks.dealt`.

    Raises
    ------
    InputError, UnsupportedError, NotConverged
        If `mf` cannot be the reference of an MP2 calculation. The methods also raise MoleculeError, MemoryLimit,
        BackendUnavailable, UnsupportedPrecision, CheckpointError, StorageError and CommunicationError.

    Notes
    -----
    `kernel` sets the energies e_corr, e_tot, e_corr_os and e_corr_ss (Hartree), pair_energies (lower-triangular arrays
    ``.os`` and ``.ss``) and `result`, which contains everything. docs/conventions.md has the equations.
    """

    def __init__(
        self,
        mf: Any,
        auxbasis: str | dict[str, Any] | None = None,
        frozen: FrozenOrbitals = None,
        precision: str | None = "fp64",
        backend: str = "auto",
        max_memory: float | None = None,
        *,
        fused: bool = True,
        threads: int | None = None,
        allow_unconverged: bool = False,
        scs: tuple[float, float] = SCS,
        sos: float = SOS,
        progress: Progress | None = None,
        checkpoint: str | Path | None = None,
        ranks: Ranks = ALONE,
        schedule: str = "dynamic",
    ) -> None:
        check_reference(mf, allow_unconverged)
        self._scf, self.mol = mf, mf.mol
        self.verbose, self.stdout = mf.verbose, mf.stdout
        self.max_memory = mf.max_memory if max_memory is None else max_memory
        self.mo_coeff, self.mo_energy, self.mo_occ = mf.mo_coeff, mf.mo_energy, mf.mo_occ
        self.auxbasis, self.frozen = auxbasis, frozen
        self.precision, self.backend, self.fused = precision, backend, fused
        self.threads, self.progress = threads, progress
        self.scs, self.sos = scs, sos
        self.checkpoint, self.ranks, self.schedule = checkpoint, ranks, schedule
        self.result: MP2Result | None = None

    @property
    def nmo(self) -> int:
        """Number of active orbitals, which is PySCF's meaning of nmo."""
        o = self._orbitals()
        return len(o.eps_occ) + len(o.eps_vir)

    @property
    def nocc(self) -> int:
        """Number of active occupied orbitals."""
        return len(self._orbitals().eps_occ)

    @property
    def e_hf(self) -> float:
        """Energy of the reference, Hartree."""
        return float(self._scf.e_tot)

    @property
    def e_corr(self) -> float | None:
        """Correlation energy, Hartree; None before `kernel`."""
        return None if self.result is None else self.result.e_corr

    @property
    def e_tot(self) -> float | None:
        """Reference plus correlation energy, Hartree; None before `kernel`."""
        return None if self.result is None else self.result.e_tot

    @property
    def e_corr_os(self) -> float | None:
        """Opposite-spin part of e_corr, Hartree; None before `kernel`."""
        return None if self.result is None else self.result.e_corr_os

    @property
    def e_corr_ss(self) -> float | None:
        """Same-spin part of e_corr, Hartree; None before `kernel`."""
        return None if self.result is None else self.result.e_corr_ss

    @property
    def pair_energies(self) -> PairEnergies | None:
        """Pair energies ``.os`` and ``.ss``, Hartree; None before `kernel`. See `trnqc.types.PairEnergies`."""
        return None if self.result is None else self.result.pair_energies

    def set_frozen(self) -> DFMP2:
        """Freeze the chemical core of every element and return self."""
        self.frozen = chemical_core(self.mol)
        return self

    def ao2mo(self) -> Factors:
        """Compute the fitted three-index integrals of the active orbitals (fp64, Hartree^1/2)."""
        execution, auxiliary = self._execution(), self.auxiliary_basis()
        with self._store(auxiliary, execution) as store:
            return self._factors(auxiliary, execution, store)

    def auxiliary_basis(self) -> AuxiliaryBasis:
        """The auxiliary functions of `ao2mo`."""
        return auxiliary_basis(self.mol, self.auxbasis)

    def kernel(self, eris: Factors | None = None) -> tuple[float, None]:
        """Compute the correlation energy.

        Parameters
        ----------
        eris
            Factors that `ao2mo` has returned; by default they are computed.

        Returns
        -------
        tuple
            (e_corr, None) with e_corr in Hartree. PySCF returns amplitudes in place of None.
        """
        execution, auxiliary = self._execution(), self.auxiliary_basis()
        check_scaling(self.scs, self.sos)
        if eris is not None and self.checkpoint is not None:
            raise InputError("a checkpoint keeps its own factors: call kernel() without eris, or set no checkpoint")
        with self._store(auxiliary, execution) as store:
            factors = self._factors(auxiliary, execution, store) if eris is None else self._checked(eris)
            step = run_pairs(factors, execution, store)
        self.result = result_of_molecule(
            self._scf, self._orbitals(), auxiliary, factors, step, scs=self.scs, sos=self.sos
        )
        warn(self.result.warnings)
        lib.logger.note(self, "E(%s) = %.15g  E_corr = %.15g", "DF-MP2", self.e_tot, self.e_corr)
        return self.result.e_corr, None

    def run(self, eris: Factors | None = None, **attributes: Any) -> DFMP2:
        """Set attributes, call `kernel` and return self, as PySCF's objects do."""
        for name, value in attributes.items():
            if name not in self._settable():
                raise InputError(
                    f"DFMP2 has no attribute {name!r} to set; it has {', '.join(sorted(self._settable()))}"
                )
            setattr(self, name, value)
        self.kernel(eris)
        return self

    def _settable(self) -> set[str]:
        return {name for name in vars(self) if not name.startswith("_")} - {"result", "mol", "stdout"}

    def _orbitals(self) -> ActiveOrbitals:
        return active_orbitals(self.mo_coeff, self.mo_energy, self.mo_occ, self.frozen)

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

    def _store(self, auxiliary: AuxiliaryBasis, execution: Execution) -> AbstractContextManager[Checkpoint | None]:
        """The checkpoint, which rank 0 keeps, or None."""
        if self.checkpoint is None or self.ranks.rank:
            return nullcontext()
        return Checkpoint(self.checkpoint, job_of(self.mol, auxiliary, self.frozen, execution))

    def _factors(self, auxiliary: AuxiliaryBasis, execution: Execution, store: Checkpoint | None) -> Factors:
        orbitals, auxmol = self._orbitals(), auxiliary.auxmol
        if store is not None:
            store.keep_orbitals(self.e_hf, self.mo_energy, self.mo_coeff, self.mo_occ, jk_ran_on(self._scf))
        beside = pair_step_bytes(orbitals.nocc, orbitals.nvir, auxmol.nao_nr(), execution)
        return build_factors(self.mol, auxmol, orbitals, execution, store, beside)

    def _checked(self, eris: Factors) -> Factors:
        o = self._orbitals()
        if not (np.array_equal(eris.eps_occ, o.eps_occ) and np.array_equal(eris.eps_vir, o.eps_vir)):
            raise InputError(
                f"eris with {len(eris.eps_occ)} occupied and {len(eris.eps_vir)} virtual orbitals are not those of the "
                f"{o.nocc} and {o.nvir} active orbitals of this object: call ao2mo() again"
            )
        return eris
