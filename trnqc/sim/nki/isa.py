"""The names of ``nki.isa``. The instructions are defined in `trnqc.sim.instructions`."""

# ruff: noqa: F401

from __future__ import annotations

from trnqc.sim.instructions.cores import core_barrier, sendrecv
from trnqc.sim.instructions.dma import dma_compute, dma_copy, dma_transpose
from trnqc.sim.instructions.gather import local_gather, nc_n_gather, nc_stream_shuffle
from trnqc.sim.instructions.gen4 import activate2, exponential
from trnqc.sim.instructions.matmul import nc_matmul, nc_transpose
from trnqc.sim.instructions.mx import nc_matmul_mx, quantize_mx
from trnqc.sim.instructions.random import dropout, rand2, rand_get_state, rand_set_state, rng, set_rng_seed
from trnqc.sim.instructions.reduce import tensor_partition_reduce, tensor_reduce
from trnqc.sim.instructions.scalar import activation, activation_reduce
from trnqc.sim.instructions.scan import (
    bn_aggr,
    bn_stats,
    tensor_scalar_cumulative,
    tensor_scalar_reduce,
    tensor_tensor_scan,
)
from trnqc.sim.instructions.search import (
    max8,
    nc_find_index8,
    nc_match_replace8,
    nonzero_with_count,
    sequence_bounds,
    topk,
)
from trnqc.sim.instructions.select import affine_select, iota, range_select, select_reduce, tensor_copy_predicated
from trnqc.sim.instructions.vector import (
    memset,
    reciprocal,
    scalar_tensor_tensor,
    tensor_copy,
    tensor_scalar,
    tensor_tensor,
)
from trnqc.sim.machine.enums import (
    dge_mode,
    dma_engine,
    engine,
    gpsimd_engine,
    matmul_perf_mode,
    oob_mode,
    reduce_cmd,
    scalar_engine,
    tensor_engine,
    unknown_engine,
    vector_engine,
)
from trnqc.sim.machine.faults import NkiValidationError
from trnqc.sim.machine.target_query import get_nc_sub_version, get_nc_version
from trnqc.sim.machine.targets import nc_version
from trnqc.sim.memory.registers import VirtualRegister, register_alloc, register_load, register_move, register_store
from trnqc.sim.memory.scalars import NkiScalar, scalar_load, scalar_store
