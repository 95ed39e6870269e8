"""The Hartree-Fock reference of the command line: PySCF's RHF, density-fitted with the JK set or conventional.

J and K are made by our integrals (`trnqc.eri.pyscf.accelerate`) or, to compare, by PySCF as it is.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

from pyscf import df, gto, lib, scf

from trnqc.eri.pyscf.accelerate import accelerate
from trnqc.errors import InputError
from trnqc.host.blas import single_threaded
from trnqc.mp2.reference.orbitals import check_reference
from trnqc.mp2.reference.ranks import SharedJK

SOURCES = ("trnqc", "pyscf")
"""What can make J and K of the SCF."""

GRADIENT_FACTOR = 0.1
"""Times sqrt(conv_tol): a tenth of PySCF's default, because E(corr) is linear in the error of the orbitals."""


def run_rhf(
    mol: gto.Mole,
    *,
    source: str = "trnqc",
    density_fit: bool = True,
    conv_tol: float = 1e-10,
    max_cycle: int = 100,
    allow_unconverged: bool = False,
    progress: Callable[[str, int, int], None] | None = None,
    shared: SharedJK | None = None,
    kept: Mapping[str, Any] | None = None,
) -> Any:
    """Run restricted Hartree-Fock and return the converged PySCF object.

    Parameters
    ----------
    source : {"trnqc", "pyscf"}
        What makes J and K: our integrals below PySCF's object, or PySCF as it is.
    conv_tol : float
        Threshold of the energy in Hartree.
    shared : SharedJK, optional
        Ranks that make J and K together with this process; for source "trnqc".
    kept : mapping, optional
        e_tot, mo_energy, mo_coeff, mo_occ and ran_on (and, if the run has not converged, converged) of an earlier
        run, which then stand in for this one.

    Raises
    ------
    NotConverged
        Unless allow_unconverged.
    InputError
        If there is no such source.
    """
    # Ranks make J and K together, so that all of them have to have the kernels.
    mf = _object(mol, source, density_fit, kernels="wait" if shared else None)
    mf.conv_tol, mf.conv_tol_grad, mf.max_cycle = conv_tol, GRADIENT_FACTOR * conv_tol**0.5, max_cycle
    if progress:
        mf.callback = lambda env: progress("SCF", env["cycle"] + 1, 0)
    if mol.verbose == 0:
        mf.verbose = lib.logger.QUIET
    if kept is not None:
        mf.__dict__.update({"converged": True} | dict(kept))
        return mf
    if shared and source == "trnqc":
        shared.attach(mf)
    # PySCF threads by OpenMP and our J and K by threads of their own; a second set of threads inside BLAS only fights
    # with either: on two cores, two threads for the diagonalisations doubled the processor time of the whole SCF.
    with single_threaded():
        mf.kernel()
    check_reference(mf, allow_unconverged)
    return mf


def _object(mol: gto.Mole, source: str, density_fit: bool, kernels: str | None) -> Any:
    if source not in SOURCES:
        raise InputError(f"J and K of the SCF are made by one of {', '.join(SOURCES)}, found {source!r}")
    mf = scf.RHF(mol)
    if density_fit:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PySCF advertises another package whenever a set is missing
            mf = mf.density_fit(auxbasis=df.make_auxbasis(mol))
    return accelerate(mf, kernels=kernels) if source == "trnqc" else mf


def made_by(mf: Any) -> str:
    """What made J and K of an SCF object, in words."""
    words = getattr(mf, "ran_on", "PySCF")
    return words.decode() if isinstance(words, bytes) else str(words)  # HDF5 gives bytes


def let_go(mf: Any) -> None:
    """Drop the two-electron integrals that an SCF keeps; its orbitals and energies stay."""
    mf._eri = None
    if getattr(mf, "with_df", None):
        mf.with_df.reset()


def generated_fitting_sets(mf: Any) -> tuple[str, ...]:
    """Elements whose JK-fitting set is not in the library, so that PySCF generated one."""
    sets = getattr(mf, "with_df", None) and mf.with_df.auxbasis
    return tuple(sorted(s for s, name in sets.items() if not isinstance(name, str))) if isinstance(sets, dict) else ()
