"""DF-MP2 energy of a molecule: RHF, factors in fp64, pair energies on the chosen backend."""

from __future__ import annotations

import argparse
import math
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from rich.console import Console

from trnqc.backends import pair_backends
from trnqc.cli.report import brief, report
from trnqc.errors import BackendUnavailable, InputError
from trnqc.host.memory import parse_memory
from trnqc.host.progress import StageBars
from trnqc.mp2.jobs.job import Job
from trnqc.mp2.jobs.job import run as run_job
from trnqc.mp2.reference.hartree_fock import SOURCES
from trnqc.mp2.reference.molecule import UNITS, load_geometry
from trnqc.mp2.result import SCS, SOS, MP2Result
from trnqc.ranks.groups import SCHEDULES
from trnqc.types import PRECISIONS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options, in groups as the help prints them."""
    parser.add_argument(
        "geometry",
        nargs="?",
        default="benzene",
        help="an xyz file, or a molecule known by name: benzene, caffeine, water, ... (default: %(default)s)",
    )
    _molecule(parser.add_argument_group("molecule"))
    _reference(parser.add_argument_group("reference"))
    _correlation(parser.add_argument_group("correlation"))
    _machine(parser.add_argument_group("machine"))
    _ranks(parser.add_argument_group("ranks", "of a job started as torchrun --nproc-per-node N -m trnqc mp2 ..."))
    _output(parser.add_argument_group("output"))


def run(args: argparse.Namespace) -> int:
    """Compute, print, and write JSON if asked."""
    _positive("--rank-timeout", args.rank_timeout)
    if "WORLD_SIZE" in os.environ and "RANK" in os.environ:
        return _run_as_rank(args)
    _check_target(args.json)
    job = job_from(args)
    console = Console(stderr=True)
    if args.quiet:
        result = run_job(job)
    else:
        with StageBars(console) as progress:
            result = run_job(job, progress)
    _show(args, result, console)
    return 0


def _run_as_rank(args: argparse.Namespace) -> int:
    """The same as one rank of a job that torchrun has started; rank 0 alone prints and writes."""
    try:
        from trnqc.ranks.transport import started
    except ImportError as error:
        raise BackendUnavailable(f"several ranks need PyTorch: {error}; install the extra 'torch'") from error

    def checked() -> Job:
        _check_target(args.json)
        return job_from(args)

    with started(args.ranks_over, args.rank_timeout) as ranks:
        ranks.at("start")
        job = ranks.at_first(checked)
        console = Console(stderr=True, quiet=ranks.rank > 0)
        with StageBars(console) if not (args.quiet or ranks.rank) else nullcontext() as progress:
            result = run_job(job, progress, ranks, args.schedule)
        if ranks.rank == 0:
            _show(args, result, console)
    return 0


def _show(args: argparse.Namespace, result: MP2Result, console: Console) -> None:
    if args.quiet:
        print(brief(result))
    else:
        Console().print(report(result, pairs=args.pairs))
    for message in result.warnings:
        console.print(f"[yellow]warning:[/] {message}", highlight=False, soft_wrap=True)
    if args.json:
        result.save(args.json)


def job_from(args: argparse.Namespace) -> Job:
    """The job that the options describe."""
    return Job(
        geometry=load_geometry(args.geometry, args.charge, args.spin, args.unit),
        basis=args.basis,
        auxbasis=args.auxbasis,
        frozen=_frozen(args),
        backend=args.backend,
        precision=args.precision,
        fused=args.fused_energy,
        compare_with=tuple(_other(text) for text in args.compare_with),
        scs=(args.scs_os, args.scs_ss),
        sos=args.sos,
        max_memory=parse_memory(args.max_memory) / 1e6 if args.max_memory else None,
        checkpoint=args.checkpoint,
        threads=_positive("--threads", args.threads),
        scf=args.scf,
        density_fit=not args.conventional,
        conv_tol=_positive("--conv-tol", args.conv_tol),
        max_cycle=_positive("--max-cycle", args.max_cycle),
        allow_unconverged=args.allow_unconverged,
        verbose=4 if args.verbose else 0,
    )


def _molecule(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--charge", type=int, default=0, help="charge of the molecule (default: 0)")
    group.add_argument("--spin", type=int, default=0, help="unpaired electrons, 2S as in PySCF; only 0 is supported")
    group.add_argument(
        "--unit",
        type=str.lower,
        choices=tuple(UNITS),
        default="angstrom",
        help="of the file's coordinates (default: angstrom)",
    )
    group.add_argument("--basis", default="cc-pvdz", help="orbital basis (default: %(default)s)")


def _reference(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--scf", choices=SOURCES, default="trnqc",
        help="what makes J and K of the SCF: our integrals, or PySCF as it is, to compare (default: %(default)s)",
    )  # fmt: skip
    group.add_argument(
        "--conventional", action="store_true", help="no density fitting in the SCF (default: fitted, JK set)"
    )
    group.add_argument(
        "--conv-tol", type=float, default=1e-10, metavar="HARTREE", help="SCF threshold (default: %(default)s)"
    )
    group.add_argument(
        "--max-cycle", type=int, default=100, metavar="N", help="SCF cycles at most (default: %(default)s)"
    )
    group.add_argument("--allow-unconverged", action="store_true", help="go on with an SCF that has not converged")


def _correlation(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--auxbasis",
        metavar="SET",
        help="auxiliary basis (default: the RI set of the orbital basis; autoaux generates one)",
    )
    core = group.add_mutually_exclusive_group()
    core.add_argument("--frozen-core", action="store_true", help="freeze the chemical core (the default)")
    core.add_argument("--all-electron", action="store_true", help="freeze nothing")
    core.add_argument(
        "--frozen", metavar="N|I,J,...", help="freeze the N lowest orbitals, or those with these indices from 0"
    )
    group.add_argument(
        "--scs-os", type=float, default=SCS[0], metavar="C", help="SCS opposite-spin factor (default: 6/5)"
    )
    group.add_argument("--scs-ss", type=float, default=SCS[1], metavar="C", help="SCS same-spin factor (default: 1/3)")
    group.add_argument(
        "--sos", type=float, default=SOS, metavar="C", help="SOS opposite-spin factor (default: %(default)s)"
    )


def _machine(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--backend",
        choices=("auto", *pair_backends()),
        default="auto",
        help="auto: a usable Trainium device, else cpu (default: %(default)s)",
    )
    group.add_argument(
        "--precision",
        choices=PRECISIONS,
        help="of the pair step (default: fp64 where the backend has it, else fp32); bf16 is for screening",
    )
    group.add_argument(
        "--fused-energy", action=argparse.BooleanOptionalAction, default=False,
        help="energy expression inside the product kernel, or products and energies apart (default: apart)",
    )  # fmt: skip
    group.add_argument(
        "--compare-with", action="append", default=[], metavar="BACKEND[:PRECISION]",
        help="run the same pairs on this backend too and print the differences; may be repeated",
    )  # fmt: skip
    group.add_argument("--threads", type=int, metavar="N", help="default: OMP_NUM_THREADS, else all cores")
    group.add_argument(
        "--max-memory", metavar="SIZE",
        help="4G, 500M, or a number of MB (default: what is free); what does not fit goes to disk, below TMPDIR",
    )  # fmt: skip
    group.add_argument(
        "--checkpoint", type=Path, metavar="DIR",
        help="keep orbitals, factors and finished pairs there; the same command goes on where it was cut off",
    )  # fmt: skip


def _ranks(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--schedule", choices=SCHEDULES, default="dynamic",
        help="tasks settled by modelled costs, or given to whoever asks for the next (default: %(default)s)",
    )  # fmt: skip
    group.add_argument(
        "--ranks-over", choices=("cpu", "cuda", "neuron", "xla"), default="cpu",
        help="where what ranks send each other travels from: gloo, nccl, the vendor's (default: %(default)s)",
    )  # fmt: skip
    group.add_argument(
        "--rank-timeout", type=float, default=1800.0, metavar="SECONDS",
        help="how long a rank waits for another; a quarter of it, at most 30, without a sign of life ends the job",
    )  # fmt: skip


def _output(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--json", type=Path, metavar="FILE", help="write the whole result, every digit")
    group.add_argument("--pairs", action="store_true", help="print the energy of every pair")
    loud = group.add_mutually_exclusive_group()
    loud.add_argument(
        "-v", "--verbose", action="count", default=0, help="PySCF's SCF output; twice: tracebacks of errors too"
    )
    loud.add_argument("-q", "--quiet", action="store_true", help="one line with the total energy")


def _frozen(args: argparse.Namespace) -> str | int | list[int]:
    if args.all_electron:
        return 0
    if args.frozen is None:
        return "core"
    try:
        return [int(text) for text in args.frozen.split(",")] if "," in args.frozen else int(args.frozen)
    except ValueError:
        raise InputError(f"--frozen takes a number or indices such as 0,1,40, got {args.frozen!r}") from None


def _other(text: str) -> tuple[str, str | None]:
    name, _, precision = text.partition(":")
    return name, precision or None


def _positive(option: str, value: Any) -> Any:
    if value is not None and not 0 < value < math.inf:  # NaN is not positive either
        raise InputError(f"{option} must be positive, got {value}")
    return value


def _check_target(path: Path | None) -> None:
    """Before hours of work rather than after them."""
    if path is None:
        return
    if (path.exists() and not path.is_file()) or not os.access(path.parent, os.W_OK):
        raise InputError(
            f"--json {path}: cannot be written there; give a file in an existing directory that you may write to"
        )
