"""Gathers by index: within partitions, within the 16 partitions of a GpSimd core, and within quadrants of 32."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trnqc.sim.instructions import checks
from trnqc.sim.instructions.checks import SBUF
from trnqc.sim.instructions.search import GPSIMD_PARTITIONS
from trnqc.sim.machine import machine
from trnqc.sim.machine.faults import NkiValidationError
from trnqc.sim.machine.targets import PARTITIONS
from trnqc.sim.memory import dtypes
from trnqc.sim.memory.tensor import NkiTensor
from trnqc.sim.memory.values import rows

QUADRANT = 32  # partitions of a quadrant
UNCHANGED = 255  # entry of a shuffle mask that leaves its partition unchanged
GATHER_WIDTHS = (1, 2, 4, 8, 16, 32)  # elements per index of local_gather
GATHER_INDICES = 4096  # most indices of local_gather


def nc_n_gather(dst: NkiTensor, data: NkiTensor, indices: NkiTensor, name: str | None = None) -> None:
    """Gather within partitions on GpSimd: dst[p, j] = data[p, indices[p, j]], with flattened free dimensions.

    Parameters
    ----------
    dst, data : NkiTensor
        SBUF tiles with equal dtypes and partitions.
    indices : NkiTensor
        uint32 SBUF tile with the elements per partition of dst; indices must lie within data.
    """
    op = "nc_n_gather"
    run = machine.current()
    for role, t in (("dst", dst), ("data", data), ("indices", indices)):
        checks.tile(op, role, t, SBUF)
    checks.same_tiles(op, "indices", indices, dst=dst)
    _same_dtype(op, dst, "data", data)
    checks.one_of(op, "indices", indices, (dtypes.uint32,))
    if data.shape[0] != dst.shape[0]:
        raise NkiValidationError(
            f"{op} data and dst must have the same partition dimension, got {data.shape[0]} and {dst.shape[0]}"
        )
    if run.issue(op, "gpsimd", (dst,), (data, indices), name):
        source, columns = rows(data), rows(indices).astype(np.int64)
        _in_range(op, "indices", columns, source.shape[1])
        dst.array()[...] = np.take_along_axis(source, columns, axis=1).reshape(dst.shape)


def _same_dtype(op: str, dst: NkiTensor, role: str, source: NkiTensor) -> None:
    if dst.dtype is not source.dtype:
        raise NkiValidationError(f"{op} dst and {role} must have the same dtype, got {dst.dtype} and {source.dtype}")


def _in_range(op: str, role: str, indices: np.ndarray, count: int) -> None:
    if indices.size and indices.max() >= count:
        raise NkiValidationError(f"{op} {role} must be below {count}, got {int(indices.max())}")


def local_gather(
    dst: NkiTensor,
    src_buffer: NkiTensor,
    index: NkiTensor,
    num_elem_per_idx: int = 1,
    num_valid_indices: int | None = None,
    name: str | None = None,
) -> None:
    """Gather within partitions on GpSimd, with common indices for each group of 16 partitions.

    Parameters
    ----------
    dst : NkiTensor
        SBUF tile with the dtype of src_buffer; elements beyond the gathered ones are set to zero.
    src_buffer : NkiTensor
        SBUF tile; its number of partitions is a multiple of 16.
    index : NkiTensor
        uint16 SBUF tile. The indices of a group are read column by column from its 16 partitions.
    num_elem_per_idx : int
        Consecutive elements that each index takes: 1, 2, 4, 8, 16 or 32.
    num_valid_indices : int, optional
        Number of indices of each group that are used; by default all, 4096 at most.
    """
    op = "local_gather"
    run = machine.current()
    for role, t in (("dst", dst), ("src_buffer", src_buffer), ("index", index)):
        checks.tile(op, role, t, SBUF)
    _same_dtype(op, dst, "src_buffer", src_buffer)
    checks.one_of(op, "index", index, (dtypes.uint16,))
    P = src_buffer.shape[0]
    if index.shape[0] != P or dst.shape[0] != P or P % GPSIMD_PARTITIONS:
        raise NkiValidationError(
            f"{op} src_buffer, index and dst must have the same partition dimension, a multiple of 16, got "
            f"{P}, {index.shape[0]} and {dst.shape[0]}"
        )
    if num_elem_per_idx not in GATHER_WIDTHS:
        raise NkiValidationError(f"{op} num_elem_per_idx must be one of {GATHER_WIDTHS}, got {num_elem_per_idx!r}")
    available = index.size // P * GPSIMD_PARTITIONS
    count = available if num_valid_indices is None else num_valid_indices
    if not 1 <= count <= min(available, GATHER_INDICES):
        raise NkiValidationError(
            f"{op} num_valid_indices must be between 1 and {min(available, GATHER_INDICES)} for this index tile, "
            f"got {count}"
        )
    if dst.size // P < count * num_elem_per_idx:
        raise NkiValidationError(
            f"{op} dst must hold {count} x {num_elem_per_idx} elements per partition, got {dst.size // P}"
        )
    if run.issue(op, "gpsimd", (dst,), (src_buffer, index), name):
        source = rows(src_buffer)
        groups = rows(index).reshape(-1, GPSIMD_PARTITIONS, index.size // P)
        starts = groups.transpose(0, 2, 1).reshape(len(groups), -1)[:, :count].astype(np.int64)
        columns = (starts[:, :, None] + np.arange(num_elem_per_idx)).reshape(len(groups), -1)
        _in_range(op, "index", columns, source.shape[1])
        out = np.zeros((P, dst.size // P), source.dtype)
        out[:, : columns.shape[1]] = np.take_along_axis(source, np.repeat(columns, GPSIMD_PARTITIONS, axis=0), axis=1)
        dst.array()[...] = out.reshape(dst.shape)


def nc_stream_shuffle(dst: NkiTensor, src: NkiTensor, shuffle_mask: Sequence[int], name: str | None = None) -> None:
    """Permute partitions within quadrants on the VectorE: dst[32 q + i] = src[32 q + shuffle_mask[i]].

    Parameters
    ----------
    dst, src : NkiTensor
        Tiles with equal dtypes and elements per partition.
    shuffle_mask : sequence of int
        32 entries below 32; 255 leaves the partition of dst unchanged.
    """
    op = "nc_stream_shuffle"
    run = machine.current()
    checks.tensor(op, "dst", dst, checks.ON_CHIP)
    checks.tensor(op, "src", src, checks.ON_CHIP)
    _same_dtype(op, dst, "src", src)
    if dst.size // dst.shape[0] != src.size // src.shape[0]:
        raise NkiValidationError(
            f"{op} dst and src must have the same number of elements per partition, got {dst.shape} and {src.shape}"
        )
    mask = _check_mask(op, shuffle_mask)
    active = -(-max(dst.shape[0], src.shape[0]) // QUADRANT) * QUADRANT
    for role, t in (("dst", dst), ("src", src)):
        _check_start(op, role, t, active)
    pairs = _pairs(op, mask, dst.shape[0], src.shape[0])
    if run.issue(op, "vector", (dst,), (src, dst), name):
        original = src.array().copy()
        out = dst.array()
        for to, source in pairs:
            out[to] = original[source].reshape(out[to].shape)


def _check_mask(op: str, mask: Sequence[int]) -> list[int]:
    values = list(mask)
    if len(values) != QUADRANT or any(not isinstance(m, (int, np.integer)) for m in values):
        raise NkiValidationError(f"{op} shuffle_mask must be a list of 32 integers, got {mask!r}")
    if any(m != UNCHANGED and not 0 <= m < QUADRANT for m in values):
        raise NkiValidationError(f"{op} shuffle_mask entries must be within [0, 32) or 255, got {values}")
    return [int(m) for m in values]


def _check_start(op: str, role: str, t: NkiTensor, active: int) -> None:
    step = QUADRANT if active == QUADRANT else 2 * QUADRANT if active == 2 * QUADRANT else PARTITIONS
    if t.start_partition % step:
        raise NkiValidationError(
            f"{op} {role} must start at partition {', '.join(str(p) for p in range(0, PARTITIONS, step))} with "
            f"{active} active partitions, got {t.start_partition}"
        )


def _pairs(op: str, mask: list[int], to_rows: int, from_rows: int) -> list[tuple[int, int]]:
    """Return (destination, source) partitions, after checking that src has every partition that is read."""
    pairs = []
    for to in range(to_rows):
        choice = mask[to % QUADRANT]
        if choice == UNCHANGED:
            continue
        source = to // QUADRANT * QUADRANT + choice
        if source >= from_rows:
            raise NkiValidationError(
                f"{op} shuffle_mask entry {choice} for partition {to} reads partition {source} of src, which has "
                f"{from_rows}"
            )
        pairs.append((to, source))
    return pairs
