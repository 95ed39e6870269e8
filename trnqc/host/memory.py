"""Memory of this machine: how much there is, how much is free, its caches, and sizes as people write them."""

from __future__ import annotations

import ctypes
import math
import os
import re
from pathlib import Path

from trnqc.errors import InputError, MemoryLimit

_UNITS = {"": 1e6, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_CONTROL_GROUP = Path("/sys/fs/cgroup")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def installed_memory() -> int:
    """Bytes that a process may hold at most: the memory of this machine, or less where a control group says so."""
    return int(min(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), _in_group("memory.max")))


def available_memory() -> float:
    """Bytes that this process may still take: free physical memory, or less where a control group says so."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        free = float(installed_memory())
    return min(free, control_group_room())


def control_group_room(group: Path | None = None) -> float:
    """Bytes that the control group of this process has left; infinite where there is no limit."""
    limit, taken = _in_group("memory.max", group), _in_group("memory.current", group)
    return limit - taken if limit < math.inf and taken < math.inf else math.inf


def _in_group(name: str, group: Path | None = None) -> float:
    try:
        return float((group or _CONTROL_GROUP).joinpath(name).read_text())
    except (OSError, ValueError):  # No control group, or "max".
        return math.inf


def data_caches() -> dict[str, int]:
    """Bytes of the data caches of the first CPU by level, such as {"L1": 49152, "L2": 2097152}; empty if unknown."""
    caches: dict[str, int] = {}
    for entry in sorted(_CACHES.glob("index*")):
        try:
            kind, level, size = ((entry / name).read_text().strip() for name in ("type", "level", "size"))
        except OSError:
            continue
        if kind in ("Data", "Unified") and size.endswith("K"):
            caches[f"L{level}"] = int(size[:-1]) * 1024
    return caches


def require_memory(needed: float, what: str, advice: str = "") -> None:
    """Refuse what this machine can never hold; NumPy would promise the memory and fail while it is filled.

    Raises
    ------
    MemoryLimit
        If `what`, which needs `needed` bytes, is larger than the memory of the machine. The message ends with `advice`.
    """
    there = installed_memory()
    if needed > there:
        rest = f": {advice}" if advice else ""
        raise MemoryLimit(f"{what} needs {needed / 2**30:.1f} GiB; this machine has {there / 2**30:.1f} GiB{rest}")


def release_freed_memory() -> None:
    """Give memory that earlier stages have freed back to the system.

    glibc keeps freed arrays of up to 32 MB for every thread, which adds up from stage to stage.
    """
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


def gigabytes(count: float) -> str:
    """Bytes in words, decimal units: "1.50 GB", "24 MB"."""
    return f"{count / 1e9:.2f} GB" if count >= 1e8 else f"{count / 1e6:.3g} MB"


def parse_memory(text: str) -> float:
    """Bytes of "4G", "500M", "4000" (MB, as PySCF counts) or "1.5 GB"; decimal units.

    Raises
    ------
    InputError
        If the text is no size.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([KMGT]?)B?\s*", text, re.IGNORECASE)
    if not match or float(match[1]) == 0:
        raise InputError(f"a memory limit such as 4G, 500M or 4000 (MB) was expected, got {text!r}")
    return float(match[1]) * _UNITS[match[2].upper()]
