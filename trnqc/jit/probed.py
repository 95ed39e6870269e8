"""Cache of compiler probes (six runs each), among the compiled files.

The key consists of the file and version of the compiler, the model and features of this CPU, and the environment
variables that compilers read.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from trnqc.jit.cache import key_of, library_cache

# Environment variables that gcc and clang read.
VARIABLES = ("COMPILER_PATH", "GCC_EXEC_PREFIX", "CPATH", "C_INCLUDE_PATH", "LIBRARY_PATH", "SDKROOT")
# Keys of the lines of /proc/cpuinfo on which -march=native depends on x86, ARM and RISC-V.
FEATURES = (
    "vendor_id",
    "cpu family",
    "model",
    "model name",
    "stepping",
    "flags",
    "Features",
    "CPU implementer",
    "CPU architecture",
    "CPU variant",
    "CPU part",
    "CPU revision",
    "isa",
)


def remembered(
    command: Sequence[str], version: str, probe: Callable[[], dict[str, Any]], *parts: str
) -> dict[str, Any]:
    """Return the result of probing a compiler, from the cache if nothing has changed since.

    Parameters
    ----------
    command : sequence of str
        The program and its first arguments.
    version : str
        The first line that ``--version`` prints.
    probe : callable
        Probes the compiler and returns a dictionary that JSON can represent. It is called if the cache has no result,
        and always if the CPU or the file of the compiler is unknown.
    *parts : str
        Everything else on which the result depends.

    Returns
    -------
    dict
        The result of `probe`.
    """
    cpu, file = cpu_features(), _file(command[0])
    if not cpu or not file:
        return probe()
    environment = (f"{name}={os.environ.get(name, '')}" for name in VARIABLES)
    key = key_of(*command, file, version, cpu, *environment, *parts)
    entry = library_cache().get(f"compiler-{key}", lambda out: _write(out, probe()), ".json")
    return json.loads(entry.read_text())


def _write(out: Path, answer: dict[str, Any]) -> None:
    out.write_text(json.dumps(answer))


def cpu_features() -> str:
    """The model and the features of the first CPU according to /proc/cpuinfo. Empty on systems without this file."""
    try:
        first = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    except OSError:
        return ""
    return "\n".join(line for line in first.splitlines() if line.split(":")[0].strip() in FEATURES)


def _file(program: str) -> str:
    """The path, size and modification time of the file of a program. Empty if there is no such program."""
    path = shutil.which(program)
    if path is None:
        return ""
    status = os.stat(path)
    return f"{os.path.realpath(path)} {status.st_size} {status.st_mtime_ns}"
