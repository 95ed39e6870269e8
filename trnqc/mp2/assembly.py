"""Build the `MP2Result` of a finished job from its parts."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyscf

from trnqc.host.blas import numpy_blas
from trnqc.mp2.factors.auxiliary_basis import AuxiliaryBasis
from trnqc.mp2.factors.factors import Factors, SpinFactors, by_spin
from trnqc.mp2.pairs.pairs import PairResult
from trnqc.mp2.reference.molecule import Geometry, basis_name, describe
from trnqc.mp2.reference.orbitals import ActiveOrbitals, kind_of_reference
from trnqc.mp2.result import MP2Result
from trnqc.mp2.result_parts import BackendComparison, Frozen, PairRun, Pairs, Sizes, SpinPairs, System, triangle
from trnqc.mp2.scf.hartree_fock import jk_ran_on
from trnqc.types import SpinPairEnergies
from trnqc.version import __version__


def result_of_molecule(
    mf: Any,
    spins: Sequence[ActiveOrbitals],
    auxiliary: AuxiliaryBasis,
    factors: Factors | SpinFactors,
    step: PairResult,
    *,
    geometry: Geometry | None = None,
    timings: Mapping[str, float] | None = None,
    warnings: tuple[str, ...] = (),
    **rest: Any,
) -> MP2Result:
    """Build the result of a pair step over the orbitals of a PySCF object.

    Parameters
    ----------
    mf
        The reference.
    spins, auxiliary, factors, step
        The correlated orbitals of a closed shell or of each spin, the auxiliary basis, the factors and the pair step.
    geometry
        The molecule with its name; by default that of ``mf.mol``, named by its formula.
    timings, warnings
        Wall seconds by stage, and warnings, of the steps before the factors.
    rest
        Other fields of MP2Result: scs, sos, comparisons, e_singles.
    """
    mol, kind = mf.mol, kind_of_reference(mf)
    first = by_spin(factors)[0]
    fitted = getattr(mf, "with_df", None)
    reference = f"density-fitted ({basis_name(mf.with_df.auxbasis)})" if fitted else "conventional"
    system = System(
        geometry=geometry or describe(mol),
        basis=basis_name(mol.basis),
        auxbasis=auxiliary.names,
        generated=auxiliary.generated,
        metric=first.metric,
        integrals=first.integrals,
        scf=f"{kind}, {reference}, {'converged' if mf.converged else 'NOT converged'}",
        scf_ran_on=jk_ran_on(mf),
        spin_square=float(mf.spin_square()[0]) if kind == "UHF" else None,
    )
    unconverged = (
        None if mf.converged else "the SCF has not converged; the MP2 energy of its orbitals is not well defined"
    )
    of_reference = tuple(m for m in (unconverged, *getattr(mf, "doubts", ()), auxiliary.warning) if m)
    return assemble(
        step,
        factors,
        sizes=sizes_of(factors, mol.nao_nr(), spins[0].nmo),
        timings=dict(timings or {}) | _timings(factors) | step.timings,
        e_hf=float(mf.e_tot),
        frozen=Frozen(*(index for spin in spins for index in (spin.frozen_occ, spin.frozen_vir))),
        system=system,
        warnings=warnings + of_reference + step.warnings,
        **rest,
    )


def sizes_of(factors: Factors | SpinFactors, nao: int | None = None, nmo: int | None = None) -> Sizes:
    """The sizes of factors, with the numbers of atomic and of all molecular orbitals."""
    if isinstance(factors, Factors):
        return Sizes(*factors.shape, nao, nmo)
    return Sizes(*factors.alpha.shape, nao, nmo, *factors.beta.shape[:2])


def _timings(factors: Factors | SpinFactors) -> dict[str, float]:
    """Wall seconds by stage, added up over the spins."""
    total: dict[str, float] = {}
    for part in by_spin(factors):
        for stage, seconds in part.timings.items():
            total[stage] = total.get(stage, 0.0) + seconds
    return total


def assemble(
    step: PairResult,
    factors: Factors | SpinFactors,
    *,
    sizes: Sizes,
    timings: Mapping[str, float],
    e_hf: float | None = None,
    **rest: Any,
) -> MP2Result:
    """Build the result of a pair step; `rest` are other fields of MP2Result."""
    energies = step.energies
    if isinstance(energies, SpinPairEnergies):
        ab = tuple(map(tuple, energies.ab.tolist()))
        pairs: Pairs | SpinPairs = SpinPairs(triangle(energies.aa), ab, triangle(energies.bb))
        rest |= {"e_corr_aa": float(energies.aa.sum()), "e_corr_bb": float(energies.bb.sum())}
    else:
        pairs = Pairs(triangle(energies.os), triangle(energies.ss))
    return MP2Result(
        e_hf=e_hf,
        e_corr_os=step.e_os,
        e_corr_ss=step.e_ss,
        pairs=pairs,
        sizes=sizes,
        run=_run(step, factors),
        error=step.error,
        timings=timings,
        versions=versions(),
        **rest,
    )


def compare(main: PairResult, other: PairResult, factors: Factors | SpinFactors) -> BackendComparison:
    """Describe another pair step over the same factors by its differences from the main one."""
    return BackendComparison(
        run=_run(other, factors),
        e_corr_os=other.e_os,
        e_corr_ss=other.e_ss,
        difference_os=other.e_os - main.e_os,
        difference_ss=other.e_ss - main.e_ss,
        estimated_error=other.error.corr,
        seconds=other.timings["pairs"],
    )


def versions() -> dict[str, str]:
    """Versions of trnqc, Python, PySCF, NumPy and the BLAS library that NumPy calls."""
    return {
        "trnqc": __version__,
        "python": platform.python_version(),
        "pyscf": pyscf.__version__,
        "numpy": np.__version__,
        "blas": str(numpy_blas()),
    }


def _run(step: PairResult, factors: Factors | SpinFactors) -> PairRun:
    choice = step.execution.choice
    where = factors.where if isinstance(factors, Factors) else _where(factors)
    fused = step.execution.pair_step().fused
    return PairRun(choice.backend.name, step.energies.ran_on, choice.note, choice.precision, fused, where)


def _where(factors: SpinFactors) -> str:
    alpha, beta = factors.alpha.where, factors.beta.where
    return alpha if alpha == beta else f"{alpha} (alpha); {beta} (beta)"
