"""``nl`` functions for transfers between HBM and SBUF, gathers and random numbers."""

from __future__ import annotations

from typing import Any

from trnqc.sim.functions.alloc import ndarray, sbuf
from trnqc.sim.instructions import checks, dma, gather, random, vector
from trnqc.sim.instructions.checks import SBUF
from trnqc.sim.machine import ops
from trnqc.sim.machine.faults import NkiValidationError
from trnqc.sim.memory import dtypes
from trnqc.sim.memory.storage import MemoryRegion
from trnqc.sim.memory.tensor import NkiTensor

_HBM = (MemoryRegion.private_hbm, MemoryRegion.shared_hbm)


def load(src: NkiTensor, dtype: Any = None) -> NkiTensor:
    """Copy an HBM tensor to a new SBUF tile, cast to ``dtype`` if set; dimension 0 becomes the partition."""
    checks.tensor("nl.load", "src", src, _HBM)
    out = ndarray(src.shape, src.dtype if dtype is None else dtype)
    dma.dma_copy(out, src)
    return out


def store(dst: NkiTensor, value: NkiTensor) -> None:
    """Copy the SBUF tile ``value`` to the HBM tensor ``dst``."""
    checks.tensor("nl.store", "dst", dst, _HBM)
    checks.tensor("nl.store", "value", value, SBUF)
    dma.dma_copy(dst, value)


def load_transpose2d(src: NkiTensor, dtype: Any = None) -> NkiTensor:
    """Copy the transpose of a 2-D HBM tensor to a new SBUF tile, cast to ``dtype`` if set."""
    checks.tensor("nl.load_transpose2d", "src", src, _HBM)
    if src.ndim != 2:
        raise NkiValidationError(f"nl.load_transpose2d src must be 2-D, got shape {src.shape}")
    out = ndarray((src.shape[1], src.shape[0]), src.dtype)
    dma.dma_transpose(out, src)
    return out if dtype is None else ops.copy(out, dtype)


def expand_dims(x: NkiTensor, axis: int) -> NkiTensor:
    """Return a view with a new dimension of size 1 before dimension ``axis``."""
    return x.expand_dim(axis)


def gather_flattened(data: NkiTensor, indices: NkiTensor, axis: int = 0, dtype: Any = None) -> NkiTensor:
    """Return the tile out[p, i] = data[p, indices[p, i]], with flattened free dimensions; ``axis`` must be 0."""
    if axis != 0:
        raise NkiValidationError(f"nl.gather_flattened axis must be 0, got {axis}")
    out = ndarray(indices.shape, data.dtype)
    gather.nc_n_gather(out, data, indices)
    return out if dtype is None else ops.copy(out, dtype)


def dropout(x: NkiTensor, rate: Any, dtype: Any = None) -> NkiTensor:
    """Return a copy of ``x`` in which each element is set to zero with probability ``rate``."""
    out = ndarray(x.shape, x.dtype if dtype is None else dtype)
    random.dropout(out, x, rate)
    return out


def random_seed(seed: NkiTensor) -> None:
    """Seed the random numbers of ``rand`` with ``seed``, a (1, 1) tile of a 32-bit dtype."""
    if not isinstance(seed, NkiTensor) or seed.size != 1:
        raise NkiValidationError(f"nl.random_seed seed must be a (1, 1) tile, got {seed!r}")
    random.set_rng_seed(seed)


def rand(shape: Any, dtype: Any, buffer: MemoryRegion = sbuf, name: str = "") -> NkiTensor:
    """Return a new tile of uniform random numbers in [0, 1), with 24 random bits each."""
    out = ndarray(shape, dtype, buffer, name)
    bits = ndarray(shape, dtypes.uint32)
    random.rng(bits)
    vector.tensor_scalar(bits, bits, ops.right_shift, 8)
    vector.tensor_scalar(out, bits, ops.multiply, 2.0**-24)
    return out
