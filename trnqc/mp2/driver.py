"""The one way from a reference to its MP2 energy.

    Correlation: orbitals, fitting functions -> opened: checkpoint, scratch or memory -> factors_of -> pairs_of
        -> assembly: MP2Result
        -> density_of, relaxation_of: densities, and what gradients need

`trnqc.DFMP2`, the job of the command line, double hybrids and ring methods take it; `trnqc.mp2_energy` has factors and
begins with the pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pyscf import gto

from trnqc.errors import InputError
from trnqc.host.clock import divide, measured
from trnqc.mp2.checkpoint import Checkpoint, job_of
from trnqc.mp2.density.density import correlation_density
from trnqc.mp2.density.one_particle import CorrelationDensity
from trnqc.mp2.density.relaxation import Relaxation, relax
from trnqc.mp2.density.restricted_open import relax_restricted_open, restricted_open_density
from trnqc.mp2.density.sets import LEAST_GAP, PairMemory, least_width
from trnqc.mp2.execution import BackendChoice, Execution
from trnqc.mp2.factors.auxiliary_basis import AuxiliaryBasis, auxiliary_basis
from trnqc.mp2.factors.build import build_factors
from trnqc.mp2.factors.factors import Factors, SpinFactors, by_spin
from trnqc.mp2.pairs.pairs import PairResult, pair_step_bytes, run_pairs
from trnqc.mp2.reference.orbitals import ActiveOrbitals, SpinFrozen, correlated_orbitals, kind_of_reference
from trnqc.mp2.reference.semicanonical import semicanonical_orbitals
from trnqc.mp2.reference.spins import SpinOrbitals, spin_orbitals
from trnqc.mp2.scf.hartree_fock import jk_ran_on
from trnqc.mp2.store import JobStore, ScratchStore


@dataclass(frozen=True, eq=False)
class Correlation:
    """The orbitals of a reference without the frozen ones, and the fitting functions.

    `fock` are the Fock matrices [2, nao, nao] of an ROHF reference, else None; `frozen` and `auxbasis` are as in
    `trnqc.DFMP2`.
    """

    mf: Any
    mol: gto.Mole
    mo_coeff: Any
    mo_energy: Any
    mo_occ: Any
    fock: np.ndarray | None
    frozen: SpinFrozen
    auxbasis: str | dict[str, Any] | None

    @property
    def spins(self) -> tuple[ActiveOrbitals, ...]:
        """The correlated orbitals of a closed shell, or of alpha and beta spin."""
        return self._orbitals[0]

    @property
    def all_spins(self) -> tuple[SpinOrbitals, ...]:
        """All orbitals of each spin, frozen ones included."""
        return spin_orbitals(self.mo_coeff, self.mo_energy, self.mo_occ, self.frozen)

    @property
    def singles(self) -> float:
        """The energy of single excitations, which an ROHF reference has, Hartree."""
        return self._orbitals[1]

    @cached_property
    def _orbitals(self) -> tuple[tuple[ActiveOrbitals, ...], float]:
        if self.fock is None:
            return correlated_orbitals(self.mo_coeff, self.mo_energy, self.mo_occ, self.frozen), 0.0
        return semicanonical_orbitals(self.mo_coeff, self.mo_occ, self.fock, self.frozen)

    @cached_property
    def auxiliary(self) -> AuxiliaryBasis:
        """The fitting functions."""
        return auxiliary_basis(self.mol, self.auxbasis)


def opened(
    work: Correlation,
    execution: Execution,
    checkpoint: str | Path | Checkpoint | None,
    scf_settings: Mapping[str, Any],
    on_disk: bool = False,
) -> AbstractContextManager[JobStore | None]:
    """Open the checkpoint, which rank 0 keeps, files without names if factors are kept on disk, or nothing.

    A checkpoint that is open already remains so. `scf_settings` are the settings of the SCF that the checkpoint
    compares, if the SCF is part of the job.
    """
    if execution.ranks.rank:
        return nullcontext()
    if checkpoint is None:
        return nullcontext(ScratchStore() if on_disk else None)
    kind = kind_of_reference(work.mf)
    about = job_of(work.mol, work.auxiliary, work.frozen, execution, kind) | dict(scf_settings)
    if isinstance(checkpoint, Checkpoint):
        return nullcontext(checkpoint.again(about))
    return Checkpoint(checkpoint, about)


def factors_of(work: Correlation, execution: Execution, store: JobStore | None) -> Factors | SpinFactors:
    """Compute the factors, with room for the pair step beside them."""
    if isinstance(store, Checkpoint):
        ran_on = jk_ran_on(work.mf)
        store.keep_orbitals(float(work.mf.e_tot), work.mo_energy, work.mo_coeff, work.mo_occ, ran_on)
    sizes = [(spin.nocc, spin.nvir) for spin in work.spins]
    beside = pair_step_bytes(sizes, work.auxiliary.auxmol.nao_nr(), execution)
    with measured("factors"):
        factors = build_factors(work.mol, work.auxiliary.auxmol, work.spins, execution, store, beside)
        for part in by_spin(factors):
            divide(part.timings)
    return factors


def leaves_room_for_densities(work: Correlation, execution: Execution) -> bool:
    """Whether the smallest block of pairs of densities fits beside the factors in memory."""
    spins, naux, choice = work.spins, work.auxiliary.auxmol.nao_nr(), execution.choice
    memory = PairMemory(tuple((spin.nocc, spin.nvir, naux) for spin in spins), execution.threads)
    gap = LEAST_GAP[choice.precision if choice.precision in choice.backend.gamma_precisions else "fp64"]
    width = least_width([spin.eps_occ for spin in spins], gap)
    return memory.factors + memory.block(width) <= execution.memory


def pairs_of(
    factors: Factors | SpinFactors, execution: Execution, store: JobStore | None, others: Sequence[BackendChoice] = ()
) -> tuple[PairResult, tuple[PairResult, ...]]:
    """Compute the pair energies, and compute them again on other backends or in other precisions for comparison."""
    with measured("pairs"):
        step = run_pairs(factors, execution, store)
        divide({"error estimate": step.timings["error estimate"]})
    compared = []
    for choice in others:
        with measured(f"pairs on {choice.backend.name}"):
            compared.append(run_pairs(factors, _elsewhere(execution, choice)))
    return step, tuple(compared)


def density_of(
    work: Correlation, factors: Factors | SpinFactors, execution: Execution, **options: Any
) -> CorrelationDensity:
    """Compute the density, relaxed or unrelaxed; `options` are further arguments of `correlation_density`."""
    parts, auxmol = by_spin(factors), work.auxiliary.auxmol
    if work.fock is not None:
        return restricted_open_density(work.mf, work.spins, parts, auxmol, execution, **options)
    return correlation_density(work.mf, work.all_spins, parts, auxmol, execution, **options)


def relaxation_of(
    work: Correlation, factors: Factors | SpinFactors, execution: Execution, **options: Any
) -> Relaxation:
    """Compute the relaxed density and the other quantities of gradients; `options` are further arguments of `relax`."""
    parts, auxmol = by_spin(factors), work.auxiliary.auxmol
    if work.fock is not None:
        return relax_restricted_open(work.mf, work.spins, parts, auxmol, execution, **options)
    return relax(work.mf, work.all_spins, parts, auxmol, execution, **options)


def _elsewhere(execution: Execution, choice: BackendChoice) -> Execution:
    """The same execution with another backend, which adds its name to the stages in progress reports."""

    def report(stage: str, done: int, total: int) -> None:
        execution.report(f"{stage} on {choice.backend.name}", done, total)

    return replace(execution, choice=choice, progress=report)


def checked_eris(eris: Factors | SpinFactors, spins: Sequence[ActiveOrbitals]) -> Factors | SpinFactors:
    """Check that the caller's factors belong to these orbitals, and return them; raise InputError otherwise."""
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
