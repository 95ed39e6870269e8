"""List, compile in advance and clear programs in the vendor's caches. Programs of others are never changed."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table

from nki_kernels.descriptors import kernels
from nki_kernels.descriptors.descriptor import ITEMSIZE
from trnqc.backends.neuron.neff import ledger
from trnqc.backends.neuron.neff.caches import VendorCache, entries, vendor_caches
from trnqc.backends.neuron.neff.programs import program
from trnqc.backends.neuron.neff.warming import warm
from trnqc.errors import InputError
from trnqc.sim.launch.targets import TARGETS
from trnqc.tuning.conditions import machine_target
from trnqc.tuning.requests import parse_shape


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare ``list``, ``warm KERNEL --shape ...`` and ``clear [KERNEL]``."""
    parser.add_argument("action", choices=("list", "warm", "clear"), help="what to do")
    parser.add_argument("kernel", nargs="?", choices=tuple(kernels()), metavar="KERNEL", help=", ".join(kernels()))
    parser.add_argument("--shape", help="warm: extents by name or in order, as for trnqc tune")
    parser.add_argument("--precision", choices=tuple(ITEMSIZE), default="fp32", help="warm: default fp32")
    parser.add_argument("--target", choices=tuple(TARGETS), help="warm: default this machine's, else trn2")
    parser.add_argument("--stale", action="store_true", help="clear: only programs of kernels that have changed since")


def run(args: argparse.Namespace) -> int:
    """Run the action. The exit status is 0 even if entries of others were not removed."""
    actions: dict[str, Callable[[argparse.Namespace, Console], None]] = {"list": _list, "warm": _warm, "clear": _clear}
    actions[args.action](args, Console())
    return 0


def _list(args: argparse.Namespace, console: Console) -> None:
    owners = ledger.owners()
    for cache in vendor_caches():
        console.print(table(cache, owners, args.kernel or ""))


def table(cache: VendorCache, owners: dict[Any, Any], kernel: str = "") -> Table:
    """A table with a row for each entry of a cache.

    Parameters
    ----------
    cache
        The cache.
    owners
        Our programs by the path of their entry.
    kernel
        The kernel to which the table is limited, or "".
    """
    rows = Table(title=f"{cache.kind} cache {cache.root} ({cache.decided_by})", title_justify="left")
    for heading in ("entry", "compiler", "state", "MiB", "age", "program"):
        rows.add_column(heading, overflow="fold")
    for entry in entries(cache):
        owner = owners.get(entry.path.absolute())
        if kernel and (owner is None or owner.kernel != kernel):
            continue
        whose = owner.words() if owner else "not ours" + (", calls an NKI kernel" if entry.has_kernel else "")
        age = f"{(time.time() - entry.modified) / 3600:.1f} h"
        rows.add_row(entry.path.name, entry.compiler, entry.state, f"{entry.size / 2**20:.2f}", age, whose)
    rows.caption = cache.note or None
    return rows


def _warm(args: argparse.Namespace, console: Console) -> None:
    if args.kernel is None or args.shape is None:
        raise InputError("trnqc cache warm needs KERNEL and --shape")
    shape = parse_shape(args.kernel, args.shape)
    wanted = program(args.kernel, shape, args.precision, args.target or machine_target())
    compiled = warm(wanted)
    console.print(f"{wanted.words()} (key {wanted.key()})")
    for entry in compiled:
        console.print(f"  compiled into {entry.path}")
    if not compiled:
        console.print("  no new entry in the caches: the program has been compiled before")


def _clear(args: argparse.Namespace, console: Console) -> None:
    done = ledger.clear(args.kernel or "", args.stale)
    for claim, what in done:
        console.print(f"{what}: {claim.path} ({claim.program.words()})")
    removed = sum(what == "removed" for _, what in done)
    console.print(f"{removed} of our {len(done)} entries removed; entries of others are never removed")
