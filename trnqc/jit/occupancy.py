"""How many warps of a kernel a multiprocessor can hold at once: a model from ptxas's figures, no measurement.

Limits: CUDA C++ Programming Guide, table "Technical Specifications per Compute Capability"; registers are given out by
256 to a warp, and a block takes 1 KiB of shared memory for itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from trnqc.errors import UnsupportedError
from trnqc.jit.nvcc import Kernel

WARP = 32


@dataclass(frozen=True)
class Multiprocessor:
    """registers, shared: 32-bit registers and bytes that the blocks share; warps, blocks: at most at once."""

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
    """Warps at once on a multiprocessor, in blocks of `lanes` threads; 0 if not one block fits.

    Raises UnsupportedError for an architecture that is not in MULTIPROCESSORS.
    """
    if arch not in MULTIPROCESSORS:
        raise UnsupportedError(f"no limits are known here of {arch!r}; there are {', '.join(MULTIPROCESSORS)}")
    limits = MULTIPROCESSORS[arch]
    warps = -(-lanes // WARP)
    given = -(-kernel.registers * WARP // 256) * 256
    # Each of the four parts of a multiprocessor has a quarter of the registers for warps of its own.
    by_registers = limits.registers // 4 // given * 4 // warps
    by_shared = limits.shared // (kernel.shared + 1024)
    return min(by_registers, by_shared, limits.warps // warps, limits.blocks) * warps
