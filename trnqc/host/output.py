"""What commands share: the options ``--json FILE``, ``--quiet`` and ``--verbose``, and where their output goes."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from trnqc.host.files import write_aside

# Messages that users should see without asking for them; silent in a quiet command.
_notices = logging.getLogger("trnqc.notices")
# The file name that stands for standard output.
STANDARD_OUTPUT = Path("-")


def add_output(parser: argparse.ArgumentParser, what: str) -> None:
    """Declare ``--json FILE``, which writes `what`, ``--quiet`` and ``--verbose``."""
    parser.add_argument("--json", type=Path, metavar="FILE", help=f"write {what} as JSON; - for standard output")
    add_loudness(parser)


def add_loudness(parser: argparse.ArgumentParser) -> None:
    """Declare ``--quiet`` and ``--verbose``, which exclude each other."""
    loud = parser.add_mutually_exclusive_group()
    loud.add_argument("-q", "--quiet", action="store_true", help="print nothing but warnings and errors")
    loud.add_argument(
        "-v", "--verbose", action="count", default=0, help="say what is done; -vv: details and tracebacks of errors too"
    )


@contextmanager
def log_on_standard_error(verbose: int, quiet: bool = False) -> Iterator[None]:
    """Within the context, messages of the loggers ``trnqc.*`` are printed on standard error.

    Parameters
    ----------
    verbose
        How often ``--verbose`` was given: 0 prints warnings and errors, 1 the steps of a job (level INFO) too, and 2
        every detail (level DEBUG).
    quiet
        Whether `announce` says nothing.
    """
    logger, handler = logging.getLogger("trnqc"), _StandardError()
    handler.setFormatter(_Lines())
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel((logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)])
    _notices.setLevel(logging.WARNING if quiet else logging.NOTSET)
    try:
        yield
    finally:
        _notices.setLevel(logging.NOTSET)
        logger.removeHandler(handler)
        logger.setLevel(before)


def announce(text: str) -> None:
    """Say a line that users should see without asking: by logging, and on a terminal if no handler has shown it."""
    _notices.info("%s", text)
    loggers = logging.getLogger("trnqc"), logging.getLogger()
    handled = any(not isinstance(h, logging.NullHandler) for logger in loggers for h in logger.handlers)
    shown = handled and _notices.isEnabledFor(logging.INFO)
    if not shown and _notices.level == logging.NOTSET and sys.stderr.isatty():
        print(f"trnqc: {text}", file=sys.stderr)


class _StandardError(logging.Handler):
    """Prints to what standard error is at that moment: progress bars replace it while they are shown."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr)


class _Lines(logging.Formatter):
    """Lines like those of warnings and errors: ``trnqc: info: 12 kernels ...``."""

    def format(self, record: logging.LogRecord) -> str:
        return f"trnqc: {record.levelname.lower()}: {record.getMessage()}"


def console_of(args: argparse.Namespace) -> Console:
    """The console on which a command prints: none with ``--quiet``, or if JSON goes to standard output.

    Square brackets are text, as in ``pip install 'trnqc[tune]'`` and in file names, and not markup of Rich.
    """
    return Console(quiet=args.quiet or args.json == STANDARD_OUTPUT, markup=False)


def write_json(args: argparse.Namespace, facts: Any) -> None:
    """Write facts to the file of ``--json`` if there is one."""
    if args.json == STANDARD_OUTPUT:
        print(json.dumps(facts, indent=1))
    elif args.json:
        write_aside(args.json, json.dumps(facts, indent=1) + "\n")
