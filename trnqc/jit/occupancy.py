"""Occupancy: how many warps of a kernel a multiprocessor can hold at once, from ptxas's figures.

The limits are those of the CUDA C++ Programming Guide, table "Technical Specifications per Compute Capability".
Registers are allocated to warps in units of 256, and every block reserves 1 KiB of shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from trnqc.errors import UnsupportedError
from trnqc.jit.nvcc import Kernel

WARP = 32


@dataclass(frozen=True)
class Multiprocessor:
    """Limits of a multiprocessor: 32-bit registers, bytes of shared memory, resident warps and blocks."""

    registers: int
    shared: int
    warps: int
    blocks: int


MULTIPROCESSORS = {
    "sm_80": Multiprocessor(65536, 164 * 1024, 64, 32),
    "sm_86": Multiprocessor(65536, 100 * 1024, 48, 16),
    "sm_89": Multiprocessor(65536, 100 * 1024, 48, 24),
    "sm_90": Multiprocessor(65536, 228 * 1024, 64, 32),
    "sm_100": Multiprocessor(65536, 228 * 1024, 64, 32),
}


def resident_warps(kernel: Kernel, lanes: int, arch: str) -> int:
    """Resident warps on a multiprocessor for blocks of `lanes` threads; 0 if no block fits.

    Raises UnsupportedError for an architecture that is not in MULTIPROCESSORS.
    """
    if arch not in MULTIPROCESSORS:
        raise UnsupportedError(f"the limits of {arch!r} are unknown; known are {', '.join(MULTIPROCESSORS)}")
    limits = MULTIPROCESSORS[arch]
    warps = -(-lanes // WARP)
    allocated = -(-kernel.registers * WARP // 256) * 256
    # Each of the four partitions of a multiprocessor has a quarter of the registers, for its own warps.
    by_registers = limits.registers // 4 // allocated * 4 // warps
    by_shared = limits.shared // (kernel.shared + 1024)
    return min(by_registers, by_shared, limits.warps // warps, limits.blocks) * warps
