"""The memory and the caches of this machine, and the sizes of memory that users write."""

from __future__ import annotations

import functools
import math
import os
import re
from collections.abc import Iterable
from numbers import Real
from pathlib import Path
from typing import Any

from trnqc.errors import InputError, MemoryLimit

# Units of memory in bytes. A size without a unit is in MB (10^6 bytes), as in PySCF.
_UNITS = {"": 1e6, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
# Where Linux shows the control groups, and the control groups of this process.
_CONTROL_GROUPS = Path("/sys/fs/cgroup")
_OWN_GROUP = Path("/proc/self/cgroup")
# The files with the limit and the use of memory, in version 2 and in version 1.
_LIMITS = ("memory.max", "memory.limit_in_bytes")
_USES = ("memory.current", "memory.usage_in_bytes")
# Where Linux shows the caches of the first CPU.
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


@functools.cache
def installed_memory() -> int:
    """The memory that a process can use at most, in bytes: that of this machine, or the limit of a control group.

    It is determined once, because it is needed before every large allocation.
    """
    installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(min([installed, *(_number(group, _LIMITS) for group in control_groups())]))


def available_memory() -> float:
    """The memory that this process can still allocate, in bytes, with regard to the limits of control groups."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        free = float(installed_memory())
    return min(free, control_group_room(control_groups()))


def control_groups() -> list[Path]:
    """The directories of the control group of this process and of all groups that contain it, innermost first."""
    try:
        lines = [line.split(":", 2) for line in _OWN_GROUP.read_text().splitlines()]
    except OSError:
        lines = []
    inner = [_CONTROL_GROUPS / path.lstrip("/") for _, controllers, path in lines if controllers == ""]
    # In version 1, the groups of each controller have a directory of their own.
    inner += [_CONTROL_GROUPS / "memory" / path.lstrip("/") for _, names, path in lines if "memory" in names.split(",")]
    groups = (group for one in inner or [_CONTROL_GROUPS] for group in (one, *one.parents))
    return [group for group in groups if group.is_relative_to(_CONTROL_GROUPS)]


def control_group_room(groups: Iterable[Path]) -> float:
    """The smallest number of bytes that one of these control groups has left. Infinite if none has a limit."""
    return min((_room(group) for group in groups), default=math.inf)


def _room(group: Path) -> float:
    limit, used = _number(group, _LIMITS), _number(group, _USES)
    if math.isinf(limit) or math.isinf(used):
        return math.inf
    try:
        # Cached pages of files that were not used recently count as used, but the system frees them when necessary.
        lines = (group / "memory.stat").read_text().splitlines()
        used -= sum(float(line.split()[1]) for line in lines if line.startswith("inactive_file "))
    except OSError:
        pass
    return limit - used


def _number(group: Path, names: Iterable[str]) -> float:
    """The number in the first of these files that a group has. Infinite if it has none, or if the limit is "max"."""
    for name in names:
        try:
            return float((group / name).read_text())
        except (OSError, ValueError):
            pass
    return math.inf


def data_caches() -> dict[str, int]:
    """The sizes of the data caches of the first CPU in bytes, such as {"L1": 49152}. Empty if they are unknown."""
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
    """Raise an error if more memory is needed than this machine has.

    NumPy would allocate the memory, and the process would be killed while it fills the array.

    Parameters
    ----------
    needed
        The size in bytes.
    what
        What needs the memory: the subject of the error message.
    advice
        What to do instead: the end of the error message.

    Raises
    ------
    MemoryLimit
        If the size exceeds the memory of this machine.
    """
    installed = installed_memory()
    if needed > installed:
        rest = f": {advice}" if advice else ""
        raise MemoryLimit(f"{what} needs {needed / 2**30:.1f} GiB; this machine has {installed / 2**30:.1f} GiB{rest}")


def gigabytes(count: float) -> str:
    """A size in bytes as text, in GB or MB (10^9 or 10^6 bytes).

    >>> gigabytes(1.5e9), gigabytes(24e6)
    ('1.50 GB', '24 MB')
    """
    return f"{count / 1e9:.2f} GB" if count >= 1e8 else f"{count / 1e6:.3g} MB"


def parse_memory(text: str) -> float:
    """Convert a size that a user writes to bytes. Units are decimal, and a size without a unit is in MB, as in PySCF.

    Raises
    ------
    InputError
        If the text is not a size.

    Examples
    --------
    >>> parse_memory("1.5 GB"), parse_memory("500M"), parse_memory("4000")
    (1500000000.0, 500000000.0, 4000000000.0)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([KMGT]?)B?\s*", text, re.IGNORECASE)
    if not match or float(match[1]) == 0:
        raise InputError(f"expected a memory limit such as 4G, 500M or 4000 (MB), found {text!r}")
    return float(match[1]) * _UNITS[match[2].upper()]


def memory_limit(megabytes: Any) -> float:
    """Convert an argument `max_memory`, in MB (10^6 bytes) as in PySCF, to bytes. None gives infinity.

    Raises
    ------
    InputError
        If it is not a number.
    """
    if megabytes is None:
        return math.inf
    if not isinstance(megabytes, Real):
        raise InputError(f"max_memory is a number of MB (10^6 bytes), or None for no limit; found {megabytes!r}")
    return 1e6 * float(megabytes)
