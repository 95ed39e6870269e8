"""``nl`` functions that create tensors and query the launch."""

from __future__ import annotations

from typing import Any

import numpy as np

from trnqc.sim.instructions import vector
from trnqc.sim.machine import machine
from trnqc.sim.machine.faults import NkiValidationError
from trnqc.sim.memory import dtypes
from trnqc.sim.memory.storage import MemoryRegion, allocate
from trnqc.sim.memory.tensor import NkiTensor

sbuf = MemoryRegion.sbuf
psum = MemoryRegion.psum
private_hbm = hbm = MemoryRegion.private_hbm
shared_hbm = MemoryRegion.shared_hbm


def ndarray(
    shape: Any, dtype: Any, buffer: MemoryRegion = sbuf, name: str = "", address: tuple[int, int] | None = None
) -> NkiTensor:
    """Allocate an uninitialised tensor, which reads as NaN, or as 4 in integer dtypes.

    Parameters
    ----------
    shape : sequence of int
        Shape; dimension 0 of SBUF and PSUM tiles is the partition, of size 128 at most.
    dtype : DType, str or np.dtype
        Number format.
    buffer : MemoryRegion
        Memory to allocate in.
    name : str
        Name for error messages and reports.
    address : (int, int), optional
        First partition and byte offset in the partition, to place a tile by hand.
    """
    storage = allocate(shape, dtype, buffer, name, address)
    return NkiTensor(storage.shape, storage.dtype, storage, buffer, name)


def full(shape: Any, fill_value: Any, dtype: Any, buffer: MemoryRegion = sbuf, name: str = "") -> NkiTensor:
    """Allocate a tensor and set all elements to ``fill_value``."""
    tensor = ndarray(shape, dtype, buffer, name)
    if tensor.on_chip:
        vector.memset(tensor, fill_value)
    elif machine.current().issue("dma_copy", "dma", (tensor,), ()):
        vector.fill(tensor, fill_value)
    return tensor


def zeros(shape: Any, dtype: Any, buffer: MemoryRegion = sbuf, name: str = "") -> NkiTensor:
    """Allocate a tensor of zeros."""
    return full(shape, 0, dtype, buffer, name)


def ones(shape: Any, dtype: Any, buffer: MemoryRegion = sbuf, name: str = "") -> NkiTensor:
    """Allocate a tensor of ones."""
    return full(shape, 1, dtype, buffer, name)


def empty_like(x: NkiTensor, dtype: Any = None, buffer: MemoryRegion | None = None, name: str = "") -> NkiTensor:
    """Allocate an uninitialised tensor with the shape, and by default the dtype and buffer, of ``x``."""
    return ndarray(x.shape, x.dtype if dtype is None else dtype, x.buffer if buffer is None else buffer, name)


def zeros_like(x: NkiTensor, dtype: Any = None, buffer: MemoryRegion | None = None, name: str = "") -> NkiTensor:
    """Allocate a tensor of zeros with the shape, and by default the dtype and buffer, of ``x``."""
    return zeros(x.shape, x.dtype if dtype is None else dtype, x.buffer if buffer is None else buffer, name)


def shared_constant(constant: Any) -> NkiTensor:
    """Copy a NumPy array, or the array in a ``.npy`` file, to shared HBM."""
    array = np.load(constant) if isinstance(constant, str) else np.asarray(constant)
    dtype = dtypes.from_numpy(array.dtype, "shared_constant")
    tensor = ndarray(array.shape, dtype, shared_hbm, "constant")
    if tensor.storage.raw is not None:
        tensor.array()[...] = array
    return tensor


def shared_identity_matrix(n: int, dtype: Any = dtypes.uint8, dst: NkiTensor | None = None) -> NkiTensor:
    """Write the n x n identity to ``dst``, by default a new SBUF tile, and return it."""
    tensor = ndarray((n, n), dtype, sbuf, "identity") if dst is None else dst
    if tensor.shape != (n, n):
        raise NkiValidationError(f"shared_identity_matrix dst must have shape ({n}, {n}), got {tensor.shape}")
    if machine.current().issue("dma_copy", "dma", (tensor,), ()):
        tensor.array()[...] = np.eye(n, dtype=tensor.dtype.numpy)
    return tensor


def program_id(axis: int = 0) -> int:
    """Index of the running core along ``axis`` of the launch; 0 for axes other than 0."""
    return machine.current().core if axis == 0 else 0


def num_programs(axes: int = 0) -> int:
    """Number of cores along axis ``axes`` of the launch; 1 for axes other than 0."""
    return machine.current().cores if axes == 0 else 1


def program_ndim() -> int:
    """Number of axes of the launch: 1 on two cores, 0 on one core."""
    return 1 if machine.current().cores > 1 else 0


def is_hbm(buffer: Any) -> bool:
    """Whether ``buffer`` is private or shared HBM."""
    return buffer in (private_hbm, shared_hbm)


def is_sbuf(buffer: Any) -> bool:
    """Whether ``buffer`` is SBUF."""
    return buffer is sbuf


def is_psum(buffer: Any) -> bool:
    """Whether ``buffer`` is PSUM."""
    return buffer is psum


def is_on_chip(buffer: Any) -> bool:
    """Whether ``buffer`` is SBUF or PSUM."""
    return buffer in (sbuf, psum)


def device_print(print_prefix: str, tensor: NkiTensor) -> None:
    """Print a tensor in SBUF or HBM after ``print_prefix``."""
    if tensor.buffer is psum:
        raise NkiValidationError("device_print tensor must be in ['sbuf','private_hbm','shared_hbm'], got psum")
    if machine.current().issue("device_print", "sync", (), (tensor,)):
        print(print_prefix, tensor.array())
