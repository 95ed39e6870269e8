"""DF-MP2 as a method object in PySCF's shape, and as a function of plain factors.

mf -> active orbitals, auxiliary basis -> factors B -> pairs on a backend -> MP2Result
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
from trnqc.mp2.factors.auxiliary_basis import AuxiliaryBasis, auxiliary_basis
from trnqc.mp2.factors.factors import Factors, build_factors
from trnqc.mp2.factors.ranks import factors_on_ranks, visited_bytes
from trnqc.mp2.jobs.checkpoint import Checkpoint, Store, job_of, job_of_factors
from trnqc.mp2.jobs.choice import Choice, choose
from trnqc.mp2.jobs.versions import versions
from trnqc.mp2.pairs.blocks import least_bytes
from trnqc.mp2.pairs.pairs import PairStep, check_factors, check_threads, run_pairs, warn
from trnqc.mp2.reference.hartree_fock import made_by
from trnqc.mp2.reference.molecule import basis_name, describe
from trnqc.mp2.reference.orbitals import Frozen as FrozenOrbitals
from trnqc.mp2.reference.orbitals import active_orbitals, check_reference, chemical_core
from trnqc.mp2.result import SCS, SOS, Frozen, MP2Result, Pairs, Run, Sizes, System, check_scaling, triangle
from trnqc.ranks.groups import ALONE, Ranks
from trnqc.types import PairEnergies

Progress = Callable[[str, int, int], None]


class DFMP2:
    """Closed-shell DF-MP2 on a converged PySCF RHF object, density-fitted or not.

    Only mo_coeff, mo_energy and mo_occ of ``mf`` enter (and its energy, for e_tot); integrals are made here.

    auxbasis: None for the MP2-fitting (RI) set of the orbital basis. Unlike PySCF's dfmp2, which takes over the JK
        set of a density-fitted ``mf``, an SCF's fitting set is never used. A name, or PySCF's dict by element,
        overrides.
    frozen: as in PySCF: None or 0 correlates all electrons, n freezes the n lowest orbitals, a list the orbitals with
        these indices, occupied or virtual. The command line freezes the chemical core by default; here `set_frozen`
        does.
    precision: "fp64", "fp32", "bf16x3" or "bf16"; integrals, metric and B are fp64 always. None: the backend's best.
    backend: "auto" (a usable Trainium device that has the precision, else the CPU), "cpu", "simulator", "neuron".
    max_memory: MB (10^6 bytes) for what this object allocates, default ``mf.max_memory``. Where the factors do not fit
        they go to disk, below TMPDIR or into the checkpoint.
    checkpoint: a directory in which `kernel` keeps factors and energies of finished pairs, and from which the same job
        goes on where it was cut off, with the same digits; the orbitals have to be the same to the last one
        (docs/jobs.md).
    fused: energy expression inside the product kernel, or apart from it; the same numbers to the precision.
    ranks: of a job of several processes, which all make this object from the same orbitals and call the same methods;
        max_memory is each one's. schedule: how tasks are dealt to them (trnqc.ranks.groups.dealt).
    progress: called as progress(stage, done, total).

    Raises InputError, UnsupportedError, NotConverged, MoleculeError, MemoryLimit, BackendUnavailable,
    UnsupportedPrecision, CheckpointError, StorageError, CommunicationError. After `kernel`: e_corr, e_tot, e_corr_os,
    e_corr_ss (Hartree), pair_energies (lower-triangular ``.os``, ``.ss``), result.
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
        checkpoint: str | Path | Checkpoint | None = None,
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
        auxiliary, choice = self.auxiliary_basis(), choose(self.backend, self.precision)
        with self._store(auxiliary, choice) as store:
            return self._factors(auxiliary, choice, store)

    def auxiliary_basis(self) -> AuxiliaryBasis:
        """The functions that `ao2mo` fits with."""
        return auxiliary_basis(self.mol, self.auxbasis)

    def kernel(self, eris: Factors | None = None) -> tuple[float, None]:
        """Compute; returns (e_corr, None), the None standing where PySCF returns amplitudes.

        eris: what `ao2mo` returned, to use the same factors again.
        """
        choice = choose(self.backend, self.precision)
        check_scaling(self.scs, self.sos)
        auxiliary = self.auxiliary_basis()
        if eris is not None and isinstance(self.checkpoint, str | Path):
            raise InputError("a checkpoint keeps its own factors: call kernel() without eris, or without checkpoint")
        with self._store(auxiliary, choice) as store:
            factors = self._factors(auxiliary, choice, store) if eris is None else self._checked(eris)
            step = run_pairs(
                factors.B, factors.eps_occ, factors.eps_vir, choice, fused=self.fused, threads=self.threads,
                max_memory=self.max_memory, progress=self.progress and _stage(self.progress, "pairs"), store=store,
                ranks=self.ranks, schedule=self.schedule,
            )  # fmt: skip
        told = tuple(filter(None, [self._unconverged(), auxiliary.warning])) + step.warnings
        self.result = self._result(auxiliary, factors, step, told)
        warn(told)
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

    def _orbitals(self) -> Any:
        return active_orbitals(self.mo_coeff, self.mo_energy, self.mo_occ, self.frozen)

    def _store(self, auxiliary: AuxiliaryBasis, choice: Choice) -> AbstractContextManager[Store | None]:
        """The checkpoint, opened if it was given by name; one that was given open stays open."""
        if self.ranks.rank:
            return nullcontext()
        if self.checkpoint is None or isinstance(self.checkpoint, Checkpoint):
            return nullcontext(self.checkpoint)
        return Checkpoint(self.checkpoint, job_of(self.mol, auxiliary, self.frozen, choice, self.fused))

    def _factors(self, auxiliary: AuxiliaryBasis, choice: Choice, store: Store | None) -> Factors:
        check_threads(self.threads)
        o = self._orbitals()
        if isinstance(store, Checkpoint):
            store.keep_orbitals(self.e_hf, self.mo_energy, self.mo_coeff, self.mo_occ, made_by(self._scf))
        if self.ranks.size > 1:
            sizes = (o.c_occ.shape[1], o.c_vir.shape[1], auxiliary.auxmol.nao_nr())
            return factors_on_ranks(
                self.mol, auxiliary.auxmol, o.c_occ, o.c_vir, o.eps_occ, o.eps_vir, self.ranks, schedule=self.schedule,
                max_bytes=1e6 * self.max_memory, threads=self.threads, progress=self.progress, store=store,
                pairs=visited_bytes(sizes, choice, self.fused, self.threads),
            )  # fmt: skip
        least = least_bytes(o.c_vir.shape[1], auxiliary.auxmol.nao_nr(), choice, self.fused, self.threads)
        return build_factors(
            self.mol, auxiliary.auxmol, o.c_occ, o.c_vir, o.eps_occ, o.eps_vir, max_bytes=1e6 * self.max_memory,
            threads=self.threads, progress=self.progress, store=store, pairs=least,
        )  # fmt: skip

    def _checked(self, eris: Factors) -> Factors:
        o = self._orbitals()
        if not (np.array_equal(eris.eps_occ, o.eps_occ) and np.array_equal(eris.eps_vir, o.eps_vir)):
            raise InputError(
                f"eris with {len(eris.eps_occ)} occupied and {len(eris.eps_vir)} virtual orbitals are not of the "
                f"{len(o.eps_occ)} and {len(o.eps_vir)} active ones here: call ao2mo() again"
            )
        return eris

    def _unconverged(self) -> str | None:
        return (
            None
            if self._scf.converged
            else "the SCF has not converged; the MP2 energy of its orbitals is not well defined"
        )

    def _result(self, auxiliary: AuxiliaryBasis, factors: Factors, step: PairStep, told: tuple[str, ...]) -> MP2Result:
        o, mf = self._orbitals(), self._scf
        nocc, nvir, naux = factors.B.shape
        fitting = (
            f"density-fitted ({basis_name(mf.with_df.auxbasis)})" if getattr(mf, "with_df", None) else "conventional"
        )
        system = System(
            geometry=describe(self.mol),
            basis=basis_name(self.mol.basis),
            auxbasis=auxiliary.names,
            generated=auxiliary.generated,
            metric=factors.metric,
            integrals=factors.integrals,
            scf=f"RHF, {fitting}, {'converged' if mf.converged else 'NOT converged'}",
            scf_ran_on=made_by(mf),
        )
        return assemble(
            step,
            where=factors.where,
            e_hf=self.e_hf,
            sizes=Sizes(nocc, nvir, naux, self.mol.nao_nr(), len(self.mo_energy)),
            frozen=Frozen(o.frozen_occ, o.frozen_vir),
            system=system,
            timings=factors.timings | step.timings,
            scs=self.scs,
            sos=self.sos,
            warnings=told,
        )


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

    B [nocc, nvir, naux] in Hartree^1/2, orbital energies eps_occ [nocc], eps_vir [nvir] in Hartree: NumPy arrays,
    PyTorch tensors, memory maps, or an HDF5 dataset for B; float64 or float32, without NaN. The result has no e_hf
    and no system. max_memory: MB (10^6 bytes) for what is added, and B where it is in memory; None for no limit.
    checkpoint: a directory for energies of finished pairs. The rest as in `DFMP2`.
    """
    choice = choose(backend, precision)
    check_scaling(scs, sos)
    start = time.perf_counter()
    B, eps_occ, eps_vir = check_factors(B, eps_occ, eps_vir)
    checked = time.perf_counter() - start
    with (
        nullcontext()
        if checkpoint is None
        else Checkpoint(checkpoint, job_of_factors(B, eps_occ, eps_vir, choice, fused)) as store
    ):
        step = run_pairs(
            B, eps_occ, eps_vir, choice, fused=fused, threads=threads, max_memory=max_memory, progress=progress,
            store=store,
        )  # fmt: skip
    warn(step.warnings)
    return assemble(
        step,
        sizes=Sizes(*B.shape),
        timings={"checks": checked} | step.timings,
        scs=scs,
        sos=sos,
        warnings=step.warnings,
    )


def assemble(step: PairStep, where: str = "in memory", **rest: Any) -> MP2Result:
    """A result from a pair step over factors that are `where`, in words; ``rest`` are fields of MP2Result."""
    return MP2Result(
        **{"e_hf": None} | rest,
        e_corr_os=float(step.energies.os.sum()),
        e_corr_ss=float(step.energies.ss.sum()),
        pairs=Pairs(triangle(step.energies.os), triangle(step.energies.ss)),
        run=describe_run(step, where),
        error=step.error,
        versions=versions(),
    )


def describe_run(step: PairStep, where: str) -> Run:
    """Where and how a pair step ran, and where the factors were."""
    choice = step.choice
    return Run(choice.backend.name, step.energies.ran_on, choice.note, choice.precision, step.fused, where)


def _stage(progress: Progress, stage: str) -> Callable[[int, int], None]:
    return lambda done, total: progress(stage, done, total)
