"""The DF-MP2 method object with PySCF's interface.

mf -> active orbitals, auxiliary basis -> build_spin_factors -> run_pairs -> MP2Result
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from pyscf import df, gto, lib

from trnqc.errors import InputError
from trnqc.mp2.amplitudes import amplitudes
from trnqc.mp2.assembly import result_of_molecule
from trnqc.mp2.dfmp2_densities import Densities
from trnqc.mp2.dfmp2_energies import Energies
from trnqc.mp2.dfmp2_factors import checked_eris
from trnqc.mp2.execution import Progress
from trnqc.mp2.factors.factors import Factors, SpinFactors
from trnqc.mp2.pairs.pairs import run_pairs, warn
from trnqc.mp2.reference.orbitals import (
    SpinFrozen,
    check_reference,
    chemical_core,
)
from trnqc.mp2.response.zvector import ZVectorOptions
from trnqc.mp2.result import SCS, SOS, MP2Result, check_scaling
from trnqc.mp2.scanner import as_scanner
from trnqc.ranks import ALONE, Ranks


class DFMP2(Energies, Densities, lib.StreamObject):
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
        (docs/jobs.md).
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
    gradient_scaling are the factors (c_os, c_ss) of the energy whose densities and gradients are computed.
    """

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
        checkpoint: str | Path | None = None,
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
        self._scf_settings: dict[str, Any] = {}  # What a checkpoint compares of the SCF, if that is part of the job.
        self.gradient_scaling = (1.0, 1.0)
        self.cphf_tol, self.cphf_max_cycle = ZVectorOptions().tolerance, ZVectorOptions().max_cycle
        self._take_orbitals()

    def _take_orbitals(self) -> None:
        """Read the orbitals of the reference and forget what was computed with others."""
        mf = self._scf
        self.mo_coeff, self.mo_energy, self.mo_occ = mf.mo_coeff, mf.mo_energy, mf.mo_occ
        self._fock: np.ndarray | None = None
        self._t2: Any = None
        self.result: MP2Result | None = None

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
        execution, auxiliary = self._execution(), self.auxiliary_basis()
        check_scaling(self.scs, self.sos)
        if eris is not None and self.checkpoint is not None:
            raise InputError("a checkpoint keeps its own factors: call kernel() without eris, or set no checkpoint")
        eris = self._users_factors() if eris is None else eris
        spins, singles = self._orbitals_and_singles()
        with self._store(auxiliary, execution) as store:
            factors = self._factors(auxiliary, execution, store) if eris is None else checked_eris(eris, spins)
            step = run_pairs(factors, execution, store)
        self.result = result_of_molecule(
            self._scf, spins, auxiliary, factors, step, scs=self.scs, sos=self.sos, e_singles=singles
        )
        self._t2 = amplitudes(factors, execution.memory) if with_t2 else None
        warn(self.result.warnings)
        lib.logger.note(self, "E(%s) = %.15g  E_corr = %.15g", "DF-MP2", self.e_tot, self.e_corr)
        return self.result.e_corr, self._t2

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
        """A copy of this object with another auxiliary basis, or with that of another density-fitting object."""
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

    def _settable(self) -> frozenset[str]:
        names = frozenset(name for name in vars(self) if not name.startswith("_")) | {"auxbasis"}
        return names - {"result", "mol", "stdout"}


def set_attributes(method: Any, attributes: dict[str, Any], settable: frozenset[str]) -> None:
    """Set attributes of a method object. Raises InputError, and sets none, if one is not among `settable`."""
    for name in attributes:
        if name not in settable:
            raise InputError(
                f"{type(method).__name__} has no attribute {name!r} to set; it has {', '.join(sorted(settable))}"
            )
    for name, value in attributes.items():
        setattr(method, name, value)
