"""What was found out about a compiler, kept on disk: six runs of it take as long as loading a hundred kernels.

command, its version, this CPU, the environment -> digest -> an entry of the cache of compiled libraries
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from trnqc.jit.cache import key_of, library_cache

# Environment variables that change what gcc and clang do.
VARIABLES = ("COMPILER_PATH", "GCC_EXEC_PREFIX", "CPATH", "C_INCLUDE_PATH", "LIBRARY_PATH", "SDKROOT")
# Lines of /proc/cpuinfo that name what -march=native depends on, on x86 and on ARM.
FEATURES = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags", "Features", "CPU implementer",
            "CPU architecture", "CPU variant", "CPU part", "CPU revision", "isa")  # fmt: skip


def remembered(command: Sequence[str], version: str, probe: Callable[[], dict[str, Any]], *parts: str) -> dict:
    """What `probe` returns, which JSON can hold, from an earlier process where nothing that it depends on has changed.

    parts: anything else that the answer depends on. Where the CPU cannot be told, `probe` is called every time.
    """
    cpu, file = cpu_features(), _file(command[0])
    if not cpu or not file:
        return probe()
    environment = (f"{name}={os.environ.get(name, '')}" for name in VARIABLES)
    key = key_of(*command, file, version, cpu, *environment, *parts)
    entry = library_cache().get(f"compiler-{key}", lambda out: _write(out, probe()), ".json")
    return json.loads(entry.read_text())  # type: ignore[no-any-return]


def _write(out: Path, answer: dict[str, Any]) -> None:
    out.write_text(json.dumps(answer))


def cpu_features() -> str:
    """Make and features of the first CPU as Linux tells them; empty elsewhere."""
    try:
        first = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    except OSError:
        return ""
    return "\n".join(line for line in first.splitlines() if line.split(":")[0].strip() in FEATURES)


def _file(program: str) -> str:
    """A program's file, its size and when it was changed; empty when there is none."""
    path = shutil.which(program)
    if path is None:
        return ""
    about = os.stat(path)
    return f"{os.path.realpath(path)} {about.st_size} {about.st_mtime_ns}"
