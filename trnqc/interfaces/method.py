"""Energy, gradient and dipole of a molecule, for interfaces to other programs.

Job -> DFMP2, from the last density if there is one -> SinglePoint
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pyscf import gto, lib

from trnqc.errors import InputError
from trnqc.host import blas
from trnqc.host.memory import memory_limit
from trnqc.host.threads import thread_count
from trnqc.mp2.dfmp2 import DFMP2
from trnqc.mp2.execution import Progress
from trnqc.mp2.job import Job
from trnqc.mp2.reference.molecule import Geometry, describe
from trnqc.mp2.run import method_of

# Methods by name.
METHODS = ("mp2", "scs-mp2", "sos-mp2")
# Fields of a job that interfaces accept as settings. The other fields are about whole jobs of the command line.
SETTINGS = tuple(
    field.name for field in dataclasses.fields(Job) if field.name not in ("geometry", "compare_with", "checkpoint")
)


@dataclass(frozen=True, eq=False)
class SinglePoint:
    """The results of one geometry.

    Attributes
    ----------
    mp2
        The DF-MP2 object, whose `kernel` has been called.
    energy
        Total energy of the method, Hartree.
    gradient
        Derivatives [natm, 3] of the energy, Hartree/Bohr; None if they were not requested.
    dipole
        Dipole moment [3] by the relaxed density of the method in units of e Bohr, relative to the origin of the
        coordinates; None if it was not requested.
    """

    mp2: DFMP2
    energy: float
    gradient: np.ndarray | None = None
    dipole: np.ndarray | None = None


def job_of_settings(settings: Mapping[str, Any], geometry: Geometry | None = None) -> Job:
    """Build a job from settings by name, which are fields of `trnqc.mp2.job.Job`.

    Raises
    ------
    InputError
        If a name is not one of SETTINGS.
    """
    for name in settings:
        if name not in SETTINGS:
            near = difflib.get_close_matches(name, SETTINGS, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise InputError(f"unknown setting {name!r}; {hint}settings are {', '.join(SETTINGS)}")
    return Job(geometry or Geometry("", (), ()), **settings)


def check_method(method: str) -> str:
    """Return the name of a method in lower case, without "df-" or "ri-". Raises InputError if it is unknown."""
    name = method.lower().removeprefix("df-").removeprefix("ri-")
    if name not in METHODS:
        raise InputError(f"the method must be one of {', '.join(METHODS)}, got {method!r}")
    return name


def single_point(
    job: Job,
    method: str = "mp2",
    *,
    gradient: bool = False,
    dipole: bool = False,
    guess: np.ndarray | None = None,
    progress: Progress | None = None,
) -> SinglePoint:
    """Compute the energy of a job and, on request, its gradient and dipole moment.

    Parameters
    ----------
    job
        What is computed, and how; its checkpoint and comparisons are not used.
    method
        One of METHODS, with the job's factors `scs` and `sos`.
    gradient, dipole
        Whether these are computed.
    guess
        Density matrix in the atomic orbitals of the job's basis set, from which the SCF starts.
    progress
        Called as progress(stage, done, total).

    Raises
    ------
    TrnqcError
        If the input is wrong, or the SCF or the orbital response does not converge.
    """
    name = check_method(method)
    with lib.with_omp_threads(thread_count(job.threads, lib.num_threads)), blas.limited(job.threads):
        mp2 = method_of(replace(job, checkpoint=None, compare_with=()), progress, guess=guess)
        mp2.gradient_scaling = {"mp2": (1.0, 1.0), "scs-mp2": job.scs, "sos-mp2": (job.sos, 0.0)}[name]
        mp2.kernel()
        result = mp2.result
        assert result is not None
        energies: dict[str, Any] = {"mp2": result.e_tot, "scs-mp2": result.e_tot_scs, "sos-mp2": result.e_tot_sos}
        return complete(SinglePoint(mp2, float(energies[name])), gradient=gradient, dipole=dipole)


def complete(point: SinglePoint, *, gradient: bool = False, dipole: bool = False) -> SinglePoint:
    """Compute the gradient and the dipole moment of a finished energy, if they are requested and missing."""
    mp2, density = point.mp2, None
    if gradient and point.gradient is None:
        gradients = mp2.nuc_grad_method()
        point = replace(point, gradient=gradients.kernel())
        density = gradients.relaxation.density.rdm1(ao_repr=True)
    if dipole and point.dipole is None:
        density = mp2.make_rdm1(relaxed=True, ao_repr=True) if density is None else density
        moment = mp2._scf.dip_moment(mp2.mol, density, unit="AU", verbose=0)
        point = replace(point, dipole=np.asarray(moment))
    return point


def default_method(mol: gto.Mole) -> DFMP2:
    """DF-MP2 with a frozen core on density-fitted Hartree-Fock; the energies are computed."""
    mp2 = method_of(Job(describe(mol), memory=memory_limit(mol.max_memory)), mol=mol)
    mp2.kernel()
    return mp2
