"""The Hartree-Fock reference of the command line: PySCF's RHF, density-fitted with the JK set or conventional."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

from pyscf import df, gto, lib, scf
from threadpoolctl import threadpool_limits

from trnqc.chem.orbitals import check_reference

GRADIENT_FACTOR = 0.1
"""Times sqrt(conv_tol): a tenth of PySCF's default, because E(corr) is linear in the error of the orbitals."""


def run_rhf(
    mol: gto.Mole,
    *,
    density_fit: bool = True,
    conv_tol: float = 1e-10,
    max_cycle: int = 100,
    allow_unconverged: bool = False,
    progress: Callable[[str, int, int], None] | None = None,
    kept: Mapping[str, Any] | None = None,
) -> Any:
    """Run RHF and return the PySCF object; conv_tol in Hartree. NotConverged unless allowed.

    kept: e_tot, mo_energy, mo_coeff and mo_occ (and, if it has not, converged) of a run, which then stand in for it.
    """
    mf = scf.RHF(mol)
    if density_fit:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PySCF advertises another package whenever a set is missing
            mf = mf.density_fit(auxbasis=df.make_auxbasis(mol))
    mf.conv_tol, mf.conv_tol_grad, mf.max_cycle = conv_tol, GRADIENT_FACTOR * conv_tol**0.5, max_cycle
    if progress:
        mf.callback = lambda env: progress("SCF", env["cycle"] + 1, 0)
    if mol.verbose == 0:
        mf.verbose = lib.logger.QUIET
    if kept is not None:
        mf.__dict__.update({"converged": True} | dict(kept))
        return mf
    # PySCF threads by OpenMP; a second set of threads inside small BLAS calls only fights with it.
    with threadpool_limits(1, user_api="blas"):
        mf.kernel()
    check_reference(mf, allow_unconverged)
    return mf


def generated_fitting_sets(mf: Any) -> tuple[str, ...]:
    """Elements whose JK-fitting set is not in the library, so that PySCF generated one."""
    sets = getattr(mf, "with_df", None) and mf.with_df.auxbasis
    return tuple(sorted(s for s, name in sets.items() if not isinstance(name, str))) if isinstance(sets, dict) else ()
