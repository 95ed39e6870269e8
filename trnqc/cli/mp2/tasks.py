"""What ``trnqc mp2`` computes of each geometry: an energy, a gradient, an optimum, an interaction energy or a limit.

Job, options -> task -> Outcome
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pyscf import gto, scf
from pyscf.geomopt.addons import as_pyscf_method
from rich.console import Console, Group, RenderableType
from rich.text import Text

from trnqc.cli.mp2.report import brief, report
from trnqc.cli.mp2.tables import energy_table, interaction_table
from trnqc.cli.steps import StepLog
from trnqc.cli.tables import gradient_table, positions_table, steps_table, times_table
from trnqc.errors import InputError
from trnqc.host.files import write_aside
from trnqc.interfaces.counterpoise import check_fragments, counterpoise, parse_fragments
from trnqc.interfaces.energy import Energy
from trnqc.interfaces.extrapolation import ExtrapolatedEnergy, cardinal_numbers, extrapolate
from trnqc.interfaces.optimization import GeometryStep, optimize
from trnqc.interfaces.optimization_page import page
from trnqc.interfaces.surface import Surface
from trnqc.mp2.execution import Progress
from trnqc.mp2.job import Job, below_checkpoint
from trnqc.mp2.reference.molecule import Geometry, build_mole, describe
from trnqc.mp2.result import UNITS, MP2Result
from trnqc.mp2.result_parts import to_plain
from trnqc.mp2.run import method_of
from trnqc.ranks import ALONE, Ranks

RunJob = Callable[[Job], MP2Result]
"""Runs a job, on all ranks."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a task has computed of one geometry.

    Attributes
    ----------
    geometry
        The atoms.
    energy
        The energies of a table of frames, Hartree.
    line, tables
        What is printed, in one line and in full.
    plain
        What a JSON file contains.
    warnings
        Messages about doubts.
    gradient
        Derivatives [natm, 3] of the total energy, Hartree/Bohr, if they were computed.
    """

    geometry: Geometry
    energy: Energy
    line: str
    tables: RenderableType
    plain: dict[str, Any]
    warnings: tuple[str, ...] = ()
    gradient: np.ndarray | None = None

    def timed(self, seconds: Mapping[str, float]) -> Outcome:
        """The outcome with the wall seconds of its parts, in the tables and in JSON."""
        tables = Group(self.tables, Text(), times_table(seconds))
        return replace(self, tables=tables, plain=self.plain | {"timings": dict(seconds)})


def check_task(args: argparse.Namespace, jobs: tuple[Job, ...]) -> None:
    """Check that the options of the tasks fit each other, before anything is computed. Raises InputError."""
    energies = [name for name in ("counterpoise", "extrapolate") if getattr(args, name)]
    forces = [name for name in ("gradient", "optimize") if getattr(args, name)]
    if energies and forces:
        raise InputError(f"--{energies[0]} computes energies only: leave out --{forces[0]}")
    if args.optimize and len(jobs) > 1:
        raise InputError(f"--optimize takes one geometry, {args.geometry} has {len(jobs)} frames")
    for name in ("trajectory", "plot"):
        if getattr(args, name) and not args.optimize:
            raise InputError(f"--{name} shows the steps of --optimize, which is missing")
    if args.counterpoise and args.xyz:
        raise InputError("--xyz writes energies of molecules, and --counterpoise computes interactions: leave one out")
    if args.extrapolate:
        cardinal_numbers(_basis_sets(args))
    if args.counterpoise:
        for job in jobs:
            mol = build_mole(job.geometry, _basis_sets(args)[0])
            check_fragments(mol, parse_fragments(args.counterpoise), first=1)


def compute(
    args: argparse.Namespace,
    job: Job,
    run_job: RunJob,
    progress: Progress | None,
    console: Console,
    ranks: Ranks = ALONE,
) -> Outcome:
    """Carry out the task that the options name for one job."""
    if args.counterpoise:
        return _counterpoise(args, job, run_job, progress)
    if args.extrapolate:
        return _limit(args, job, run_job)
    if args.optimize:
        return _optimum(args, job, progress, console, ranks)
    if args.gradient:
        return _gradient(args, job, progress, ranks)
    result = run_job(job)
    return _outcome(args, result)


def _outcome(args: argparse.Namespace, result: MP2Result, gradient: np.ndarray | None = None) -> Outcome:
    """The outcome of an energy, with the gradient if there is one."""
    assert result.system is not None
    geometry, plain = result.system.geometry, result.to_dict()
    tables: RenderableType = report(result, pairs=args.pairs)
    line = brief(result)
    if gradient is not None:
        force = float(np.linalg.norm(gradient, axis=1).max())
        tables = Group(tables, gradient_table(geometry, gradient))
        line += f", largest force = {force:.3e} Hartree/Bohr"
        plain |= {"gradient": gradient.tolist(), "units": UNITS | {"gradient": "Hartree/Bohr"}}
    return Outcome(geometry, Energy.of(result), line, tables, plain, result.warnings, gradient)


def _gradient(args: argparse.Namespace, job: Job, progress: Progress | None, ranks: Ranks = ALONE) -> Outcome:
    with method_of(job, progress, ranks, args.schedule) as mp2:
        result = mp2.compute()
        gradients = mp2.nuc_grad_method()
        outcome = _outcome(args, result, gradients.kernel())
        density = gradients.relaxation.density.rdm1(ao_repr=True)
    dipole = scf.hf.dip_moment(mp2.mol, density, unit="AU", verbose=0)
    units = outcome.plain["units"] | {"relaxed_dipole": "e Bohr"}
    more = {"relaxed_dipole": dipole.tolist(), "derivatives_ran_on": gradients.ran_on, "units": units}
    return replace(outcome, plain=outcome.plain | more)


def _optimum(
    args: argparse.Namespace, job: Job, progress: Progress | None, console: Console, ranks: Ranks = ALONE
) -> Outcome:
    log = StepLog(console, args.quiet, args.trajectory if ranks.rank == 0 else None)

    def record(number: int, step: GeometryStep) -> None:
        if progress:
            progress("geometry", number, 0)
        log(number, step)

    with Surface(job, progress, ranks, args.schedule).opened() as surface:
        optimum = optimize(as_pyscf_method(surface.mol, surface), args.max_steps, record)
    if args.plot and ranks.rank == 0:
        write_aside(args.plot, page(optimum, f"{job.geometry.name}, DF-MP2/{job.basis}"))
    folder = "optimum" if optimum.converged else f"step-{optimum.best}"
    final = replace(optimum.geometry, name=job.geometry.name)
    last = _gradient(args, below_checkpoint(replace(job, geometry=final), folder), progress, ranks)
    plain = last.plain | optimum.to_dict()
    tables = Group(last.tables, steps_table(optimum), positions_table(optimum))
    return replace(last, tables=tables, plain=plain, warnings=last.warnings + optimum.warnings)


def _limit(args: argparse.Namespace, job: Job, run_job: RunJob) -> Outcome:
    limit = _extrapolated(args, job, run_job)
    name = f"{job.geometry.name}, basis sets {args.extrapolate}, Hartree-Fock by {limit.hf}"
    sets = zip(_basis_sets(args), (limit.small, limit.large))
    tables = energy_table(f"DF-MP2 of {name}", [*sets, ("limit", limit)])
    line = f"E(limit) = {limit.e_tot!r} Hartree, E(corr) = {limit.e_corr!r} Hartree"
    plain = {"schema": "trnqc.extrapolation/1", "units": UNITS, "basis": _basis_sets(args), "e_tot": limit.e_tot}
    return Outcome(job.geometry, limit, line, tables, plain | {"geometry": to_plain(job.geometry)} | to_plain(limit))


def _extrapolated(args: argparse.Namespace, job: Job, run_job: RunJob) -> ExtrapolatedEnergy:
    sets = _basis_sets(args)
    small, large = (run_job(below_checkpoint(replace(job, basis=basis), basis)) for basis in sets)
    return extrapolate(small, large, sets, args.hf_limit)


def _counterpoise(args: argparse.Namespace, job: Job, run_job: RunJob, progress: Progress | None) -> Outcome:
    count = 0

    def method(mol: gto.Mole) -> Any:
        nonlocal count
        count += 1
        part = below_checkpoint(replace(job, geometry=describe(mol)), f"energy-{count}")
        return _extrapolated(args, part, run_job) if args.extrapolate else run_job(part)

    mol = build_mole(job.geometry, _basis_sets(args)[0])
    energies = counterpoise(mol, parse_fragments(args.counterpoise), method, progress)
    line = (
        f"E(interaction) = {energies.corrected.e_tot!r} Hartree, uncorrected = {energies.uncorrected.e_tot!r} Hartree"
    )
    plain = {"schema": "trnqc.counterpoise/1", "units": UNITS, "fragments": args.counterpoise}
    plain |= {"geometry": to_plain(job.geometry), "corrected": _plain(energies.corrected)}
    plain |= {"uncorrected": _plain(energies.uncorrected)} | to_plain(energies)
    return Outcome(job.geometry, energies.corrected, line, interaction_table(job.geometry, energies), plain)


def _basis_sets(args: argparse.Namespace) -> tuple[str, ...]:
    return tuple(args.extrapolate.split(",")) if args.extrapolate else (args.basis,)


def _plain(energy: Energy) -> dict[str, float]:
    return {"e_hf": energy.e_hf, "e_corr": energy.e_corr, "e_tot": energy.e_tot}
