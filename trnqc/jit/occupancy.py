"""Occupancy: the number of warps of a kernel that a multiprocessor can hold at once, from the report of ptxas.

The limits are those in the table "Technical Specifications per Compute Capability" of the CUDA C++ Programming Guide.
"""

from __future__ import annotations

from dataclasses import dataclass

from trnqc.errors import UnsupportedError
from trnqc.jit.nvcc import PtxasReport

# Threads of a warp.
WARP = 32
# Registers are allocated to a warp in multiples of this number.
REGISTER_UNIT = 256
# Bytes of shared memory that the system reserves for each block.
RESERVED_SHARED = 1024
# Partitions of a multiprocessor. Each has its own warps and an equal part of the registers.
PARTITIONS = 4


@dataclass(frozen=True)
class Multiprocessor:
    """The limits of a multiprocessor.

    Attributes
    ----------
    registers : int
        The number of 32-bit registers.
    shared : int
        Bytes of shared memory.
    warps, blocks : int
        The largest numbers of resident warps and blocks.
    """

    registers: int
    shared: int
    warps: int
    blocks: int


MULTIPROCESSORS = {
    "sm_75": Multiprocessor(65536, 64 * 1024, 32, 16),
    "sm_80": Multiprocessor(65536, 164 * 1024, 64, 32),
    "sm_86": Multiprocessor(65536, 100 * 1024, 48, 16),
    "sm_87": Multiprocessor(65536, 164 * 1024, 48, 16),
    "sm_89": Multiprocessor(65536, 100 * 1024, 48, 24),
    "sm_90": Multiprocessor(65536, 228 * 1024, 64, 32),
    "sm_100": Multiprocessor(65536, 228 * 1024, 64, 32),
    "sm_103": Multiprocessor(65536, 228 * 1024, 64, 32),
    "sm_120": Multiprocessor(65536, 100 * 1024, 48, 24),
    "sm_121": Multiprocessor(65536, 100 * 1024, 48, 24),
}


def resident_warps(kernel: PtxasReport, lanes: int, arch: str) -> int:
    """The number of resident warps of a multiprocessor for blocks of `lanes` threads, or 0 if no block fits.

    Raises
    ------
    UnsupportedError
        If the architecture is not in MULTIPROCESSORS.
    """
    if arch not in MULTIPROCESSORS:
        raise UnsupportedError(f"limits are known for {', '.join(MULTIPROCESSORS)}, but not for {arch!r}")
    limits = MULTIPROCESSORS[arch]
    warps = -(-lanes // WARP)
    allocated = -(-kernel.registers * WARP // REGISTER_UNIT) * REGISTER_UNIT
    by_registers = limits.registers // PARTITIONS // allocated * PARTITIONS // warps
    by_shared = limits.shared // (kernel.shared + RESERVED_SHARED)
    return min(by_registers, by_shared, limits.warps // warps, limits.blocks) * warps
