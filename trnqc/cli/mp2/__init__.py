"""DF-MP2 of molecules: energies, gradients, optimised geometries, interaction energies and basis-set limits.

Examples: trnqc mp2 water --basis cc-pvtz; trnqc mp2 file.xyz --optimize --trajectory steps.xyz.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Sequence
from contextlib import nullcontext

from pyscf import lib
from rich.console import Console

from trnqc.cli.molecule_options import positive
from trnqc.cli.mp2.jobs import jobs_from
from trnqc.cli.mp2.options import add_options
from trnqc.cli.mp2.tables import energy_table
from trnqc.cli.mp2.tasks import Outcome, check_task, compute
from trnqc.cli.rank_options import ranks_of
from trnqc.errors import TrnqcError
from trnqc.host import blas
from trnqc.host.clock import Clock
from trnqc.host.files import write_aside
from trnqc.host.output import STANDARD_OUTPUT
from trnqc.host.progress import StageBars
from trnqc.host.threads import thread_count
from trnqc.interfaces.extxyz import write_extxyz
from trnqc.mp2.execution import Progress
from trnqc.mp2.job import Job
from trnqc.mp2.run import run as run_job
from trnqc.ranks import Ranks

add_arguments = add_options


def run(args: argparse.Namespace) -> int:
    """Carry out the task for each frame, print, and write files. Of several ranks, only rank 0 prints and writes."""
    positive("--max-steps", args.max_steps)
    threads = positive("--threads", args.threads)
    with (
        ranks_of(args) as ranks,
        lib.with_omp_threads(thread_count(threads, lib.num_threads)),
        blas.limited(threads),
    ):
        if ranks.rank:
            logging.getLogger("trnqc").setLevel(logging.WARNING)
        ranks.at("start")
        jobs = ranks.at_first(lambda: _checked_jobs(args))
        console = Console(stderr=True, quiet=ranks.rank > 0)
        with nullcontext() if args.quiet or ranks.rank else StageBars(console) as progress:
            outcomes = _outcomes(args, jobs, progress, ranks, console)
        if ranks.rank == 0 and args.json == STANDARD_OUTPUT:
            print(_plain(outcomes, len(jobs) > 1))
        elif ranks.rank == 0 and len(jobs) > 1 and not args.quiet:
            frames = [(outcome.geometry.name, outcome.energy) for outcome in outcomes]
            Console(markup=False).print(energy_table("Frames", frames))
    return 0


def _checked_jobs(args: argparse.Namespace) -> tuple[Job, ...]:
    jobs = jobs_from(args)
    check_task(args, jobs)
    return jobs


def _outcomes(
    args: argparse.Namespace, jobs: Sequence[Job], progress: Progress | None, ranks: Ranks, console: Console
) -> list[Outcome]:
    """Carry out the jobs one after another; what is finished is printed and written at once."""
    outcomes: list[Outcome] = []
    for number, job in enumerate(jobs, start=1):
        if progress and len(jobs) > 1:
            progress("frames", number - 1, len(jobs))
        try:
            with Clock().running() as clock:
                outcome = compute(
                    args, job, lambda one: run_job(one, progress, ranks, args.schedule), progress, console, ranks
                )
            outcomes.append(outcome.timed(clock.seconds))
        except TrnqcError as error:
            if len(jobs) > 1:
                error.args = (f"frame {number} of {len(jobs)}: {error}",)
            raise
        if ranks.rank == 0:
            _show(args, outcomes[-1], console, several=len(jobs) > 1)
            _write(args, outcomes, several=len(jobs) > 1)
    return outcomes


def _show(args: argparse.Namespace, outcome: Outcome, console: Console, several: bool) -> None:
    name = f"{outcome.geometry.name}: " if several else ""
    if args.quiet and args.json != STANDARD_OUTPUT:
        print(f"{name}{outcome.line}")
    elif not several and args.json != STANDARD_OUTPUT:
        Console(markup=False).print(outcome.tables)
    for message in outcome.warnings:
        console.print(f"[yellow]warning:[/] {name}{message}", highlight=False, soft_wrap=True)


def _write(args: argparse.Namespace, outcomes: Sequence[Outcome], several: bool) -> None:
    """Write the files of the outcomes so far."""
    if args.json and args.json != STANDARD_OUTPUT:
        write_aside(args.json, _plain(outcomes, several) + "\n")
    if args.xyz:
        write_extxyz(args.xyz, [(o.geometry, o.energy.e_tot, o.gradient) for o in outcomes])


def _plain(outcomes: Sequence[Outcome], several: bool) -> str:
    """The outcomes as JSON: a list if the file has several frames."""
    plain = [outcome.plain for outcome in outcomes]
    return json.dumps(plain if several else plain[0], indent=1, allow_nan=False)
