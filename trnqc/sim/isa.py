"""``nki.isa``: names only; the instructions live in the ``isa_*`` modules."""

from __future__ import annotations

from trnqc.sim.enums import dge_mode, dma_engine, engine, matmul_perf_mode, oob_mode, reduce_cmd
from trnqc.sim.faults import NkiValidationError
from trnqc.sim.isa_dma import dma_compute, dma_copy, dma_transpose
from trnqc.sim.isa_matmul import nc_matmul, nc_transpose
from trnqc.sim.isa_reduce import tensor_partition_reduce, tensor_reduce
from trnqc.sim.isa_scalar import activation, activation_reduce
from trnqc.sim.isa_vector import (
    memset,
    reciprocal,
    scalar_tensor_tensor,
    tensor_copy,
    tensor_scalar,
    tensor_tensor,
)
from trnqc.sim.registers import VirtualRegister, register_alloc, register_load, register_move, register_store
from trnqc.sim.target_query import get_nc_sub_version, get_nc_version
from trnqc.sim.targets import nc_version
