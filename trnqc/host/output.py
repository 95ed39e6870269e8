"""What commands share: the options ``--json FILE`` and ``--quiet``, and where their output goes."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rich.console import Console

from trnqc.host.files import write_aside

# The file name that stands for standard output.
STANDARD_OUTPUT = Path("-")


def add_output(parser: argparse.ArgumentParser, what: str) -> None:
    """Declare ``--json FILE``, which writes `what`, and ``--quiet``."""
    parser.add_argument("--json", type=Path, metavar="FILE", help=f"write {what} as JSON; - for standard output")
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing but warnings and errors")


def console_of(args: argparse.Namespace) -> Console:
    """The console on which a command prints: none with ``--quiet``, or if JSON goes to standard output."""
    return Console(quiet=args.quiet or args.json == STANDARD_OUTPUT)


def write_json(args: argparse.Namespace, facts: Any) -> None:
    """Write facts to the file of ``--json`` if there is one."""
    if args.json == STANDARD_OUTPUT:
        print(json.dumps(facts, indent=1))
    elif args.json:
        write_aside(args.json, json.dumps(facts, indent=1) + "\n")
