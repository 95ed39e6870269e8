"""The ranks of a command that torchrun has started, and the options about them."""

from __future__ import annotations

import argparse
import os
from contextlib import AbstractContextManager, nullcontext

from trnqc.cli.molecule_options import positive
from trnqc.errors import BackendUnavailable
from trnqc.ranks import ALONE, TRANSPORTS, Ranks


def add_ranks(parser: argparse.ArgumentParser, command: str) -> argparse._ArgumentGroup:
    """Declare the group of options about ranks, and return it."""
    group = parser.add_argument_group(
        "ranks", f"for jobs started by torchrun --nproc-per-node N -m trnqc {command} ..."
    )
    group.add_argument(
        "--ranks-over",
        choices=tuple(TRANSPORTS),
        default="cpu",
        help="device of the arrays that ranks exchange, by gloo, nccl or the vendor's library (default: %(default)s)",
    )
    group.add_argument(
        "--rank-timeout",
        type=float,
        default=1800.0,
        metavar="SECONDS",
        help="how long ranks wait for another; one without heartbeat for a quarter of this (at most 30) ends the job",
    )
    return group


def ranks_of(args: argparse.Namespace) -> AbstractContextManager[Ranks]:
    """The ranks that torchrun has started, or `ALONE`. Raises InputError, BackendUnavailable."""
    positive("--rank-timeout", args.rank_timeout)
    if not ("WORLD_SIZE" in os.environ and "RANK" in os.environ):
        return nullcontext(ALONE)
    try:
        from trnqc.ranks.transport import started
    except ImportError as error:
        raise BackendUnavailable(f"several ranks need PyTorch: {error}; install the extra 'torch'") from error
    return started(args.ranks_over, args.rank_timeout)
