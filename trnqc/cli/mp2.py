"""DF-MP2 energy of a molecule: RHF, factors in fp64, pair energies on the chosen backend."""

from __future__ import annotations

import argparse
import os
from contextlib import AbstractContextManager, nullcontext

from rich.console import Console

from trnqc.cli.mp2_options import add_options, job_from, positive
from trnqc.cli.report import brief, report
from trnqc.errors import BackendUnavailable
from trnqc.host.progress import StageBars
from trnqc.mp2.jobs.job import run as run_job
from trnqc.mp2.result import MP2Result
from trnqc.ranks import ALONE, Ranks

add_arguments = add_options


def run(args: argparse.Namespace) -> int:
    """Run the job, print the result, and write the JSON file. Of several ranks, only rank 0 prints and writes."""
    positive("--rank-timeout", args.rank_timeout)
    with _ranks(args) as ranks:
        ranks.at("start")
        job = ranks.at_first(lambda: job_from(args))
        console = Console(stderr=True, quiet=ranks.rank > 0)
        with nullcontext() if args.quiet or ranks.rank else StageBars(console) as progress:
            result = run_job(job, progress, ranks, args.schedule)
        if ranks.rank == 0:
            _show(args, result, console)
    return 0


def _ranks(args: argparse.Namespace) -> AbstractContextManager[Ranks]:
    """The ranks that torchrun has started, or `ALONE`."""
    if not ("WORLD_SIZE" in os.environ and "RANK" in os.environ):
        return nullcontext(ALONE)
    try:
        from trnqc.ranks.transport import started
    except ImportError as error:
        raise BackendUnavailable(f"several ranks need PyTorch: {error}; install the extra 'torch'") from error
    return started(args.ranks_over, args.rank_timeout)


def _show(args: argparse.Namespace, result: MP2Result, console: Console) -> None:
    if args.quiet:
        print(brief(result))
    else:
        Console().print(report(result, pairs=args.pairs))
    for message in result.warnings:
        console.print(f"[yellow]warning:[/] {message}", highlight=False, soft_wrap=True)
    if args.json:
        result.save(args.json)
