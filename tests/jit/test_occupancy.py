"""The occupancy model against the textbook numbers of two architectures."""

from __future__ import annotations

import pytest

from trnqc.errors import UnsupportedError
from trnqc.jit import PtxasReport
from trnqc.jit.occupancy import MULTIPROCESSORS, resident_warps


def kernel(registers: int, shared: int = 0) -> PtxasReport:
    return PtxasReport("k", registers, 0, 0, 0, shared)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("registers, warps", [(32, 64), (64, 32), (96, 20), (128, 16), (168, 12), (255, 8)])
def test_registers_limit_warps(arch, registers, warps):
    assert resident_warps(kernel(registers), 128, arch) == warps


def test_shared_memory_limits_blocks():
    assert resident_warps(kernel(32, 40 * 1024), 32, "sm_80") == 4
    assert resident_warps(kernel(32, 40 * 1024), 32, "sm_90") == 5
    assert resident_warps(kernel(255, 300 * 1024), 32, "sm_90") == 0


@pytest.mark.parametrize("arch", MULTIPROCESSORS)
def test_blocks_and_warps_are_limited(arch):
    limits = MULTIPROCESSORS[arch]
    assert resident_warps(kernel(16), 32, arch) == min(limits.blocks, limits.warps)
    assert resident_warps(kernel(16), 1024, arch) == limits.warps // 32 * 32


def test_other_architectures_are_named():
    with pytest.raises(UnsupportedError, match="sm_80"):
        resident_warps(kernel(32), 128, "sm_1")
