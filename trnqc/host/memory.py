"""Memory of this machine: how much there is, how much is free, its caches, and sizes as people write them."""

from __future__ import annotations

import ctypes
import functools
import math
import os
import re
from collections.abc import Iterable
from numbers import Real
from pathlib import Path
from typing import Any

from trnqc.errors import InputError, MemoryLimit

# Bytes of the units that sizes are written in; PySCF's is MB (10^6 bytes).
_UNITS = {"": 1e6, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
# Where Linux shows control groups (version 2), and the one that this process is in.
_CONTROL_GROUPS = Path("/sys/fs/cgroup")
_OWN_GROUP = Path("/proc/self/cgroup")
# Where Linux describes the caches of the first CPU.
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


@functools.cache
def installed_memory() -> int:
    """Bytes that a process may hold at most: the memory of this machine, or less where a control group says so.

    The limit is read once, because it is asked for before every large array.
    """
    installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(min([installed, *(_number(group / "memory.max") for group in control_groups())]))


def available_memory() -> float:
    """Bytes that this process may still take: free physical memory, or less where a control group says so."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        free = float(installed_memory())
    return min(free, control_group_room(control_groups()))


def control_groups() -> list[Path]:
    """Directories of the control group of this process and of the groups that contain it, the innermost first."""
    try:
        names = (line[3:] for line in _OWN_GROUP.read_text().splitlines() if line.startswith("0::"))
        inner = _CONTROL_GROUPS / next(names).lstrip("/")
    except (OSError, StopIteration):
        inner = _CONTROL_GROUPS
    return [group for group in (inner, *inner.parents) if group.is_relative_to(_CONTROL_GROUPS)]


def control_group_room(groups: Iterable[Path]) -> float:
    """Bytes that the tightest of these control groups has left; infinite if none has a limit."""
    return min((_room(group) for group in groups), default=math.inf)


def _room(group: Path) -> float:
    limit, taken = _number(group / "memory.max"), _number(group / "memory.current")
    if math.isinf(limit) or math.isinf(taken):
        return math.inf
    try:
        # Pages of files that were not used lately count as taken, but the system drops them when memory is asked for.
        lines = (group / "memory.stat").read_text().splitlines()
        taken -= sum(float(line.split()[1]) for line in lines if line.startswith("inactive_file "))
    except OSError:
        pass
    return limit - taken


def _number(path: Path) -> float:
    try:
        return float(path.read_text())
    except (OSError, ValueError):  # There is no such group, or its limit is "max".
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
    """Refuse what this machine can never hold. NumPy would promise the memory, and the process fail while it is filled.

    Parameters
    ----------
    needed
        Bytes.
    what
        What needs them, as the subject of the message.
    advice
        What to do instead: the end of the message.

    Raises
    ------
    MemoryLimit
        If that is more than the memory of the machine.
    """
    there = installed_memory()
    if needed > there:
        rest = f": {advice}" if advice else ""
        raise MemoryLimit(f"{what} needs {needed / 2**30:.1f} GiB; this machine has {there / 2**30:.1f} GiB{rest}")


def release_freed_memory() -> None:
    """Give memory that earlier stages have freed back to the system.

    For every thread glibc keeps freed arrays of up to 32 MB, which adds up from stage to stage.
    """
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


def gigabytes(count: float) -> str:
    """Bytes in words, decimal units.

    >>> gigabytes(1.5e9), gigabytes(24e6)
    ('1.50 GB', '24 MB')
    """
    return f"{count / 1e9:.2f} GB" if count >= 1e8 else f"{count / 1e6:.3g} MB"


def parse_memory(text: str) -> float:
    """Bytes of a size as people write it; decimal units, and MB without a unit, as PySCF counts.

    Raises
    ------
    InputError
        If the text is no size.

    Examples
    --------
    >>> parse_memory("1.5 GB"), parse_memory("500M"), parse_memory("4000")
    (1500000000.0, 500000000.0, 4000000000.0)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([KMGT]?)B?\s*", text, re.IGNORECASE)
    if not match or float(match[1]) == 0:
        raise InputError(f"a memory limit such as 4G, 500M or 4000 (MB) was expected, got {text!r}")
    return float(match[1]) * _UNITS[match[2].upper()]


def memory_limit(megabytes: Any) -> float:
    """Bytes of an argument `max_memory` in MB (10^6 bytes), as PySCF counts; infinite for None.

    Raises
    ------
    InputError
        If it is no number.
    """
    if megabytes is None:
        return math.inf
    if not isinstance(megabytes, Real):
        raise InputError(f"max_memory is a number of MB (10^6 bytes), or None for no limit; found {megabytes!r}")
    return 1e6 * float(megabytes)
