"""Report what NKI 0.6 and 0.7 reject, change or will lose in the NKI kernels of a Python file.

A file with kernels of the old namespace, ``neuronxcc.nki``, is only read, and the report says line by line what takes
the place of the old interface. Any other file is imported, with the simulator in place of a missing ``nki``; its
kernels are not run. The exit status is 1 if a version rejects a kernel. To see what a run breaks, set
TRNQC_SIM_RULES=warn and run the program: each finding becomes a warning, and trnqc.sim.reported() returns all of them.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import ModuleType

from rich.table import Table
from rich.text import Text

from trnqc import sim
from trnqc.errors import InputError
from trnqc.host.output import add_output, console_of, write_json
from trnqc.sim.lint.migration import Migration, migrations
from trnqc.sim.machine.rules import Finding
from trnqc.sim.machine.version import VERSIONS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the file, ``--nki VERSION``, ``--json FILE`` and ``--quiet``."""
    parser.add_argument("file", type=Path, help="Python file with kernels under @nki.jit")
    parser.add_argument("--nki", choices=VERSIONS, help="report on one version only")
    add_output(parser, "the findings")


def run(args: argparse.Namespace) -> int:
    """Print the findings. The exit status is 1 if a kernel is rejected."""
    if changes := _migrations(args.file):
        return _report(args, changes)
    kernels = kernels_of(_imported(args.file))
    if not kernels:
        raise InputError(f"{args.file} has no kernel under @nki.jit at its top level")
    findings = sorted({finding for kernel in kernels for finding in sim.lint(kernel, args.nki)})
    names = [kernel.func.__name__ for kernel in kernels]
    write_json(args, {"kernels": names, "findings": [asdict(f) for f in findings]})
    console = console_of(args)
    if findings:
        console.print(table(findings))
    console.print(f"{len(kernels)} kernels, {len(findings)} findings", highlight=False)
    return 1 if any(finding.effect == "rejected" for finding in findings) else 0


def _migrations(path: Path) -> tuple[Migration, ...]:
    """What has to change in a file of the old namespace; a file that cannot be read is left to the import."""
    try:
        return migrations(path.read_text(encoding="utf-8"), str(path))
    except (OSError, SyntaxError, UnicodeDecodeError):
        return ()


def _report(args: argparse.Namespace, changes: Sequence[Migration]) -> int:
    """Print the report of a migration. The exit status is 1, because current versions reject the file."""
    write_json(args, {"migration": [asdict(change) for change in changes]})
    rows = Table(title="From neuronxcc.nki to nki", title_justify="left")
    for heading in ("line", "old", "new"):
        rows.add_column(heading)
    for change in changes:
        rows.add_row(str(change.line), Text(change.old), Text(change.new))
    console = console_of(args)
    console.print(rows)
    console.print(f"{args.file.name}: {len(changes)} changes", highlight=False)
    return 1


def kernels_of(module: ModuleType) -> list[sim.Kernel]:
    """The kernels among the names of a module, each once, in the order of the file."""
    return list(dict.fromkeys(value for value in vars(module).values() if isinstance(value, sim.Kernel)))


def table(findings: Sequence[Finding]) -> Table:
    """A table with a row for each finding."""
    rows = Table(title="NKI kernels", title_justify="left")
    for heading in ("place", "kernel or helper", "NKI", "effect", "finding"):
        rows.add_column(heading)
    for f in findings:
        place = f"{Path(f.file).name}:{f.line}"
        rows.add_row(place, Text(f.function), ", ".join(f.versions), f.effect, Text(f.message))
    return rows


def _imported(path: Path) -> ModuleType:
    if not path.is_file():
        raise InputError(f"{path} is not a file")
    if not sim.install():
        raise InputError("trnqc lint reads kernels of the simulator, but the vendor's nki is installed here")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    return module
