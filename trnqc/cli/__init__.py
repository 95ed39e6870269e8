"""The command line: ``trnqc mp2`` computes, ``trnqc doctor`` says what can compute here.

arguments -> one module a command -> exit status: 0 done, 2 wrong input or unmet request (one line on stderr), 130
interrupted
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from trnqc import __version__
from trnqc.cli import doctor, mp2
from trnqc.errors import TrnqcError

COMMANDS = (mp2, doctor)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; argv without the program's name, default the process's."""
    args = _parser().parse_args(argv)
    try:
        return args.run(args)
    except TrnqcError as error:
        if getattr(args, "verbose", 0) > 1:
            raise
        print(f"trnqc: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("trnqc: interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="trnqc", description="Quantum chemistry on accelerators and laptops.")
    parser.add_argument("--version", action="version", version=f"trnqc {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in COMMANDS:
        one = commands.add_parser(command.NAME, help=command.HELP, description=command.__doc__)
        command.add_arguments(one)
        one.set_defaults(run=command.run)
    return parser
