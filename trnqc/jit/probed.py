"""Results of probing a compiler, kept in the cache of compiled files: probing takes six runs of the compiler.

The key holds the compiler's file and version, this CPU, and the environment variables that compilers read.
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
# Keys of the lines of /proc/cpuinfo, on x86, ARM and RISC-V, that -march=native depends on.
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
    """The result of `probe`, a dictionary that JSON can hold, from the cache if nothing has changed since.

    Parameters
    ----------
    command, version
        The compiler.
    probe : callable
        Called if the cache has no result, and always if the CPU is unknown.
    parts : str
        Anything else that the result depends on.
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
    """Model and features of the first CPU from /proc/cpuinfo; empty on systems without it."""
    try:
        first = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    except OSError:
        return ""
    return "\n".join(line for line in first.splitlines() if line.split(":")[0].strip() in FEATURES)


def _file(program: str) -> str:
    """The path, size and modification time of a program's file; empty if there is none."""
    path = shutil.which(program)
    if path is None:
        return ""
    about = os.stat(path)
    return f"{os.path.realpath(path)} {about.st_size} {about.st_mtime_ns}"
