"""The four-index transformation from file to file: memory measured, elements moved, time beside the run in memory."""

from __future__ import annotations

import ctypes
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from scripts.measuring import clocked
from trnqc.contraction import einsum, einsum_plan
from trnqc.contraction.memory.disk_passes import plan_passes

TRANSFORMATION = "pqrs,pa,qb,rc,sd->abcd"


def resident_peak(work: Callable[[], Any]) -> int:
    """Bytes by which the process grows at most while it works, as the kernel counts them; the page cache is not in."""
    ctypes.CDLL(None).malloc_trim(0)  # what the heap keeps would hide what is taken from it
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    work()
    return _status("VmHWM") - before


def keep_pages() -> None:
    """Freed memory stays with the process: the first touch of new pages costs more than the work on them here."""
    libc = ctypes.CDLL(None)
    libc.mallopt(-4, 0)  # M_MMAP_MAX
    libc.mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD


def _status(name: str) -> int:
    match = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match is not None
    return 1024 * int(match.group(1))


def disk(extent: int = 64, share: int = 10) -> dict[str, Any]:
    """share: the limit is this part of one array of extent^4 elements."""
    rng = np.random.default_rng(1)
    matrices = [rng.standard_normal((extent, extent)) for _ in range(4)]
    limit = 8 * extent**4 // share
    tree = einsum_plan(TRANSFORMATION, (extent,) * 4, *(m.shape for m in matrices)).trees[0]
    plan = plan_passes(tree, limit // 8, frozenset({"A"}))
    with tempfile.TemporaryDirectory() as place:
        source, target = Path(place) / "A.h5", Path(place) / "B.h5"
        with h5py.File(source, "w") as file:
            file["A"] = rng.standard_normal((extent,) * 4)
        with h5py.File(source, "r") as file:

            def stored() -> None:
                einsum(TRANSFORMATION, file["A"], *matrices, memory_limit=limit, out=target)

            stored()
            peak = resident_peak(stored)
            planning = clocked(lambda: plan_passes(tree, limit // 8, frozenset({"A"})))()
            on_disk = clocked(stored)()
            array = file["A"][...]
            in_memory = clocked(lambda: einsum(TRANSFORMATION, array, *matrices))()
            with h5py.File(target) as result:
                np.testing.assert_allclose(
                    result["result"][...], einsum(TRANSFORMATION, array, *matrices), rtol=1e-9, atol=1e-9
                )
    traffic = plan.traffic / extent**4
    print(f"transformation of {extent}^4 from file to file: limit {limit / 1e6:.1f} MB, grown by {peak / 1e6:.1f} MB")
    print(f"    {len(plan.passes)} passes, {traffic:.2f} arrays read and written")
    for name, (wall, cpu) in {"planning": planning, "disk": on_disk, "memory": in_memory}.items():
        print(f"    {name:9} wall {wall:7.3f} s, CPU {cpu:7.3f} s")
    return {
        "extent": extent,
        "limit_bytes": limit,
        "resident_bytes": peak,
        "arrays_moved": traffic,
        "plan": str(plan),
        "planning_s": planning,
        "disk_s": on_disk,
        "memory_s": in_memory,
    }
