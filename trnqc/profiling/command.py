"""Read profiles of kernels, modelled or measured, and say where the time goes.

Reads the simulator's timelines, the vendor's summary-json, json and Parquet tables, Perfetto traces,
torch.profiler traces and Nsight Systems GPU traces; the form is recognised from the content.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from rich.console import Console

from trnqc.errors import InputError
from trnqc.host.output import add_loudness
from trnqc.profiling import console
from trnqc.profiling.compare import compare
from trnqc.profiling.machines import MACHINES
from trnqc.profiling.readers import read


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``trnqc profile`` to a parser."""
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="a profile, or a directory of the vendor's Parquet tables"
    )
    parser.add_argument("--compare", action="store_true", help="set two profiles side by side: the first is A")
    parser.add_argument("--target", choices=tuple(MACHINES), help="the machine, where the files do not say")
    parser.add_argument("--html", metavar="OUT", help="write a report that needs nothing but a browser")
    parser.add_argument("--perfetto", metavar="OUT", help="write one profile as a trace for https://ui.perfetto.dev")
    parser.add_argument("--json", metavar="OUT", help="write figures and findings as JSON; - for standard output")
    parser.add_argument("--top", type=int, default=5, metavar="N", help="stall causes per engine (default 5)")
    parser.add_argument("--all", action="store_true", help="every summary field, not only the main ones")
    add_loudness(parser)


def run(args: argparse.Namespace) -> int:
    """Run ``trnqc profile`` and return the exit status 0.

    Raises
    ------
    InputError
        If a file cannot be read or the options do not fit the number of profiles.
    """
    # The page and the writers are not needed to print.
    from trnqc.host.files import write_aside
    from trnqc.profiling.page import page
    from trnqc.profiling.writers import analysis, trace

    if args.top < 1:
        raise InputError(f"--top: expected at least 1, found {args.top}")
    profiles = [profile for file in args.files for profile in read(file, args.target)]
    if args.compare and len(profiles) != 2:
        raise InputError(f"--compare: expected two profiles, found {len(profiles)}")
    if args.perfetto and len(profiles) != 1:
        raise InputError(f"--perfetto: expected one profile, found {len(profiles)}")
    if args.html and len(profiles) > 26:
        raise InputError(f"--html: expected at most 26 profiles, found {len(profiles)}")
    both = compare(*profiles) if args.compare else None
    if not args.quiet and args.json != "-":
        out = Console(markup=False)
        for profile in profiles if both is None else ():
            out.print(console.report(profile, args.top, args.all))
        if both:
            out.print(console.comparison(both, args.all))
    written: list[tuple[str | None, Callable[[], str | bytes]]] = [
        (args.html, lambda: page(profiles, both)),
        (args.perfetto, lambda: trace(profiles[0])),
        (args.json, lambda: analysis(profiles, both)),
    ]
    for path, make in written:
        if path == "-":
            print(make())
        elif path:
            write_aside(path, make())
            print(f"wrote {path}", file=sys.stderr)
    return 0
