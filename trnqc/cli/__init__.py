"""The command line: ``trnqc mp2`` computes energies, ``trnqc doctor`` describes the machine, and others.

    arguments -> the module of the command -> exit status, see EXIT_STATUSES

A command is a module with ``add_arguments(parser)`` and ``run(args) -> int``, which is imported when the command is
run. A TrnqcError is printed as one line on standard error.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

from trnqc.errors import TrnqcError
from trnqc.host.files import temporary_place
from trnqc.host.output import log_on_standard_error
from trnqc.version import __version__

# The module and the line of help of each command.
COMMANDS = {
    "scf": ("trnqc.cli.scf", "Hartree-Fock, DFT, double hybrids, RPA: energies, geometries, vibrations, spectra"),
    "mp2": ("trnqc.cli.mp2", "DF-MP2 of molecules: energies, gradients, optimised geometries, interaction energies"),
    "eri": ("trnqc.cli.eri", "compile the integral kernels of a basis set in advance, or list compiled kernels"),
    "mace": ("trnqc.cli.mace", "describe a MACE model, compile its kernels, write a file that needs no PyTorch"),
    "bench": ("trnqc.cli.bench", "how fast trnqc is on this machine beside the programs that it stands in for"),
    "doctor": ("trnqc.cli.doctor", "which backends run on this machine, and why the others do not"),
    "tune": ("autotune.command", "find and record the fastest tiles of a Trainium kernel, by a model or on a device"),
    "profile": ("trnqc.profiling.command", "where the time of a Trainium or GPU kernel goes: summary, page, trace"),
    "lint": ("trnqc.cli.lint", "what NKI 0.6 and 0.7 reject or change in the Trainium kernels of a file"),
    "cache": ("trnqc.cli.cache", "list, compile in advance or clear trnqc's programs in AWS Neuron's caches"),
    "completion": ("trnqc.cli.completion", "print a script for the completion of a shell: bash, zsh or fish"),
}
EXIT_STATUSES = """exit status:
  0    success, also where a backend is missing (doctor) or trnqc is slower (bench)
  1    lint: a version of NKI rejects a kernel
  2    wrong options or input, or any other error; one line on standard error says what to do
  130  interrupted
  141  the program that read the output has ended
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status.

    Parameters
    ----------
    argv
        Arguments without the program's name; by default those of the process.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    args = argparse.Namespace()
    try:
        temporary_place()  # PySCF needs it when it is imported.
        args = _parse(argv)
        with (
            warnings.catch_warnings(),
            log_on_standard_error(getattr(args, "verbose", 0), getattr(args, "quiet", False)),
        ):
            warnings.showwarning = _say
            status: int = args.run(args)
            sys.stdout.flush()
            return status
    except TrnqcError as error:
        if getattr(args, "verbose", 0) > 1:
            raise
        print(f"trnqc: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("trnqc: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Nobody reads any more, as after `trnqc doctor | head -1`. Python would complain when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _say(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning without the line of code that issued it."""
    print(f"trnqc: warning: {message}", file=sys.stderr)


class _Parser(argparse.ArgumentParser):
    """Reports wrong options in one line on standard error, like all other errors."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"trnqc: error: {message}; usage: {self.prog} --help\n")


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    """Arguments of the command line; options that a command does not have are an error of that command."""
    parser = _parser(argv)
    args, unknown = parser.parse_known_args(argv)
    if unknown:
        getattr(args, "command", parser).error(f"unrecognized arguments: {' '.join(unknown)}")
    return args


def _parser(argv: Sequence[str]) -> _Parser:
    parser = _Parser(
        prog="trnqc",
        description="Makes the expensive steps of quantum chemistry and atomistic machine learning fast.",
        epilog=EXIT_STATUSES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"trnqc {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, (_, line) in COMMANDS.items():
        one = commands.add_parser(name, help=line)
        if name in argv:
            _declare(name, one)
    return parser


def parser_of(name: str) -> argparse.ArgumentParser:
    """The parser of one command, with all its options."""
    parser = _Parser(prog=f"trnqc {name}")
    _declare(name, parser)
    return parser


def _declare(name: str, parser: argparse.ArgumentParser) -> None:
    module = importlib.import_module(COMMANDS[name][0])
    parser.description = (module.__doc__ or "").replace("``", "")
    module.add_arguments(parser)
    parser.set_defaults(run=module.run, command=parser)
