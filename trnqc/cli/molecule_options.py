"""Options that commands for molecules share: the molecule, tasks on its geometry, memory, threads and output.

Their values are checked here too.
"""

from __future__ import annotations

import argparse
import math
import os
from pathlib import Path
from typing import Any

from trnqc.errors import InputError
from trnqc.host.memory import parse_memory
from trnqc.interfaces.optimization import MAX_STEPS
from trnqc.mp2.reference.xyz import UNITS


def add_geometry(parser: argparse.ArgumentParser) -> None:
    """Declare the file or the name of the molecule."""
    parser.add_argument(
        "geometry",
        nargs="?",
        default="benzene",
        help="an xyz file, or a molecule known by name: benzene, caffeine, water, ... (default: %(default)s)",
    )


def add_molecule(parser: argparse.ArgumentParser, basis: str) -> None:
    """Declare the group of the molecule, with the default of its basis."""
    add = parser.add_argument_group("molecule").add_argument
    add("--charge", type=int, default=0, help="charge of the molecule (default: 0)")
    add("--spin", type=int, help="number of unpaired electrons, 2S as in PySCF (default: 0, or 1 for an odd number)")
    add(
        "--unit",
        type=str.lower,
        choices=tuple(UNITS),
        default="angstrom",
        help="unit of the coordinates in the file (default: angstrom)",
    )
    add("--basis", default=basis, help="orbital basis (default: %(default)s)")


def add_geometry_tasks(group: argparse._ArgumentGroup) -> None:
    """Declare gradients and optimisations."""
    add = group.add_argument
    add("--gradient", action="store_true", help="the derivatives of the energy too")
    add("--optimize", action="store_true", help="optimise the geometry by geomeTRIC (pip install trnqc[optimize])")
    add("--max-steps", type=int, default=MAX_STEPS, metavar="N", help="largest number of steps (default: %(default)s)")
    add("--trajectory", type=Path, metavar="FILE", help="extended xyz file of the steps, written after each step")


def add_frozen(group: argparse._ArgumentGroup) -> None:
    """Declare which orbitals are not correlated."""
    core = group.add_mutually_exclusive_group()
    core.add_argument("--frozen-core", action="store_true", help="freeze the chemical core (the default)")
    core.add_argument("--all-electron", action="store_true", help="freeze nothing")
    core.add_argument(
        "--frozen", metavar="N|I,J,...", help="freeze the N lowest orbitals, or those with these indices from 0"
    )


def add_limits(group: argparse._ArgumentGroup) -> None:
    """Declare threads and the limit of memory."""
    add = group.add_argument
    add("--threads", type=int, metavar="N", help="default: OMP_NUM_THREADS, else all cores")
    add(
        "--max-memory",
        metavar="SIZE",
        help="4G, 500M, or a number of MB (default: most of the free memory); larger data are kept on disk, in TMPDIR",
    )


def add_output(group: argparse._ArgumentGroup) -> None:
    """Declare the files of results and how much is printed."""
    add = group.add_argument
    add(
        "--json",
        type=Path,
        metavar="FILE",
        help="write the whole result with all digits; a list if the file has several frames; - for standard output",
    )
    add("--xyz", type=Path, metavar="FILE", help="write an extended xyz file with energies, and forces if computed")
    loud = group.add_mutually_exclusive_group()
    loud.add_argument(
        "-v",
        "--verbose",
        action="count",
        default=0,
        help="say what is done, with PySCF's SCF output; -vv: details and tracebacks of errors too",
    )
    loud.add_argument("-q", "--quiet", action="store_true", help="print only one line with the energies")


def settings_from(args: argparse.Namespace) -> dict[str, Any]:
    """The fields that jobs of all commands have, except the molecule. Raises InputError."""
    return {
        "auxbasis": args.auxbasis,
        "frozen": frozen_from(args),
        "reference": args.reference,
        "scf": args.scf,
        "conv_tol": positive("--conv-tol", args.conv_tol),
        "max_cycle": positive("--max-cycle", args.max_cycle),
        "memory": parse_memory(args.max_memory) if args.max_memory else None,
        "checkpoint": args.checkpoint,
        "verbose": 4 if args.verbose else 0,
    }


def frozen_from(args: argparse.Namespace) -> str | int | list[int]:
    """The orbitals that the options of `add_frozen` freeze. Raises InputError."""
    if args.all_electron:
        return 0
    if args.frozen is None:
        return "core"
    try:
        return [int(text) for text in args.frozen.split(",")] if "," in args.frozen else int(args.frozen)
    except ValueError:
        raise InputError(f"--frozen takes a number or indices such as 0,1,40, got {args.frozen!r}") from None


def positive(option: str, value: Any) -> Any:
    """Return the value of an option, which must be a positive finite number or None. Raises InputError."""
    if value is not None and not 0 < value < math.inf:  # NaN fails too.
        raise InputError(f"{option} must be positive, got {value}")
    return value


def check_target(option: str, path: Path | None) -> None:
    """Check before the job begins that the file of an option can be written. Raises InputError."""
    if path is None:
        return
    if (path.exists() and not path.is_file()) or not os.access(path.parent, os.W_OK):
        raise InputError(
            f"{option} {path}: cannot be written; name a file in an existing directory that you may write to"
        )
