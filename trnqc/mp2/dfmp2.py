"""The DF-MP2 method object with PySCF's interface.

mf -> Correlation, Execution -> driver: factors -> pairs -> MP2Result; densities, gradients
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from pyscf import df, gto, lib

from trnqc.errors import InputError, UnsupportedError
from trnqc.host.memory import memory_limit
from trnqc.host.overrides import users_method
from trnqc.host.threads import thread_count
from trnqc.mp2.amplitudes import amplitudes
from trnqc.mp2.assembly import compare, result_of_molecule
from trnqc.mp2.checkpoint import Checkpoint
from trnqc.mp2.density.natural import frozen_natural_orbitals, natural_orbitals
from trnqc.mp2.density.one_particle import CorrelationDensity
from trnqc.mp2.density.relaxation import Relaxation
from trnqc.mp2.density.two_particle import in_atomic_orbitals, two_particle_density
from trnqc.mp2.driver import (
    Correlation,
    checked_eris,
    density_of,
    factors_of,
    leaves_room_for_densities,
    opened,
    pairs_of,
    relaxation_of,
)
from trnqc.mp2.execution import Execution, Progress, choose
from trnqc.mp2.factors.auxiliary_basis import AuxiliaryBasis
from trnqc.mp2.factors.factors import Factors, SpinFactors
from trnqc.mp2.factors.ovl import factors_of_ovl, save_ovl
from trnqc.mp2.pairs.pairs import warn
from trnqc.mp2.reference.orbitals import (
    ActiveOrbitals,
    SpinFrozen,
    check_reference,
    chemical_core,
    kind_of_reference,
)
from trnqc.mp2.reference.semicanonical import fock_matrices
from trnqc.mp2.response.zvector import ZVectorOptions
from trnqc.mp2.result import SCS, SOS, MP2Result, check_scaling
from trnqc.mp2.scanner import as_scanner
from trnqc.mp2.store import JobStore
from trnqc.ranks import ALONE, Ranks


def _of_result(name: str, meaning: str) -> Any:
    """A property that names a field of the result as PySCF does; None before `kernel`."""

    def value(self: DFMP2) -> Any:
        return None if self.result is None else getattr(self.result, name)

    return property(value, doc=f"{meaning}; None before `kernel`.")


class DFMP2(lib.StreamObject):
    """DF-MP2 on a converged PySCF RHF, UHF or ROHF object, density-fitted or not.

    The object reads mo_coeff, mo_energy, mo_occ and e_tot of `mf`, and the Fock matrices of an ROHF object. It computes
    the three-index integrals itself. Arrays and numbers of orbitals of open shells are given for alpha and beta spin.

    Parameters
    ----------
    mf
        The reference.
    auxbasis
        None for the MP2-fitting (RI) set of the orbital basis, the name of a set, or PySCF's dict by element. The
        fitting set of the SCF is never used. PySCF's dfmp2 differs: it uses the JK set of a density-fitted `mf`.
    frozen
        As in PySCF. None or 0 correlates all electrons, n freezes the n lowest orbitals, and a list freezes the
        occupied or virtual orbitals with these indices. Open shells also take a pair of lists, for alpha and beta spin.
        `set_frozen` freezes the chemical core, which is the default of the command line.
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
        A directory which keeps the factors, the energies of finished pairs, and Γ of densities and gradients. An
        interrupted job continues from it with the same digits, if its orbitals are the same to the last digit
        (docs/jobs.md). A `Checkpoint` that is open stays so until the end of the context of this object.
    ranks
        The processes that share the work. All of them create this object from the same orbitals and call the same
        methods; `max_memory` is the limit of each process.
    schedule
        How tasks are divided among ranks, see `trnqc.ranks.dealt`.
    kohn_sham
        Whether Kohn-Sham orbitals are accepted, as double hybrids need them. The energies are then only the
        perturbation's part of such a functional.

    Raises
    ------
    InputError, UnsupportedError, NotConverged
        If `mf` cannot be the reference of an MP2 calculation. The methods also raise MoleculeError, MemoryLimit,
        BackendUnavailable, UnsupportedPrecision, CheckpointError, StorageError and CommunicationError.

    Notes
    -----
    `kernel` sets the energies e_corr, e_tot, e_corr_os and e_corr_ss (Hartree), pair_energies and `result`, which
    contains everything. docs/conventions.md has the equations.

    ROHF orbitals are made semicanonical, and the energy contains that of single excitations
    (`trnqc.mp2.reference.semicanonical`).

    The attributes with_df (whose auxbasis is that of the correlation), force_outcore (factors on disk in any case),
    cphf_tol and cphf_max_cycle (of the Z-vector equations) and gradient_scaling have PySCF's names or meaning;
    gradient_scaling are the factors (c_os, c_ss) of the energy whose densities and gradients are computed. compare_with
    are pairs (backend, precision) in which `kernel` computes the pair energies again, for ``result.comparisons``.
    """

    e_corr = _of_result("e_corr", "Correlation energy, Hartree")
    e_tot = _of_result("e_tot", "Reference plus correlation energy, Hartree")
    e_tot_scs = _of_result("e_tot_scs", "Reference plus SCS-MP2 correlation energy, Hartree")
    e_corr_os = _of_result("e_corr_os", "Opposite-spin part of e_corr, Hartree")
    e_corr_ss = _of_result("e_corr_ss", "Same-spin part of e_corr, Hartree")
    pair_energies = _of_result("pair_energies", "Energies by pairs, Hartree, see `trnqc.types`")

    def __init__(
        self,
        mf: Any,
        auxbasis: str | dict[str, Any] | None = None,
        frozen: SpinFrozen = None,
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
        kohn_sham: bool = False,
    ) -> None:
        check_reference(mf, allow_unconverged, kohn_sham)
        self._scf, self.mol = mf, mf.mol
        self.verbose, self.stdout = mf.verbose, mf.stdout
        self.max_memory = mf.max_memory if max_memory is None else max_memory
        self.with_df = df.DF(mf.mol)
        self.auxbasis, self.frozen = auxbasis, frozen
        self.precision, self.backend, self.fused = precision, backend, fused
        self.threads, self.progress = threads, progress
        self.scs, self.sos = scs, sos
        self.checkpoint, self.ranks, self.schedule = checkpoint, ranks, schedule
        self.force_outcore = False
        self.compare_with: Sequence[tuple[str, str | None]] = ()
        # What a job adds: the name of its geometry, seconds and warnings of its SCF, and the settings of the SCF, which
        # its checkpoint compares.
        self._of_job: Mapping[str, Any] = {}
        self._scf_settings: Mapping[str, Any] = {}
        self.gradient_scaling = (1.0, 1.0)
        self.cphf_tol, self.cphf_max_cycle = ZVectorOptions().tolerance, ZVectorOptions().max_cycle
        self._take_orbitals()

    def _take_orbitals(self) -> None:
        """Read the orbitals of the reference and drop the results of other orbitals."""
        mf = self._scf
        self.mo_coeff, self.mo_energy, self.mo_occ = mf.mo_coeff, mf.mo_energy, mf.mo_occ
        self._fock: np.ndarray | None = None
        self._t2: Any = None
        self.result: MP2Result | None = None

    @property
    def max_memory(self) -> float:
        """MB (10^6 bytes) that this object may allocate, as PySCF counts."""
        return self._memory / 1e6

    @max_memory.setter
    def max_memory(self, megabytes: float | None) -> None:
        self._memory = memory_limit(megabytes)

    @property
    def e_hf(self) -> float:
        """Energy of the reference, Hartree."""
        return float(self._scf.e_tot)

    @property
    def auxbasis(self) -> str | dict[str, Any] | None:
        """The auxiliary basis, shared with `with_df`; None for the RI set of the orbital basis."""
        return self.with_df.auxbasis

    @auxbasis.setter
    def auxbasis(self, auxbasis: str | dict[str, Any] | None) -> None:
        self.with_df.auxbasis = auxbasis

    @property
    def nmo(self) -> int | tuple[int, int]:
        """Number of active orbitals, as PySCF counts nmo."""
        return _by_spin([spin.nocc + spin.nvir for spin in self.orbitals()])

    @property
    def nocc(self) -> int | tuple[int, int]:
        """Number of active occupied orbitals."""
        return _by_spin([spin.nocc for spin in self.orbitals()])

    @property
    def t2(self) -> Any:
        """Amplitudes as PySCF has them, computed when they are first read; None before `kernel`.

        [nocc, nocc, nvir, nvir] of a closed shell, or the blocks aa, ab and bb of an open shell.
        """
        if self._t2 is None and self.result is not None:
            self._t2 = amplitudes(self.ao2mo(), self._execution().memory)
        return self._t2

    def set_frozen(self) -> DFMP2:
        """Freeze the chemical core of every element and return self."""
        self.frozen = chemical_core(self.mol)
        return self

    def kernel(self, eris: Factors | SpinFactors | None = None, with_t2: bool = False) -> tuple[float, Any]:
        """Compute the correlation energy.

        Parameters
        ----------
        eris
            Factors that `ao2mo` has returned; by default they are computed.
        with_t2
            Whether to compute the amplitudes too; otherwise `t2` does when it is read.

        Returns
        -------
        tuple
            (e_corr, t2) with e_corr in Hartree, and None for t2 unless `with_t2` is set.
        """
        result, factors = self._computed(eris)
        warn(result.warnings)
        self._t2 = amplitudes(factors, self._execution().memory) if with_t2 else None
        lib.logger.note(self, "E(%s) = %.15g  E_corr = %.15g", "DF-MP2", self.e_tot, self.e_corr)
        return result.e_corr, self._t2

    def orbitals(self) -> tuple[ActiveOrbitals, ...]:
        """The correlated orbitals of a closed shell, or of alpha and beta spin."""
        return self._correlation().spins

    def auxiliary_basis(self) -> AuxiliaryBasis:
        """The auxiliary functions of `ao2mo`."""
        return self._correlation().auxiliary

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

    def nuc_grad_method(self) -> Any:
        """The object that computes the gradient, with PySCF's interface."""
        from trnqc.mp2.gradient import Gradients  # Most users of this class need no gradients.

        return Gradients(self)

    def make_rdm1(
        self, relaxed: bool = False, ao_repr: bool = False, with_frozen: bool = True, eris: Any = None
    ) -> np.ndarray:
        """Compute the one-particle density matrix.

        Parameters
        ----------
        relaxed
            Whether the response of the orbitals is included, as expectation values need it.
        ao_repr
            Whether the matrix is in atomic orbitals; by default it is in molecular orbitals.
        with_frozen
            Whether a matrix in molecular orbitals contains the frozen orbitals.
        eris
            Factors that `ao2mo` has returned; by default they are computed.

        Returns
        -------
        numpy.ndarray
            [n, n] with the trace of the number of electrons; for an open shell [2, n, n], alpha and beta.
        """
        density = self._density(relaxed, eris)
        rdm1 = density.rdm1(ao_repr)
        if with_frozen or ao_repr:
            return rdm1
        active = [np.ix_(spin.active, spin.active) for spin in density.spins]
        return rdm1[active[0]] if len(active) == 1 else np.array([p[mask] for p, mask in zip(rdm1, active)])

    def make_natorbs(self, rdm1_mo: np.ndarray | None = None, relaxed: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Natural occupation numbers, descending, and natural orbitals [nao, n], of the spin-summed density.

        Parameters
        ----------
        rdm1_mo
            A density matrix in molecular orbitals; by default `make_rdm1` computes it.
        relaxed
            Whether that is the relaxed density.
        """
        rdm1 = self.make_rdm1(relaxed=relaxed) if rdm1_mo is None else rdm1_mo
        return natural_orbitals(rdm1, self.mo_coeff, self._scf.get_ovlp())

    def make_fno(self, thresh: float = 1e-6, pct_occ: float | None = None, nvir_act: Any = None) -> tuple[Any, Any]:
        """Frozen natural orbitals: the orbitals to freeze, and semicanonical orbitals.

        Parameters
        ----------
        thresh
            Smallest occupation number of a virtual natural orbital that is kept.
        pct_occ
            Part of the occupation of the virtual orbitals that is kept; overrides `thresh`.
        nvir_act
            Number of virtual natural orbitals that are kept; overrides the others.
        """
        return frozen_natural_orbitals(self._density(), thresh, pct_occ, nvir_act)

    def make_rdm2(self, ao_repr: bool = False) -> Any:
        """Compute the two-particle density matrix, [n, n, n, n], or its blocks aa, ab and bb for an open shell.

        Parameters
        ----------
        ao_repr
            Whether it is in atomic orbitals; by default it is in molecular orbitals.
        """
        factors, memory = self.ao2mo(), self._execution().memory
        rdm2 = two_particle_density(self._density(eris=factors), amplitudes(factors, memory), memory)
        if not ao_repr:
            return rdm2
        if isinstance(rdm2, np.ndarray):
            return in_atomic_orbitals(rdm2, self.mo_coeff, self.mo_coeff)
        pairs = ((0, 0), (0, 1), (1, 1))
        return tuple(in_atomic_orbitals(d, *(self.mo_coeff[s] for s in pair)) for d, pair in zip(rdm2, pairs))

    def compute(self, eris: Factors | SpinFactors | None = None) -> MP2Result:
        """Compute and return the result as `kernel` does, without messages and without warnings of Python."""
        return self._computed(eris)[0]

    def set(self, **attributes: Any) -> DFMP2:
        """Set attributes and return self, as PySCF's objects do. Raises InputError for unknown names."""
        set_attributes(self, attributes, self._settable())
        return self

    def run(self, eris: Factors | SpinFactors | None = None, **attributes: Any) -> DFMP2:
        """Set attributes, call `kernel` and return self, as PySCF's objects do."""
        self.set(**attributes).kernel(eris)
        return self

    def reset(self, mol: gto.Mole | None = None) -> DFMP2:
        """Replace the molecule, also that of the reference, forget all results and return self."""
        if mol is not None:
            self.mol = mol
        self._scf.reset(mol)
        self.with_df.reset(mol)
        self._take_orbitals()
        return self

    def density_fit(self, auxbasis: str | dict[str, Any] | None = None, with_df: Any = None) -> DFMP2:
        """A copy of this object with another auxiliary basis, or with the one of another density-fitting object."""
        new = self.copy()
        new.with_df = self.with_df.copy() if with_df is None else with_df
        if with_df is None or auxbasis is not None:
            new.auxbasis = auxbasis
        new._take_orbitals()
        return new

    def as_scanner(self) -> Any:
        """A function of a molecule or its coordinates that returns the total energy, with PySCF's interface."""
        return as_scanner(self)

    def __enter__(self) -> DFMP2:
        return self

    def __exit__(self, *error: object) -> None:
        self._t2 = None
        if isinstance(self.checkpoint, Checkpoint):
            self.checkpoint.close()
            self.checkpoint = self.checkpoint.directory

    def _computed(self, eris: Factors | SpinFactors | None = None) -> tuple[MP2Result, Factors | SpinFactors]:
        """Compute the result, and return it with the factors."""
        work, execution = self._correlation(), self._execution()
        others = [choose(*other) for other in self.compare_with]
        check_scaling(self.scs, self.sos)
        if eris is not None and self.checkpoint is not None:
            raise InputError("a checkpoint keeps its own factors: call kernel() without eris, or set no checkpoint")
        eris = self._users_factors() if eris is None else eris
        with self._store(work, execution) as store:
            factors = factors_of(work, execution, store) if eris is None else checked_eris(eris, work.spins)
            step, compared = pairs_of(factors, execution, store, others)
        self._t2 = None
        self.result = result_of_molecule(
            self._scf,
            work.spins,
            work.auxiliary,
            factors,
            step,
            scs=self.scs,
            sos=self.sos,
            comparisons=tuple(compare(step, other, factors) for other in compared),
            e_singles=work.singles,
            **self._of_job,
        )
        return self.result, factors

    def _correlation(self) -> Correlation:
        """The correlated orbitals and the fitting functions, by the present attributes."""
        fock = None
        if kind_of_reference(self._scf) == "ROHF":
            fock = self._fock = fock_matrices(self._scf) if self._fock is None else self._fock
        orbitals = self.mo_coeff, self.mo_energy, self.mo_occ
        return Correlation(self._scf, self.mol, *orbitals, fock, self.frozen, self.auxbasis)

    def _execution(self) -> Execution:
        return Execution(
            choose(self.backend, self.precision),
            threads=thread_count(self.threads, lib.num_threads),
            memory=self._memory,
            fused=self.fused,
            ranks=self.ranks,
            schedule=self.schedule,
            progress=self.progress,
        )

    def _store(self, work: Correlation, execution: Execution, on_disk: bool = False) -> Any:
        return opened(work, execution, self.checkpoint, self._scf_settings, self.force_outcore or on_disk)

    @contextmanager
    def _open_factors(self, for_densities: bool = False) -> Iterator[tuple[Factors | SpinFactors, JobStore | None]]:
        """The factors, and the checkpoint for further work with them, or None.

        Factors for densities are kept on disk if they would leave too little memory for a block of pairs.
        """
        if for_densities and (eris := self._users_factors()) is not None:
            yield eris, None
            return
        work, execution = self._correlation(), self._execution()
        on_disk = for_densities and execution.ranks.size == 1 and not leaves_room_for_densities(work, execution)
        with self._store(work, execution, on_disk) as store:
            factors = factors_of(work, execution, store)
            yield factors, store if isinstance(store, Checkpoint) else None

    def _users_factors(self) -> Factors | SpinFactors | None:
        """Return the factors of `ao2mo` if that is a method of the user, else None."""
        if not (users := users_method(self, "ao2mo")):
            return None
        if self.checkpoint is not None:
            raise UnsupportedError(f"a checkpoint keeps its own factors, not those of {users}: set no checkpoint")
        return checked_eris(self.ao2mo(), self.orbitals())

    def _density(self, relaxed: bool = False, eris: Any = None) -> CorrelationDensity:
        if eris is None:
            with self._open_factors(for_densities=True) as (factors, store):
                return self._density_of(factors, relaxed, store)
        return self._density_of(checked_eris(eris, self.orbitals()), relaxed)

    def _density_of(
        self, factors: Factors | SpinFactors, relaxed: bool, store: JobStore | None = None
    ) -> CorrelationDensity:
        check_scaling(self.gradient_scaling, 0.0, "gradient_scaling")
        response = self._response()
        return density_of(self._correlation(), factors, self._execution(), relaxed=relaxed, store=store, **response)

    def _relaxation(self, **options: Any) -> Relaxation:
        """The relaxed density and the other quantities of gradients; `options` are further arguments of `relax`."""
        with self._open_factors(for_densities=True) as (factors, store):
            options |= self._response()
            return relaxation_of(self._correlation(), factors, self._execution(), store=store, **options)

    def _response(self) -> dict[str, Any]:
        options = ZVectorOptions(tolerance=self.cphf_tol, max_cycle=self.cphf_max_cycle)
        return {"scaling": self.gradient_scaling, "options": options}

    def _settable(self) -> frozenset[str]:
        names = frozenset(name for name in vars(self) if not name.startswith("_")) | {"auxbasis", "max_memory"}
        return names - {"result", "mol", "stdout"}


def _by_spin(numbers: list[int]) -> int | tuple[int, int]:
    """One number for a closed shell, or a number for each spin."""
    return numbers[0] if len(numbers) == 1 else (numbers[0], numbers[1])


def set_attributes(method: Any, attributes: dict[str, Any], settable: frozenset[str]) -> None:
    """Set attributes of a method object. Raises InputError, and sets none, if one is not among `settable`."""
    for name in attributes:
        if name not in settable:
            raise InputError(
                f"{type(method).__name__} has no attribute {name!r} to set; it has {', '.join(sorted(settable))}"
            )
    for name, value in attributes.items():
        setattr(method, name, value)
