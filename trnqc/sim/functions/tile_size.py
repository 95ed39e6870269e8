"""``nl.tile_size``: limits of the current target."""

from __future__ import annotations

import os

from trnqc.sim.machine import machine
from trnqc.sim.machine.targets import PARTITIONS, PSUM_BANK_BYTES, PSUM_BANKS, Target, target_from_environment

_FP32 = 4  # bytes of an fp32 element


def _target() -> Target:
    run = machine.running()
    return run.target if run is not None else target_from_environment()


class TileSize:
    """Limits of the running kernel's target, or of the target set in the environment outside a kernel.

    Limits in elements assume fp32. ``psum_fmax`` is the older name of ``psum_bank_fmax``, and
    ``total_available_sbuf_size`` that of ``sbuf_fmax_bytes``.
    """

    pmax = PARTITIONS  # partitions of a tile
    psum_fmax = psum_bank_fmax = PSUM_BANK_BYTES // _FP32  # elements per partition of a PSUM bank
    psum_bank_fmax_bytes = PSUM_BANK_BYTES  # bytes per partition of a PSUM bank
    gemm_stationary_fmax = PARTITIONS  # free elements of the stationary operand of nc_matmul
    gemm_moving_fmax = 512  # free elements of the moving operand of nc_matmul
    bn_stats_fmax = 512  # elements per partition of bn_stats
    psum_min_align = 4  # bytes
    sbuf_min_align = 1  # bytes

    @property
    def psum_num_banks(self) -> int:
        """PSUM banks of a kernel, one less from trn2 on if NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE is true."""
        reserved = os.environ.get("NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE", "").lower() == "true"
        return PSUM_BANKS - 1 if reserved and _target().generation >= 3 else PSUM_BANKS

    @property
    def sbuf_size_bytes(self) -> int:
        """Bytes of the whole SBUF."""
        return PARTITIONS * _target().sbuf_physical

    @property
    def sbuf_fmax(self) -> int:
        """Usable fp32 elements per partition of SBUF."""
        return self.sbuf_fmax_bytes // _FP32

    @property
    def sbuf_fmax_bytes(self) -> int:
        """Usable bytes per partition of SBUF."""
        return _target().sbuf_usable

    total_available_sbuf_size = sbuf_fmax_bytes


tile_size = TileSize()
