"""Hartree-Fock, DFT, double hybrids and RPA of molecules: energies, optimised geometries, vibrations, excited states.

Examples: trnqc scf water --xc b3lyp --optimize --frequencies; trnqc scf file.xyz --xc b2plyp --basis def2-tzvp.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from pyscf import lib
from pyscf.tools import cubegen, molden
from rich.console import Console

from trnqc.cli.rank_options import ranks_of
from trnqc.cli.scf.options import add_options, jobs_from, tasks_from
from trnqc.cli.scf.report import brief, report
from trnqc.cli.steps import StepLog
from trnqc.cli.tables import titled
from trnqc.errors import TrnqcError, UnsupportedError
from trnqc.host import blas
from trnqc.host.files import write_aside
from trnqc.host.output import STANDARD_OUTPUT
from trnqc.host.progress import StageBars
from trnqc.host.threads import thread_count
from trnqc.interfaces.extxyz import write_extxyz
from trnqc.interfaces.mean_field.job import check
from trnqc.interfaces.mean_field.page import page
from trnqc.interfaces.mean_field.result import SCFResult
from trnqc.interfaces.mean_field.run import check_tasks
from trnqc.interfaces.mean_field.run import run as run_job
from trnqc.pyscf.shared.work import SharedWork

add_arguments = add_options


def run(args: argparse.Namespace) -> int:
    """Carry out the tasks for each frame, print, and write files.

    Of several ranks, rank 0 does this, and the others compute with it what ranks can share.
    """
    threads = thread_count(args.threads, lib.num_threads)
    with ranks_of(args) as ranks, lib.with_omp_threads(threads), blas.limited(args.threads):
        ranks.at("start")
        shared = SharedWork(ranks) if ranks.size > 1 else None
        if shared and ranks.rank:
            logging.getLogger("trnqc").setLevel(logging.WARNING)
            shared.serve()
        else:
            _run_frames(args, shared)
            if shared:
                shared.end()
    return 0


def _run_frames(args: argparse.Namespace, shared: SharedWork | None) -> None:
    """Carry out the tasks for each frame, one after another; what is finished is printed and written at once."""
    jobs, tasks = jobs_from(args), tasks_from(args)
    for job in jobs:
        check(job)
        check_tasks(job, tasks)
    results: list[SCFResult] = []
    console = Console(stderr=True)
    for number, job in enumerate(jobs, start=1):
        try:
            with nullcontext() if args.quiet else StageBars(console) as progress:
                log = StepLog(console, args.quiet, args.trajectory)
                result, mf = run_job(job, tasks, progress, log, shared)
        except TrnqcError as error:
            if len(jobs) > 1:
                error.args = (f"frame {number} of {len(jobs)}: {error}",)
            raise
        results.append(result)
        _write(args, results, mf, several=len(jobs) > 1)
        _show(args, result, console, several=len(jobs) > 1)
    if args.json == Path(STANDARD_OUTPUT):
        print(_plain(results, len(jobs) > 1))
    elif len(jobs) > 1 and not args.quiet:
        Console(markup=False).print(_frames(results))


def _show(args: argparse.Namespace, result: SCFResult, console: Console, several: bool) -> None:
    name = f"{result.geometry.name}: " if several else ""
    to_file = args.json != Path(STANDARD_OUTPUT)
    if args.quiet and to_file:
        print(f"{name}{brief(result)}")
    elif not several and to_file:
        Console(markup=False).print(report(result))
    for message in result.warnings:
        console.print(f"[yellow]warning:[/] {name}{message}", highlight=False, soft_wrap=True)


def _write(args: argparse.Namespace, results: Sequence[SCFResult], mf: Any, several: bool) -> None:
    """Write the files of the results so far."""
    last = results[-1]
    if args.json and args.json != Path(STANDARD_OUTPUT):
        write_aside(args.json, _plain(results, several) + "\n")
    if args.xyz:
        write_extxyz(args.xyz, [(r.geometry, r.e_tot, r.gradient) for r in results])
    if args.html:
        write_aside(args.html, page(last))
    if args.molden:
        molden.from_scf(mf, str(args.molden), ignore_h=False)
    for what in args.cube:
        _write_cube(what, f"{args.cube_prefix or last.geometry.name}-{what}.cube", last, mf)


def _write_cube(what: str, path: str, result: SCFResult, mf: Any) -> None:
    """Write the density, or an orbital of alpha spin."""
    if what == "density":
        density = mf.make_rdm1()
        cubegen.density(mf.mol, path, density if density.ndim == 2 else density.sum(axis=0))
        return
    orbitals = result.orbitals[0]
    index = orbitals.homo if what == "homo" else orbitals.lumo
    if index is None:
        raise UnsupportedError(f"--cube {what}: {result.geometry.name} has no such orbital in this basis")
    coefficients = mf.mo_coeff if mf.mo_coeff[0].ndim == 1 else mf.mo_coeff[0]
    cubegen.orbital(mf.mol, path, coefficients[:, index])


def _frames(results: Sequence[SCFResult]) -> Any:
    table = titled(f"{results[0].method}, frames / Hartree", "", "total")
    for result in results:
        table.add_row(result.geometry.name, f"{result.e_tot:.10f}")
    return table


def _plain(results: Sequence[SCFResult], several: bool) -> str:
    """The results as JSON: a list if the file has several frames."""
    plain = [result.to_dict() for result in results]
    return json.dumps(plain if several else plain[0], indent=1, allow_nan=False)
