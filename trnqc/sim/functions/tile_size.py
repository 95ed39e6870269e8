"""``nl.tile_size``: the limits of the current target as attributes."""

from __future__ import annotations

import os

from trnqc.sim.launch import machine
from trnqc.sim.launch.targets import PARTITIONS, PSUM_BANK_BYTES, PSUM_BANKS, Target, target_from_environment

_FP32 = 4


def _target() -> Target:
    run = machine.running()
    return run.target if run is not None else target_from_environment()


class TileSize:
    """Elements are fp32; ``psum_fmax`` and ``total_available_sbuf_size`` are older names."""

    pmax = PARTITIONS
    psum_fmax = psum_bank_fmax = PSUM_BANK_BYTES // _FP32
    psum_bank_fmax_bytes = PSUM_BANK_BYTES
    gemm_stationary_fmax = PARTITIONS
    gemm_moving_fmax = 512
    bn_stats_fmax = 512
    psum_min_align = 4
    sbuf_min_align = 1

    @property
    def psum_num_banks(self) -> int:
        reserved = os.environ.get("NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE", "").lower() == "true"
        return PSUM_BANKS - 1 if reserved and _target().generation >= 3 else PSUM_BANKS

    @property
    def sbuf_size_bytes(self) -> int:
        return PARTITIONS * _target().sbuf_physical

    @property
    def sbuf_fmax(self) -> int:
        return self.sbuf_fmax_bytes // _FP32

    @property
    def sbuf_fmax_bytes(self) -> int:
        return _target().sbuf_usable

    total_available_sbuf_size = sbuf_fmax_bytes


tile_size = TileSize()
