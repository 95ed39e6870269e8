"""``trnqc eri build --cuda``: the kernels of J and K and of an SCF on GPUs, compiled by NVRTC without a GPU."""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from trnqc.eri.cuda.forms import first_sound
from trnqc.eri.cuda.scf import programs as scf
from trnqc.eri.jk.batch import Batch
from trnqc.eri.prepare import prebuild
from trnqc.errors import CompilerError, InputError
from trnqc.host.output import console_of, write_json
from trnqc.host.progress import StageBars
from trnqc.jit import build_all
from trnqc.jit.cache import library_cache
from trnqc.jit.cubin_builder import CubinBuilder

# Options of kernels that GPUs do not have.
FOR_CPUS = ("aux", "gradients", "hessians", "seminumerical")


@dataclass(frozen=True)
class Cubins:
    """The programs of a batch of quartets for one architecture.

    Attributes
    ----------
    arch, batch
        The architecture, and what is computed.
    tier
        Where the kernel keeps its targets, a name of `trnqc.eri.cuda.tiers`.
    stack
        Bytes of local memory of a thread.
    seconds
        Time to compile both programs, or to find them in the cache.
    rejected
        Why each form before this one is not used.
    """

    arch: str
    batch: Batch
    tier: str
    stack: int
    seconds: float
    rejected: list[str]

    def plain(self) -> dict[str, str | int | float | list[str]]:
        """All of it, for JSON."""
        facts = {"arch": self.arch, "kernel": self.batch.name, "tier": self.tier}
        return {**facts, "stack": self.stack, "seconds": self.seconds, "rejected": self.rejected}


def build(args: argparse.Namespace) -> int:
    """Build the kernels. Raises an error of trnqc if NVRTC is missing, or if a kernel has no form that compiles."""
    given = [f"--{name}" for name in FOR_CPUS if getattr(args, name)]
    if given:
        raise InputError(f"--cuda builds kernels of J and K, and GPUs have no others: leave out {', '.join(given)}")
    batches = list(prebuild.batches(prebuild.atoms(args.basis, args.elements, args.cartesian), args.operator))
    builders = [CubinBuilder(arch) for arch in dict.fromkeys(args.cuda)]
    start = time.monotonic()
    jobs: dict[str, Callable[[], Any]] = {}
    jobs |= {f"{b.arch} {batch.name}": functools.partial(_cubins, b, batch) for b in builders for batch in batches}
    jobs |= {f"{b.arch} scf {name}": functools.partial(_scf, b, name) for b in builders for name in scf.PARAMETERS}
    with StageBars(Console(stderr=True, quiet=args.quiet)) as bars:
        built = build_all(jobs, workers=args.workers, progress=lambda done, total, name: bars("kernels", done, total))
    done = [one for one in built.values() if isinstance(one, Cubins)]
    write_json(args, [one.plain() for one in done])
    console = console_of(args)
    console.print(table(done))
    compiled, seconds = sum(len(b.compiled) for b in builders), time.monotonic() - start
    console.print(
        f"{compiled} kernels compiled by NVRTC {builders[0].nvrtc} for {', '.join(b.arch for b in builders)} in "
        f"{seconds:.0f} s, into {library_cache().directory}. GPUs find them with this version of NVRTC alone. The form "
        "of each kernel was chosen by the local memory that its cubin names, as no driver is asked",
        highlight=False,
        soft_wrap=True,
    )
    failed = [error for error in built.values() if isinstance(error, CompilerError)]
    if failed:
        raise CompilerError(f"{len(failed)} of {len(built)} kernels cannot be built; the first: {failed[0]}")
    return 0


def _scf(builder: CubinBuilder, name: str) -> None:
    """Build a program of the matrices of an SCF, which has one form for all molecules."""
    scf.build(builder, name)


def _cubins(builder: CubinBuilder, batch: Batch) -> Cubins:
    start = time.perf_counter()
    programs, rejected = first_sound(builder, batch)
    stack = programs.work.stack
    return Cubins(builder.arch, batch, programs.tier.name, stack, time.perf_counter() - start, rejected)


def table(done: Sequence[Cubins]) -> Table:
    """A table with a row for each class, purpose and architecture, the slowest first."""
    rows = Table(title="Generated kernels for GPUs", title_justify="left", title_style="bold")
    for heading in ("class", "for", "GPU", "targets in", "local bytes", "seconds"):
        rows.add_column(heading, justify="right" if heading in ("local bytes", "seconds") else "left")
    for one in sorted(done, key=lambda one: (-one.seconds, one.batch.name)):
        digits = one.batch.cls.digits
        purpose = " and ".join(name for name, wanted in (("J", one.batch.with_j), ("K", one.batch.with_k)) if wanted)
        cells = (f"({digits[:2]}|{digits[2:]})", purpose, one.arch, one.tier, str(one.stack), f"{one.seconds:.1f}")
        rows.add_row(*cells)
    return rows
