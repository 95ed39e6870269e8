"""The description of a Hartree-Fock, Kohn-Sham, double-hybrid or RPA job, and the PySCF object that follows from it.

MeanFieldJob -> Mole -> RHF, RKS, ... with fitting, solvent and dispersion -> `trnqc.accelerate`
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyscf import df, dft, gto, scf
from pyscf.solvent import smd

from trnqc.errors import InputError, UnsupportedError
from trnqc.host.memory import available_memory
from trnqc.mp2.hybrids.recipes import RECIPES, HybridRecipe, named
from trnqc.mp2.job import SHARE_OF_FREE_MEMORY, limited_molecule, reference_of
from trnqc.mp2.reference.molecule import Geometry
from trnqc.mp2.reference.orbitals import SpinFrozen
from trnqc.mp2.scf.hartree_fock import SOURCES
from trnqc.pyscf.accelerate import accelerate
from trnqc.pyscf.shared.attach import attach
from trnqc.pyscf.shared.work import SharedWork

# Solvent models by name, with PySCF's name of the continuum model; SMD has its own class.
SOLVENT_MODELS = {"smd": "SMD", "c-pcm": "C-PCM", "ief-pcm": "IEF-PCM", "ss(v)pe": "SS(V)PE", "cosmo": "COSMO"}
# The column of the relative permittivity in the table of solvents of SMD.
_PERMITTIVITY = 5


@dataclass(frozen=True)
class MeanFieldJob:
    """A description of what is computed, and how.

    Attributes
    ----------
    geometry, basis
        The molecule and its orbital basis. Elements get the effective core potential that belongs to the basis.
    xc
        "hf", a functional in PySCF's notation, or a double hybrid of docs/double_hybrids.md.
    rpa
        Whether the correlation energy is that of the direct random-phase approximation with the orbitals of `xc`.
    frozen
        Orbitals that double hybrids and RPA do not correlate: "core" for the chemical core, else as in `trnqc.DFMP2`.
    reference
        "rhf", "uhf" or "rohf", also for functionals; by default RHF for closed shells and UHF for open shells.
    direct
        Whether J and K are computed from exact integrals instead of density-fitted ones.
    auxbasis
        Fitting functions; by default those that PySCF takes for the basis.
    dispersion
        Version of a dispersion correction, such as "d3bj" or "d4", as ``mf.disp`` of PySCF; "none" for no dispersion,
        also if it belongs to the functional.
    solvent, solvent_model
        Name of a solvent, as in PySCF's table of SMD, and one of SOLVENT_MODELS.
    grid
        Level of the quadrature grid, 0 to 9, as ``mf.grids.level``.
    grid_response
        Whether derivatives of the energy include the response of the quadrature grid to displaced nuclei.
    exchange
        How K is computed, as in `trnqc.accelerate`.
    scf
        "trnqc", or "pyscf" for J, K and quadrature by unchanged PySCF, to compare.
    conv_tol, max_cycle
        Threshold of the energy in Hartree, and the largest number of cycles.
    memory
        Bytes that the job may add to the process; None for most of the free memory.
    checkpoint
        PySCF's file of orbitals, from which the job begins if it exists and to which it writes them.
    verbose
        PySCF's verbosity.
    """

    geometry: Geometry
    basis: str = "def2-svp"
    xc: str = "hf"
    rpa: bool = False
    frozen: SpinFrozen | str = "core"
    reference: str | None = None
    direct: bool = False
    auxbasis: str | None = None
    dispersion: str | None = None
    solvent: str | None = None
    solvent_model: str = "smd"
    grid: int = 3
    grid_response: bool = False
    exchange: str | None = None
    scf: str = "trnqc"
    conv_tol: float = 1e-9
    max_cycle: int = 100
    memory: float | None = None
    checkpoint: str | Path | None = None
    verbose: int = 0


def name_of(job: MeanFieldJob) -> str:
    """The method in words, such as "B3LYP-D3BJ/def2-svp in water (SMD)"."""
    hybrid = double_hybrid_of(job)
    xc = hybrid.name if hybrid else "HF" if is_hartree_fock(job) else job.xc.upper()
    version = job.dispersion or ("d3bj" if hybrid and hybrid.with_dispersion else "none")
    dispersion = "" if version == "none" else f"-{version.upper()}"
    solvent = f" in {job.solvent} ({SOLVENT_MODELS[job.solvent_model]})" if job.solvent else ""
    return f"{'RPA@' if job.rpa else ''}{xc}{dispersion}/{job.basis}{solvent}"


def double_hybrid_of(job: MeanFieldJob) -> HybridRecipe | None:
    """The recipe of the job's functional if that is a double hybrid."""
    return named(job.xc)


def is_hartree_fock(job: MeanFieldJob) -> bool:
    """Whether a job has no functional."""
    return job.xc.lower() == "hf"


def check(job: MeanFieldJob) -> None:
    """Check a job before anything is computed. Raises InputError, UnsupportedError."""
    kind_of(job)
    if job.scf not in SOURCES:
        raise InputError(f"the source of integrals must be one of {', '.join(SOURCES)}, found {job.scf!r}")
    if not 0 <= job.grid <= 9:
        raise InputError(f"the level of the grid must be 0 to 9, found {job.grid}")
    if job.solvent_model not in SOLVENT_MODELS:
        raise InputError(f"the solvent model must be one of {', '.join(SOLVENT_MODELS)}, found {job.solvent_model!r}")
    if job.solvent is not None:
        solvent_of(job.solvent)
    if job.grid_response and is_hartree_fock(job):
        raise InputError("Hartree-Fock has no quadrature grid: leave out the response of the grid")
    if job.grid_response and double_hybrid_of(job):
        raise UnsupportedError(f"the gradient of {job.xc} is that on a fixed grid: leave out the response of the grid")
    if not is_hartree_fock(job) and not double_hybrid_of(job):
        _check_functional(job.xc)


def kind_of(job: MeanFieldJob) -> str:
    """The reference of a job: "R", "U" or "RO"."""
    return reference_of(job.geometry, job.reference).removesuffix("HF")


def solvent_of(name: str) -> str:
    """The name of a solvent in PySCF's table. Raises InputError."""
    if name.lower() in smd.solvent_db:
        return name.lower()
    near = difflib.get_close_matches(name.lower(), smd.solvent_db, n=3)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise InputError(
        f"unknown solvent {name!r}; {hint}the {len(smd.solvent_db)} names are those of pyscf.solvent.smd.solvent_db"
    )


def _check_functional(xc: str) -> None:
    """Raise InputError for a functional that PySCF does not know."""
    try:
        dft.libxc.parse_xc(xc)
    except (KeyError, ValueError, AttributeError) as error:
        reason = str(error.args[0]).rstrip(".")
        hybrids = ", ".join(one.name for one in RECIPES)
        raise InputError(
            f"unknown functional {xc!r}: {reason}; names are those of PySCF and libxc, hf, and of the double hybrids "
            f"{hybrids}"
        ) from None


def method_of(job: MeanFieldJob, mol: gto.Mole | None = None, shared: SharedWork | None = None) -> Any:
    """The object of the SCF of a job, which has not been run: PySCF's class with our integrals.

    Parameters
    ----------
    job
        What is computed, and how.
    mol
        The molecule, if it exists already.
    shared
        The ranks that compute together with this one, with our integrals.

    Raises
    ------
    TrnqcError
        If the job is not possible; see `check`.
    """
    check(job)
    mol, hybrid = mol or molecule_of(job, shared), double_hybrid_of(job)
    if is_hartree_fock(job):
        mf = getattr(scf, f"{kind_of(job)}HF")(mol)
    else:
        mf = getattr(dft, f"{kind_of(job)}KS")(mol, xc=hybrid.scf if hybrid else job.xc)
        mf.grids.level = job.grid
    mf.chkfile = mf._chkfile = None
    if not job.direct:
        mf = mf.density_fit(auxbasis=job.auxbasis or df.make_auxbasis(mol))
    if job.dispersion and not hybrid:
        mf.disp = False if job.dispersion == "none" else job.dispersion
    if job.solvent:
        mf = _dissolved(mf, job)
    if job.scf == "trnqc":
        # All ranks compute, so that all of them need the kernels before the SCF begins.
        mf = accelerate(mf, exchange=job.exchange, kernels="wait" if shared else None)
        if shared:
            attach(mf, shared)
    mf.conv_tol, mf.max_cycle = job.conv_tol, job.max_cycle
    _use_checkpoint(mf, job)
    return mf


def molecule_of(job: MeanFieldJob, shared: SharedWork | None = None) -> gto.Mole:
    """PySCF's molecule of a job, with its memory limit, which is that of each rank."""
    memory = job.memory or SHARE_OF_FREE_MEMORY * available_memory() / (shared.ranks.neighbours if shared else 1)
    return limited_molecule(job.geometry, job.basis, memory, job.verbose)


def _dissolved(mf: Any, job: MeanFieldJob) -> Any:
    assert job.solvent is not None
    solvent = solvent_of(job.solvent)
    if job.solvent_model == "smd":
        mf = mf.SMD()
        mf.with_solvent.solvent = solvent
        return mf
    mf = mf.PCM()
    mf.with_solvent.method = SOLVENT_MODELS[job.solvent_model]
    mf.with_solvent.eps = smd.solvent_db[solvent][_PERMITTIVITY]
    return mf


def _use_checkpoint(mf: Any, job: MeanFieldJob) -> None:
    """Begin with the orbitals of the checkpoint if there are any, and write the orbitals there."""
    if job.checkpoint is None:
        return
    path = Path(job.checkpoint)
    if path.exists():
        try:
            symbols = scf.chkfile.load_mol(str(path)).elements
        except Exception as error:
            raise InputError(f"{path}: no file of orbitals that PySCF can read ({error}); name another") from error
        if symbols != mf.mol.elements:
            raise InputError(f"{path}: orbitals of {' '.join(symbols)}; expected those of {' '.join(mf.mol.elements)}")
        mf.init_guess = "chkfile"
    mf.chkfile = str(path)
