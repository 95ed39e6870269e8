"""List, compile in advance and clear trnqc's programs for Trainium in AWS Neuron's caches.

Files of other programs are never changed.
"""

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
from trnqc.backends.neuron.neff.caches import CachedGraph, VendorCache, entries, other_caches, vendor_caches
from trnqc.backends.neuron.neff.programs import NeffProgram, neff_program
from trnqc.backends.neuron.neff.warming import warm
from trnqc.errors import InputError
from trnqc.host.output import add_output, console_of, write_json
from trnqc.sim.machine.targets import TARGETS
from trnqc.tuning.conditions import machine_target
from trnqc.tuning.requests import parse_shape

Facts = list[dict[str, Any]]
"""What JSON says of each entry."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare ``list``, ``warm KERNEL --shape ...`` and ``clear [KERNEL]``."""
    add, names = parser.add_argument, tuple(kernels())
    add("action", choices=("list", "warm", "clear"), help="what to do; warm compiles")
    add("kernel", nargs="?", choices=names, metavar="KERNEL", help="one of " + ", ".join(names))
    add("--shape", help="warm: sizes by name or in order, as for trnqc tune")
    add("--precision", choices=tuple(ITEMSIZE), default="fp32", help="warm: of the operands (default: fp32)")
    add("--target", choices=tuple(TARGETS), help="warm: generation of Trainium (default: this machine's, else trn2)")
    add("--stale", action="store_true", help="clear: only programs of kernels that have changed since")
    add_output(parser, "the entries")


def run(args: argparse.Namespace) -> int:
    """Run the action. The exit status is 0 even if entries of others were not removed."""
    actions: dict[str, Callable[[argparse.Namespace, Console], Facts]] = {"list": _list, "warm": _warm, "clear": _clear}
    write_json(args, actions[args.action](args, console_of(args)))
    return 0


def _list(args: argparse.Namespace, console: Console) -> Facts:
    owners, facts = ledger.owners(), []
    for cache in vendor_caches():
        shown = [
            _facts(cache, entry, owners.get(entry.path))
            for entry in entries(cache)
            if not args.kernel or (entry.path in owners and owners[entry.path].kernel == args.kernel)
        ]
        console.print(table(cache, shown))
        facts += shown
    _print_others(console)
    return facts


def _print_others(console: Console) -> None:
    for other in other_caches():
        console.print(f"neither listed nor cleared by trnqc: {other}")


def _facts(cache: VendorCache, entry: CachedGraph, owner: NeffProgram | None) -> dict[str, Any]:
    """What JSON says of an entry, and our program in it, if it is ours."""
    whose = owner.words() if owner else "not ours" + (", calls an NKI kernel" if entry.has_kernel else "")
    about = {"entry": entry.path.name, "compiler": entry.compiler, "state": entry.state, "bytes": entry.size}
    return {"cache": cache.root, **about, "modified": entry.modified, "program": whose}


def table(cache: VendorCache, facts: Facts) -> Table:
    """A table with a row for each of the entries of a cache."""
    rows = Table(title=f"{cache.kind} cache {cache.root} ({cache.decided_by})", title_justify="left")
    for heading in ("entry", "compiler", "state", "MiB", "age", "program"):
        rows.add_column(heading, overflow="fold")
    for entry in facts:
        size, age = f"{entry['bytes'] / 2**20:.2f}", f"{(time.time() - entry['modified']) / 3600:.1f} h"
        rows.add_row(entry["entry"], entry["compiler"], entry["state"], size, age, entry["program"])
    rows.caption = cache.note or None
    return rows


def _warm(args: argparse.Namespace, console: Console) -> Facts:
    if args.kernel is None or args.shape is None:
        raise InputError("trnqc cache warm needs KERNEL and --shape")
    shape = parse_shape(args.kernel, args.shape)
    wanted = neff_program(args.kernel, shape, args.precision, args.target or machine_target())
    compiled = warm(wanted)
    console.print(f"{wanted.words()} (key {wanted.key()})")
    for path in compiled:
        console.print(f"  compiled into {path}")
    if not compiled:
        console.print("  no new entry: the caches have had the program already")
    return [{"program": wanted.words(), "key": wanted.key(), "entry": str(path)} for path in compiled]


def _clear(args: argparse.Namespace, console: Console) -> Facts:
    done = ledger.clear(args.kernel or "", args.stale)
    for claim, what in done:
        console.print(f"{what}: {claim.path} ({claim.program.words()})")
    removed = sum(what == "removed" for _, what in done)
    console.print(f"{removed} of our {len(done)} entries removed; files of others are never removed")
    _print_others(console)
    return [{"entry": str(claim.path), "program": claim.program.words(), "outcome": what} for claim, what in done]
