"""The Hartree-Fock reference of a job: PySCF's RHF, UHF or ROHF, density-fitted with the JK set or conventional.

J and K are computed from our integrals (`trnqc.accelerate`) or, to compare, from PySCF's.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from pyscf import df, gto, lib, scf

from trnqc.errors import InputError, UnsupportedError
from trnqc.host.blas import single_threaded
from trnqc.host.files import temporary_place
from trnqc.mp2.execution import Progress
from trnqc.mp2.reference.orbitals import check_reference
from trnqc.mp2.reference.semicanonical import fock_matrices
from trnqc.pyscf.accelerate import accelerate
from trnqc.pyscf.shared.attach import attach
from trnqc.pyscf.shared.work import SharedWork

# The integrals from which J and K of the SCF can be computed.
SOURCES = ("trnqc", "pyscf")
# Threshold of the orbital gradient divided by sqrt(conv_tol). PySCF's factor is 1; this is a tenth of it, because the
# error of the correlation energy is linear in the error of the orbitals.
GRADIENT_FACTOR = 0.1


def run_scf(
    mol: gto.Mole,
    kind: str = "RHF",
    *,
    source: str = "trnqc",
    scf_backend: str = "cpu",
    early_precision: str = "fp32",
    density_fit: bool = True,
    conv_tol: float = 1e-10,
    max_cycle: int = 100,
    allow_unconverged: bool = False,
    stability: bool = False,
    progress: Progress | None = None,
    shared: SharedWork | None = None,
    kept: Mapping[str, Any] | None = None,
    guess: Any = None,
) -> Any:
    """Run Hartree-Fock and return the converged PySCF object.

    An ROHF object has the additional attribute spin_fock, the Fock matrices [2, nao, nao] of both spins. Messages about
    an unstable solution are in the attribute doubts.

    Parameters
    ----------
    mol : Mole
        The molecule.
    kind : {"RHF", "UHF", "ROHF"}
        The kind of reference.
    source : {"trnqc", "pyscf"}
        Whether J and K are computed from our integrals or from PySCF's.
    scf_backend, early_precision : str
        Where J and K of early cycles are computed, as in `trnqc.accelerate`, for source "trnqc".
    density_fit : bool
        Whether the SCF is density-fitted, with the JK set of the orbital basis.
    conv_tol : float
        Threshold of the energy in Hartree.
    max_cycle : int
        Largest number of SCF cycles.
    allow_unconverged : bool
        Whether to return an SCF that has not converged.
    stability : bool
        Whether to check that the solution of RHF or UHF is stable, see `trnqc.mp2.response.stability`.
    progress : callable, optional
        Called as progress("SCF", cycle, 0) after each cycle.
    shared : SharedWork, optional
        The ranks that compute J and K together with this process, for source "trnqc".
    kept : mapping, optional
        e_tot, mo_energy, mo_coeff, mo_occ and ran_on (and converged, if it is False) of an earlier run, which replace
        a new run.
    guess : numpy.ndarray, optional
        Density matrix from which the SCF starts.

    Raises
    ------
    NotConverged
        If the SCF has not converged, unless that is allowed.
    InputError
        If the source is unknown.
    UnsupportedError
        If the backend cannot compute these J and K, or if the stability of ROHF is to be checked, or that of a solution
        that several ranks compute.
    """
    if stability and (kind == "ROHF" or shared):
        raise UnsupportedError(
            "the stability of the SCF is checked for RHF and UHF in one process: leave out --stability "
            f"(stability=True) for {'several processes' if shared else 'ROHF'}, or call mf.stability() of PySCF"
        )
    # All ranks compute J and K, so all of them need the kernels before the SCF begins.
    if scf_backend != "cpu" and source != "trnqc":
        raise UnsupportedError(
            f"J and K from PySCF's integrals do not run on backend {scf_backend!r}: leave out --scf {source} (source) "
            f"or --scf-backend {scf_backend} (scf_backend)"
        )
    kernels = "wait" if shared else None
    mf = _scf_object(mol, kind, source, density_fit)
    if source == "trnqc":
        mf = accelerate(mf, scf_backend, kernels=kernels, early_precision=early_precision)
    mf.conv_tol, mf.conv_tol_grad, mf.max_cycle = conv_tol, GRADIENT_FACTOR * conv_tol**0.5, max_cycle
    if progress:
        mf.callback = lambda env: progress("SCF", env["cycle"] + 1, 0)
    if mol.verbose == 0:
        mf.verbose = lib.logger.QUIET
    if kept is not None:
        mf.__dict__.update({"converged": True} | dict(kept))
        _note_instability(mf, stability)
        return mf
    if shared and source == "trnqc":
        attach(mf, shared)
    # PySCF uses OpenMP and our J and K use threads of their own. Threads inside BLAS compete with both: on two cores,
    # two threads for the diagonalisations doubled the processor time of the whole SCF.
    with single_threaded():
        mf.kernel(guess)
        check_reference(mf, allow_unconverged)
        if kind == "ROHF":
            mf.spin_fock = fock_matrices(mf)
    _note_instability(mf, stability)
    return mf


def _note_instability(mf: Any, stability: bool) -> None:
    if stability:
        from trnqc.mp2.response.stability import stability_warnings  # Few jobs need it.

        mf.doubts = stability_warnings(mf, lib.num_threads())


def _scf_object(mol: gto.Mole, kind: str, source: str, density_fit: bool) -> Any:
    if source not in SOURCES:
        raise InputError(f"the source of J and K must be one of {', '.join(SOURCES)}, got {source!r}")
    temporary_place()  # PySCF makes a file there for every object.
    mf = {"RHF": scf.RHF, "UHF": scf.UHF, "ROHF": scf.ROHF}[kind](mol)
    # It writes orbitals to that file in every cycle, which nobody reads, and HDF5 crashes where the disk is full.
    mf.chkfile = mf._chkfile = None
    if density_fit:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PySCF advertises another package whenever a set is missing.
            mf = mf.density_fit(auxbasis=df.make_auxbasis(mol))
    return mf


def jk_ran_on(mf: Any) -> str:
    """Description of the code that computed J and K of an SCF object."""
    words = getattr(mf, "ran_on", "PySCF")
    return words.decode() if isinstance(words, bytes) else str(words)  # HDF5 returns bytes.


def drop_integrals(mf: Any) -> None:
    """Free the two-electron integrals that an SCF object keeps; its orbitals and energies remain."""
    mf._eri = None
    if getattr(mf, "with_df", None):
        mf.with_df.reset()


def generated_fitting_sets(mf: Any) -> tuple[str, ...]:
    """Elements for which the library has no JK-fitting set, so that PySCF generated one."""
    sets = getattr(mf, "with_df", None) and mf.with_df.auxbasis
    return tuple(sorted(s for s, name in sets.items() if not isinstance(name, str))) if isinstance(sets, dict) else ()
