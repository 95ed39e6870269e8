"""DF-MP2 as a method object with PySCF's interface, and as a function of factors that the caller has.

mf -> active orbitals, auxiliary basis -> build_factors -> run_pairs -> MP2Result
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from pyscf import lib

from trnqc.errors import InputError
from trnqc.host.memory import memory_limit
from trnqc.host.threads import thread_count
from trnqc.mp2.assembly import assemble, result_of_molecule
from trnqc.mp2.execution import Execution, Progress, choose
from trnqc.mp2.factors.auxiliary_basis import AuxiliaryBasis, auxiliary_basis
from trnqc.mp2.factors.build import build_factors
from trnqc.mp2.factors.factors import Factors, checked_factors
from trnqc.mp2.jobs.checkpoint import Checkpoint, Store, job_of, job_of_factors
from trnqc.mp2.pairs.pairs import pair_step_bytes, run_pairs, warn
from trnqc.mp2.reference.hartree_fock import made_by
from trnqc.mp2.reference.orbitals import ActiveOrbitals, active_orbitals, check_reference, chemical_core
from trnqc.mp2.reference.orbitals import Frozen as FrozenOrbitals
from trnqc.mp2.result import SCS, SOS, MP2Result, Sizes, check_scaling
from trnqc.ranks import ALONE, Ranks
from trnqc.types import PairEnergies


class DFMP2:
    """Closed-shell DF-MP2 on a converged PySCF RHF object, density-fitted or not.

    Only mo_coeff, mo_energy and mo_occ of `mf` enter, and its energy for e_tot; three-index integrals are made here.

    Parameters
    ----------
    mf
        The reference.
    auxbasis
        None for the MP2-fitting (RI) set of the orbital basis, the name of a set, or PySCF's dict by element. The
        fitting set of the SCF is never used, unlike in PySCF's dfmp2, which takes the JK set of a density-fitted `mf`.
    frozen
        As in PySCF: None or 0 correlates all electrons, n freezes the n lowest orbitals, a list the orbitals with these
        indices, occupied or virtual. `set_frozen` freezes the chemical core, as the command line does by default.
    precision
        "fp64", "fp32", "bf16x3" or "bf16" for the pair step; None takes the best that the backend has. Integrals,
        metric and factors are always fp64.
    backend
        "auto" (a usable Trainium device that has the precision, else the CPU), or the name of a backend.
    max_memory
        MB (10^6 bytes) that this object may allocate; by default ``mf.max_memory``. Factors that do not fit go to disk,
        below TMPDIR or into the checkpoint.
    fused
        Whether the energy expression is part of the product kernel; the numbers are the same to the precision.
    threads
        Threads; by default PySCF's.
    allow_unconverged
        Whether to take orbitals of an SCF that has not converged.
    scs, sos
        Factors (c_os, c_ss) of SCS-MP2, and c_os of SOS-MP2.
    progress
        Called as progress(stage, done, total).
    checkpoint
        A directory in which `kernel` keeps factors and energies of finished pairs, and from which the same job goes on
        where it was cut off, with the same digits. The orbitals have to be the same to the last digit (docs/jobs.md).
    ranks
        The processes of a job that share the work. All of them make this object from the same orbitals and call the
        same methods; `max_memory` is each one's.
    schedule
        How tasks are divided among ranks, see `trnqc.ranks.dealt`.

    Raises
    ------
    InputError, UnsupportedError, NotConverged
        If `mf` is no reference for MP2. The methods also raise MoleculeError, MemoryLimit, BackendUnavailable,
        UnsupportedPrecision, CheckpointError, StorageError and CommunicationError.

    Notes
    -----
    After `kernel`, the energies e_corr, e_tot, e_corr_os, e_corr_ss (Hartree), pair_energies (lower-triangular arrays
    ``.os`` and ``.ss``) and the whole `result` are set. docs/conventions.md has the equations.
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
        """Active orbitals, as PySCF counts."""
        o = self._orbitals()
        return len(o.eps_occ) + len(o.eps_vir)

    @property
    def nocc(self) -> int:
        """Active occupied orbitals."""
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
        """``.os``, ``.ss``: float64 [nocc, nocc], lower-triangular, ij and ji together; None before `kernel`."""
        return None if self.result is None else self.result.pair_energies

    def set_frozen(self) -> DFMP2:
        """Freeze the chemical core of every element; returns self."""
        self.frozen = chemical_core(self.mol)
        return self

    def ao2mo(self) -> Factors:
        """The fitted three-index integrals of the active orbitals; fp64, Hartree^1/2."""
        execution, auxiliary = self._execution(), self.auxiliary_basis()
        with self._store(auxiliary, execution) as store:
            return self._factors(auxiliary, execution, store)

    def auxiliary_basis(self) -> AuxiliaryBasis:
        """The functions that `ao2mo` fits with."""
        return auxiliary_basis(self.mol, self.auxbasis)

    def kernel(self, eris: Factors | None = None) -> tuple[float, None]:
        """Compute the energy.

        Parameters
        ----------
        eris
            What `ao2mo` returned, to use the same factors again.

        Returns
        -------
        tuple
            (e_corr, None); the None stands where PySCF returns amplitudes.
        """
        execution, auxiliary = self._execution(), self.auxiliary_basis()
        check_scaling(self.scs, self.sos)
        if eris is not None and self.checkpoint is not None:
            raise InputError("a checkpoint keeps its own factors: call kernel() without eris, or without checkpoint")
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
        """Set attributes, compute and return self, as PySCF's objects do."""
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
        """The checkpoint of rank 0, if there is to be one."""
        if self.checkpoint is None or self.ranks.rank:
            return nullcontext()
        return Checkpoint(self.checkpoint, job_of(self.mol, auxiliary, self.frozen, execution))

    def _factors(self, auxiliary: AuxiliaryBasis, execution: Execution, store: Checkpoint | None) -> Factors:
        orbitals, auxmol = self._orbitals(), auxiliary.auxmol
        if store is not None:
            store.keep_orbitals(self.e_hf, self.mo_energy, self.mo_coeff, self.mo_occ, made_by(self._scf))
        beside = pair_step_bytes(orbitals.nocc, orbitals.nvir, auxmol.nao_nr(), execution)
        return build_factors(self.mol, auxmol, orbitals, execution, store, beside)

    def _checked(self, eris: Factors) -> Factors:
        o = self._orbitals()
        if not (np.array_equal(eris.eps_occ, o.eps_occ) and np.array_equal(eris.eps_vir, o.eps_vir)):
            raise InputError(
                f"eris with {len(eris.eps_occ)} occupied and {len(eris.eps_vir)} virtual orbitals are not of the "
                f"{o.nocc} and {o.nvir} active ones here: call ao2mo() again"
            )
        return eris


def mp2_energy(
    B: Any,
    eps_occ: Any,
    eps_vir: Any,
    precision: str | None = "fp64",
    backend: str = "auto",
    *,
    fused: bool = True,
    threads: int | None = None,
    max_memory: float | None = None,
    scs: tuple[float, float] = SCS,
    sos: float = SOS,
    progress: Callable[[int, int], None] | None = None,
    checkpoint: str | Path | None = None,
) -> MP2Result:
    """Closed-shell MP2 correlation energy from factors of (ia|jb) = sum_Q B[i, a, Q] B[j, b, Q].

    Parameters
    ----------
    B
        [nocc, nvir, naux] in Hartree^1/2, float64 or float32: a NumPy array, a PyTorch tensor, a memory map or an HDF5
        dataset.
    eps_occ, eps_vir
        Orbital energies [nocc] and [nvir], Hartree.
    threads
        Threads; by default OMP_NUM_THREADS, else the CPUs that this process may use.
    max_memory
        MB (10^6 bytes) for what is allocated here, and for B where it is in memory; None for no limit.
    progress
        Called as progress(done_pairs, total_pairs).
    checkpoint
        A directory in which the energies of finished pairs are kept.

    Other parameters are those of `DFMP2`.

    Returns
    -------
    MP2Result
        Without a Hartree-Fock energy and a description of the molecule.

    Raises
    ------
    InputError
        If an array has the wrong shape or dtype, or a number is not finite. Other errors are those of `DFMP2`.

    Examples
    --------
    >>> import numpy as np, trnqc
    >>> result = trnqc.mp2_energy(np.ones((1, 1, 1)), [-0.5], [0.5])
    >>> result.e_corr                       # (ia|ia)^2 / (2 eps_i - 2 eps_a) = 1 / -2
    -0.5
    """
    execution = Execution(
        choose(backend, precision),
        threads=thread_count(threads),
        memory=memory_limit(max_memory),
        fused=fused,
        progress=progress and (lambda stage, done, total: progress(done, total)),
    )
    check_scaling(scs, sos)
    start = time.perf_counter()
    factors = checked_factors(B, eps_occ, eps_vir)
    checked = time.perf_counter() - start
    with _store_of_pairs(checkpoint, factors, execution) as store:
        step = run_pairs(factors, execution, store)
    warn(step.warnings)
    timings = {"checks": checked} | step.timings
    return assemble(
        step, factors, sizes=Sizes(*factors.shape), timings=timings, scs=scs, sos=sos, warnings=step.warnings
    )


def _store_of_pairs(
    directory: str | Path | None, factors: Factors, execution: Execution
) -> AbstractContextManager[Store | None]:
    return nullcontext() if directory is None else Checkpoint(directory, job_of_factors(factors, execution))
