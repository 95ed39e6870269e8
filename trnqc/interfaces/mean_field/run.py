"""Runs Hartree-Fock, Kohn-Sham, double-hybrid and RPA jobs.

MeanFieldJob -> [optimised geometry] -> SCF -> [correlation] -> [gradient, vibrations, excitations] -> SCFResult
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pyscf import dft, gto, scf
from pyscf.data.nist import HARTREE2EV
from pyscf.hessian import thermo

from trnqc.errors import InputError, NotConverged, UnsupportedError
from trnqc.host.clock import Clock, measured
from trnqc.interfaces.mean_field.correlation import (
    check_correlation,
    check_dispersion,
    correlated,
    with_correlation,
)
from trnqc.interfaces.mean_field.infrared import intensities, with_dipole_derivatives
from trnqc.interfaces.mean_field.job import (
    MeanFieldJob,
    check,
    double_hybrid_of,
    is_hartree_fock,
    kind_of,
    method_of,
    molecule_of,
    name_of,
)
from trnqc.interfaces.mean_field.result import Cycle, Excitation, Orbitals, SCFResult, Vibrations
from trnqc.interfaces.optimization import MAX_STEPS, GeometryStep, Optimization, optimize
from trnqc.mp2.execution import Progress
from trnqc.mp2.reference.molecule import describe
from trnqc.pyscf.scf_time import seconds_of_scf
from trnqc.pyscf.shared.work import SharedWork

# Parts of the energy in PySCF's `scf_summary`, with the names that are shown.
PARTS = {
    "nuc": "nuclear repulsion",
    "e1": "one electron",
    "coul": "Coulomb",
    "exc": "exchange-correlation",
    "e2": "two electrons",
    "dispersion": "dispersion",
    "e_solvent": "solvent",
}
# Results of PySCF's thermochemistry that are kept, with the names that are shown.
THERMOCHEMISTRY = {
    "temperature": "temperature",
    "pressure": "pressure",
    "ZPE": "zero-point energy",
    "E_0K": "energy at 0 K",
    "E_tot": "internal energy",
    "H_tot": "enthalpy",
    "G_tot": "Gibbs energy",
    "S_tot": "entropy",
    "Cv_tot": "heat capacity at constant volume",
}


@dataclass(frozen=True)
class Tasks:
    """What is computed beside the energy.

    Attributes
    ----------
    gradient, optimize, frequencies
        Whether the gradient, an optimum and vibrations at the (optimised) geometry are computed.
    max_steps
        Largest number of steps of the optimisation.
    temperature, pressure
        Of the thermochemistry, in K and Pa.
    states
        Number of excited states; 0 for none.
    tda, triplets
        Whether the Tamm-Dancoff approximation is made, and whether the states of a closed shell are triplets.
    estimate
        Whether the time that PySCF takes for the last SCF is estimated.
    """

    gradient: bool = False
    optimize: bool = False
    frequencies: bool = False
    max_steps: int = MAX_STEPS
    temperature: float = 298.15
    pressure: float = 101325.0
    states: int = 0
    tda: bool = False
    triplets: bool = False
    estimate: bool = False


@dataclass(frozen=True)
class Stages:
    """The parts of a job: each is shown while it runs, and measured."""

    progress: Progress | None

    @contextmanager
    def begin(self, part: str) -> Iterator[None]:
        """Show a part, and add the time of the context to it."""
        self.report(part)
        with measured(part):
            yield

    def report(self, part: str, done: int = 0) -> None:
        """Show how many steps of a part are finished."""
        if self.progress:
            self.progress(part, done, 0)


def check_tasks(job: MeanFieldJob, tasks: Tasks) -> None:
    """Check that the tasks fit the job, before anything is computed. Raises InputError, UnsupportedError."""
    if tasks.max_steps < 1:
        raise InputError(f"the largest number of steps must be positive, found {tasks.max_steps}")
    if tasks.states < 0:
        raise InputError(f"the number of excited states must not be negative, found {tasks.states}")
    if tasks.triplets and kind_of(job) != "R":
        raise InputError("triplet excitations are those of a closed shell; an open shell has states of both kinds")
    if tasks.states and kind_of(job) == "RO":
        raise UnsupportedError("PySCF has no excited states of restricted open shells: use --reference uhf")
    if tasks.frequencies and kind_of(job) == "RO":
        raise UnsupportedError("PySCF has no Hessian of restricted open shells: use --reference uhf")
    derivatives = tasks.gradient or tasks.optimize
    if job.grid_response and tasks.frequencies:
        _check_hessian_of_moving_grid(job)
    if job.exchange == "seminumerical" and tasks.frequencies:
        raise UnsupportedError("seminumerical exchange has no Hessian: use another --exchange for --frequencies")
    if job.exchange == "seminumerical" and derivatives and double_hybrid_of(job):
        raise UnsupportedError("double hybrids with seminumerical exchange have no gradient: use another --exchange")
    check_correlation(job, derivatives, vibrations=tasks.frequencies, states=tasks.states > 0)


def _check_hessian_of_moving_grid(job: MeanFieldJob) -> None:
    check(job)
    if job.scf == "pyscf":
        raise UnsupportedError("PySCF's Hessian has no response of the grid: use --scf trnqc, or no --grid-response")
    if dft.libxc.is_nlc(job.xc):
        raise UnsupportedError(
            f"{job.xc} has nonlocal correlation, whose second derivatives are those on a fixed grid: take a finer "
            "--grid in place of --grid-response"
        )


def run(
    job: MeanFieldJob,
    tasks: Tasks | None = None,
    progress: Progress | None = None,
    on_step: Callable[[int, GeometryStep], None] | None = None,
    shared: SharedWork | None = None,
) -> tuple[SCFResult, Any]:
    """Carry out a job.

    Parameters
    ----------
    job
        What is computed, and how.
    tasks
        What is computed beside the energy.
    progress
        Called as progress(stage, done, total).
    on_step
        Called as on_step(number, step) after each step of an optimisation.
    shared
        The ranks that compute together with this one, rank 0; the others call its `serve`.

    Returns
    -------
    SCFResult, pyscf.scf.hf.SCF
        The results, and the converged object at the last geometry.

    Raises
    ------
    NotConverged
        If the SCF has not converged. An optimisation that has not converged ends with its best geometry and a warning.
    TrnqcError
        If the job or the tasks are not possible.
    """
    tasks = tasks or Tasks()
    check_tasks(job, tasks)
    with Clock().running() as clock:
        if shared:
            shared.done.clear()
        result, mf = _computed(job, tasks, Stages(progress), on_step, shared)
    if shared:
        result = replace(result, ranks=shared.ranks.size, shared=tuple(shared.done))
    return replace(result, timings=clock.seconds), mf


def _computed(
    job: MeanFieldJob,
    tasks: Tasks,
    stages: Stages,
    on_step: Callable[[int, GeometryStep], None] | None,
    shared: SharedWork | None,
) -> tuple[SCFResult, Any]:
    with stages.begin("basis sets"):
        mol = molecule_of(job, shared)
        check_dispersion(job, mol)
    optimum = None
    if tasks.optimize:
        optimum = _optimum(job, mol, tasks, stages, on_step, shared)
        job = replace(job, geometry=replace(optimum.geometry, name=job.geometry.name))
        mol = molecule_of(job, shared)
    begin = time.perf_counter()
    mf, cycles = _converged(job, mol, stages, shared)
    seconds = time.perf_counter() - begin
    with stages.begin("dipole and charges"):
        result = replace(_energies(job, mf, cycles), scf_seconds=seconds)
    if method := correlated(job, mf, stages.progress):
        with stages.begin("correlation"):
            method.kernel()
            result = with_correlation(result, method)
    if optimum:
        result = replace(result, optimization=optimum, warnings=result.warnings + optimum.warnings)
    if tasks.gradient or tasks.optimize:
        with stages.begin("gradient"):
            result = _with_gradient(job, result, mf if method is None else method)
    if tasks.frequencies:
        result = _with_vibrations(job, result, mf, tasks, stages)
    if tasks.states:
        result = _with_excitations(result, mf, tasks, stages)
    if tasks.estimate:
        with stages.begin("estimate of PySCF's time"):
            result = replace(result, pyscf_estimate=seconds_of_scf(mf, len(cycles)))
    return result, mf


def _converged(
    job: MeanFieldJob, mol: gto.Mole, stages: Stages, shared: SharedWork | None
) -> tuple[Any, tuple[Cycle, ...]]:
    """Run the SCF."""
    with stages.begin("SCF"):
        mf, cycles = method_of(job, mol, shared), list[Cycle]()

    def record(state: dict[str, Any]) -> None:
        cycles.append(Cycle(float(state["e_tot"]), float(state["norm_gorb"])))
        stages.report("SCF", state["cycle"] + 1)

    mf.callback = record
    with stages.begin("SCF"):
        mf.kernel()
    mf.callback = None
    if not mf.converged:
        raise NotConverged(
            f"the SCF has not converged within {job.max_cycle} cycles (E = {mf.e_tot:.8f} Hartree, orbital gradient "
            f"{cycles[-1].orbital_gradient if cycles else float('nan'):.1e}): allow more by --max-cycle, or begin with "
            "other orbitals (--checkpoint)"
        )
    return mf, tuple(cycles)


def _optimum(
    job: MeanFieldJob,
    mol: gto.Mole,
    tasks: Tasks,
    stages: Stages,
    on_step: Callable[[int, GeometryStep], None] | None,
    shared: SharedWork | None,
) -> Optimization:
    mf = method_of(job, mol, shared)
    method = correlated(job, mf, stages.progress) or mf

    def record(number: int, step: GeometryStep) -> None:
        stages.report("geometry", number)
        if on_step:
            on_step(number, step)

    return optimize(_gradients(job, method), tasks.max_steps, record)


def _gradients(job: MeanFieldJob, method: Any) -> Any:
    """The gradients object of a method."""
    gradients = method.nuc_grad_method()
    if job.grid_response:
        gradients.grid_response = True
    return gradients


def _with_gradient(job: MeanFieldJob, result: SCFResult, method: Any) -> SCFResult:
    gradients = _gradients(job, method)
    result = replace(result, gradient=gradients.kernel())
    if result.correlation:
        density = gradients.relaxation.density.rdm1(ao_repr=True)
        dipole = scf.hf.dip_moment(method.mol, density, unit="Debye", verbose=0)
        result = replace(result, relaxed_dipole=np.array(dipole))
    return result


def _energies(job: MeanFieldJob, mf: Any, cycles: tuple[Cycle, ...]) -> SCFResult:
    summary, density = mf.scf_summary, mf.make_rdm1()
    spins = [""] if np.ndim(mf.mo_energy) == 1 else ["alpha", "beta"]
    energies, occupations = np.atleast_2d(mf.mo_energy), np.atleast_2d(mf.mo_occ)
    names = {key: name for key, name in PARTS.items() if key in summary and not (key == "e2" and "exc" in summary)}
    if "exc" in names and is_hartree_fock(job):
        names["exc"] = "exchange"
    return SCFResult(
        geometry=replace(describe(mf.mol), name=job.geometry.name),
        method=name_of(job),
        e_tot=float(mf.e_tot),
        parts={name: float(summary[key]) for key, name in names.items()},
        converged=bool(mf.converged),
        cycles=cycles,
        orbitals=tuple(Orbitals(s, np.array(e), np.array(o)) for s, e, o in zip(spins, energies, occupations)),
        dipole=np.array(mf.dip_moment(mf.mol, density, unit="Debye", verbose=0)),
        charges=_charges(mf, density),
        spin_square=None if kind_of(job) == "R" else float(mf.spin_square()[0]),
        ran_on=str(getattr(mf, "ran_on", "PySCF")),
    )


def _charges(mf: Any, density: Any) -> dict[str, np.ndarray]:
    """Partial charges by Mulliken's analysis, and by that in meta-Loewdin orbitals."""
    overlap = mf.get_ovlp()
    total = density if np.ndim(density) == 2 else density[0] + density[1]
    _, mulliken = scf.hf.mulliken_pop(mf.mol, total, overlap, verbose=0)
    _, loewdin = scf.hf.mulliken_meta(mf.mol, total, verbose=0, s=overlap)
    return {"Mulliken": np.array(mulliken), "meta-Löwdin": np.array(loewdin)}


def _with_vibrations(job: MeanFieldJob, result: SCFResult, mf: Any, tasks: Tasks, stages: Stages) -> SCFResult:
    with stages.begin("Hessian"):
        infrared = with_dipole_derivatives(mf.Hessian())
        if job.grid_response:
            infrared.grid_response = True
        hessian = infrared.kernel()
    analysis = thermo.harmonic_analysis(mf.mol, hessian, imaginary_freq=False)
    # PySCF's thermochemistry takes real frequencies; imaginary ones are left out, as is usual, and said.
    real = analysis["freq_au"][analysis["freq_au"] > 0]
    found = thermo.thermo(mf, real, tasks.temperature, tasks.pressure)
    modes = np.array(analysis["norm_mode"])
    vibrations = Vibrations(
        wavenumbers=tuple(map(float, analysis["freq_wavenumber"])),
        modes=modes / np.linalg.norm(modes.reshape(len(modes), -1), axis=1)[:, None, None],
        reduced_masses=tuple(map(float, analysis["reduced_mass"])),
        intensities=tuple(map(float, intensities(infrared.dipole_derivatives, modes))),
        thermochemistry={name: _quantity(*found[key]) for key, name in THERMOCHEMISTRY.items()},
    )
    doubts = result.warnings
    if vibrations.imaginary:
        doubts += (
            f"{vibrations.imaginary} imaginary frequencies, shown as negative: the geometry is no minimum, and they "
            "are left out of the thermochemistry; begin with --optimize",
        )
    return replace(result, vibrations=vibrations, warnings=doubts)


def _quantity(value: Any, unit: str) -> tuple[float, str]:
    """A quantity of PySCF's thermochemistry with its unit in our words."""
    return float(value), unit.replace("Eh", "Hartree")


def _with_excitations(result: SCFResult, mf: Any, tasks: Tasks, stages: Stages) -> SCFResult:
    response = mf.TDA() if tasks.tda else mf.TDDFT() if hasattr(mf, "xc") else mf.TDHF()
    response.nstates, response.verbose = tasks.states, mf.verbose
    closed = np.ndim(mf.mo_energy) == 1
    if closed:
        response.singlet = not tasks.triplets
    with stages.begin("excited states"):
        response.kernel()
    strengths = [None] * len(response.e) if tasks.triplets else map(float, response.oscillator_strength())
    converged = np.broadcast_to(response.converged, len(response.e))
    states = tuple(Excitation(float(e) * HARTREE2EV, f, bool(c)) for e, f, c in zip(response.e, strengths, converged))
    kind = "" if not closed else "triplets, " if tasks.triplets else "singlets, "
    name = kind + ("TDA" if tasks.tda else "TDDFT" if hasattr(mf, "xc") else "TDHF")
    doubts = result.warnings
    if not all(state.converged for state in states):
        doubts += (f"{sum(not s.converged for s in states)} of {len(states)} excited states have not converged",)
    if len(states) < tasks.states:
        doubts += (f"{len(states)} excited states exist in this basis, {tasks.states} were asked for",)
    ran_on = str(getattr(response, "ran_on", "PySCF"))
    return replace(result, excitations=states, excitation_method=name, excitation_ran_on=ran_on, warnings=doubts)
