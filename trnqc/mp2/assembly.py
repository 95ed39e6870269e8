"""Build the `MP2Result` of a finished job from its parts."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyscf

from trnqc import __version__
from trnqc.host.blas import numpy_blas
from trnqc.mp2.factors.auxiliary_basis import AuxiliaryBasis
from trnqc.mp2.factors.factors import Factors
from trnqc.mp2.pairs.pairs import PairStep
from trnqc.mp2.reference.hartree_fock import jk_ran_on
from trnqc.mp2.reference.molecule import Geometry, basis_name, describe
from trnqc.mp2.reference.orbitals import ActiveOrbitals
from trnqc.mp2.result import MP2Result
from trnqc.mp2.result_parts import Comparison, Frozen, Pairs, Run, Sizes, System, triangle


def result_of_molecule(
    mf: Any,
    orbitals: ActiveOrbitals,
    auxiliary: AuxiliaryBasis,
    factors: Factors,
    step: PairStep,
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
    orbitals, auxiliary, factors, step
        The correlated orbitals, the auxiliary basis, the factors and the pair step.
    geometry
        The molecule with its name; by default that of ``mf.mol``, named by its formula.
    timings, warnings
        Wall seconds by stage, and warnings, of the steps before the factors.
    rest
        Other fields of MP2Result: scs, sos, comparisons.
    """
    mol = mf.mol
    fitted = getattr(mf, "with_df", None)
    reference = f"density-fitted ({basis_name(mf.with_df.auxbasis)})" if fitted else "conventional"
    system = System(
        geometry=geometry or describe(mol),
        basis=basis_name(mol.basis),
        auxbasis=auxiliary.names,
        generated=auxiliary.generated,
        metric=factors.metric,
        integrals=factors.integrals,
        scf=f"RHF, {reference}, {'converged' if mf.converged else 'NOT converged'}",
        scf_ran_on=jk_ran_on(mf),
    )
    unconverged = (
        None if mf.converged else "the SCF has not converged; the MP2 energy of its orbitals is not well defined"
    )
    of_reference = tuple(message for message in (unconverged, auxiliary.warning) if message)
    return assemble(
        step,
        factors,
        sizes=Sizes(*factors.shape, mol.nao_nr(), orbitals.nmo),
        timings=dict(timings or {}) | factors.timings | step.timings,
        e_hf=float(mf.e_tot),
        frozen=Frozen(orbitals.frozen_occ, orbitals.frozen_vir),
        system=system,
        warnings=warnings + of_reference + step.warnings,
        **rest,
    )


def assemble(
    step: PairStep,
    factors: Factors,
    *,
    sizes: Sizes,
    timings: Mapping[str, float],
    e_hf: float | None = None,
    **rest: Any,
) -> MP2Result:
    """Build the result of a pair step; `rest` are other fields of MP2Result."""
    return MP2Result(
        e_hf=e_hf,
        e_corr_os=step.e_os,
        e_corr_ss=step.e_ss,
        pairs=Pairs(triangle(step.energies.os), triangle(step.energies.ss)),
        sizes=sizes,
        run=_run(step, factors),
        error=step.error,
        timings=timings,
        versions=versions(),
        **rest,
    )


def compare(main: PairStep, other: PairStep, factors: Factors) -> Comparison:
    """Describe another pair step over the same factors by its differences from the main one."""
    return Comparison(
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


def _run(step: PairStep, factors: Factors) -> Run:
    choice = step.execution.choice
    return Run(
        choice.backend.name, step.energies.ran_on, choice.note, choice.precision, step.execution.fused, factors.where
    )
