"""Searches within partitions: the eight largest elements and their indices, top-k, nonzeros and segment bounds."""

from __future__ import annotations

from typing import Any

import numpy as np

from trnqc.sim.instructions import checks
from trnqc.sim.instructions.checks import SBUF
from trnqc.sim.machine import machine
from trnqc.sim.machine.faults import NkiValidationError
from trnqc.sim.memory import dtypes
from trnqc.sim.memory.tensor import NkiTensor
from trnqc.sim.memory.values import rows, store, widen

EIGHT = 8  # elements that one search instruction handles per partition
SEARCH_MIN, SEARCH_MAX = 8, 16384  # elements per partition of searched data
GPSIMD_PARTITIONS = 16  # partitions that one GpSimd core is connected to


def max8(dst: NkiTensor, src: NkiTensor, name: str | None = None) -> None:
    """Find the eight largest elements of each partition on the VectorE, in descending order.

    Parameters
    ----------
    dst : NkiTensor
        [P, 8] result.
    src : NkiTensor
        Data with up to 3 dimensions and 8 to 16384 elements per partition.
    """
    run = machine.current()
    checks.tile("max8", "dst", dst)
    checks.tile("max8", "src", src)
    checks.rank("max8", "src", src, 3)
    checks.rank("max8", "dst", dst, 2)
    checks.per_partition("max8", "src", src, SEARCH_MIN, SEARCH_MAX)
    checks.per_partition("max8", "dst", dst, EIGHT, EIGHT)
    checks.same_partitions("max8", "dst", dst, "src", src)
    if run.issue("max8", "vector", (dst,), (src,), name):
        store(dst.array(), np.sort(widen(rows(src)), axis=1)[:, : -EIGHT - 1 : -1], dst.dtype)


def nc_find_index8(dst: NkiTensor, data: NkiTensor, vals: NkiTensor, name: str | None = None) -> None:
    """Find the index of the first occurrence of vals[p, i] in data[p, ...] on the VectorE.

    Parameters
    ----------
    dst : NkiTensor
        [P, 8] indices of uint16 or uint32; all bits are set for a value that does not occur.
    data : NkiTensor
        Data with 8 to 16384 elements per partition.
    vals : NkiTensor
        8 values per partition. A value that occurs n times here gets its first n indices in data, in ascending order.
    """
    run = machine.current()
    _check_search("nc_find_index8", data, vals)
    checks.tile("nc_find_index8", "dst", dst)
    _check_indices("nc_find_index8", "dst", dst, data)
    if run.issue("nc_find_index8", "vector", (dst,), (data, vals), name):
        indices, _ = _match(rows(data), rows(vals), range(EIGHT))
        _store_indices(dst, indices)


def nc_match_replace8(
    dst: NkiTensor,
    data: NkiTensor,
    vals: NkiTensor,
    imm: float,
    dst_idx: NkiTensor | None = None,
    name: str | None = None,
) -> None:
    """Copy data to dst with the first occurrence of each vals[p, i] replaced by ``imm``, on the VectorE.

    Parameters
    ----------
    dst, data : NkiTensor
        Tiles with 8 to 16384 elements per partition.
    vals : NkiTensor
        8 values per partition, matched from the last to the first: of equal values the last gets the first occurrence.
    imm : float
        Replacement.
    dst_idx : NkiTensor, optional
        [P, 8] indices (uint16 or uint32) of the replaced elements; all bits are set for a value that does not occur.
    """
    op = "nc_match_replace8"
    run = machine.current()
    _check_search(op, data, vals)
    checks.tile(op, "dst", dst)
    checks.same_tiles(op, "data", data, dst=dst)
    if not checks.is_number(imm):
        raise NkiValidationError(f"{op} imm must be a number, got {imm!r}")
    outputs: tuple[NkiTensor, ...] = (dst,)
    if dst_idx is not None:
        checks.tile(op, "dst_idx", dst_idx)
        _check_indices(op, "dst_idx", dst_idx, data)
        outputs = (dst, dst_idx)
    if run.issue(op, "vector", outputs, (data, vals), name):
        indices, matched = _match(rows(data), rows(vals), reversed(range(EIGHT)))
        store(dst.array(), np.where(matched, np.float32(imm), widen(rows(data))), dst.dtype)
        if dst_idx is not None:
            _store_indices(dst_idx, indices)


def _check_search(op: str, data: NkiTensor, vals: NkiTensor) -> None:
    checks.tile(op, "data", data)
    checks.tile(op, "vals", vals)
    checks.rank(op, "vals", vals, 3)
    checks.per_partition(op, "data", data, SEARCH_MIN, SEARCH_MAX)
    checks.per_partition(op, "vals", vals, EIGHT, EIGHT)
    checks.same_partitions(op, "data", data, "vals", vals)


def _check_indices(op: str, role: str, indices: NkiTensor, data: NkiTensor) -> None:
    checks.one_of(op, role, indices, (dtypes.uint16, dtypes.uint32))
    checks.rank(op, role, indices, 2)
    checks.per_partition(op, role, indices, EIGHT, EIGHT)
    checks.same_partitions(op, role, indices, "data", data)


def _match(data: np.ndarray, vals: np.ndarray, order: Any) -> tuple[np.ndarray, np.ndarray]:
    """Match each value, in the given order, with its first unmatched occurrence in data.

    Returns the indices [P, 8], with -1 for no match, and the mask of the matched elements of data.
    """
    data, vals = widen(data), widen(vals)
    indices = np.full(vals.shape, -1, np.int64)
    matched = np.zeros(data.shape, bool)
    lane = np.arange(len(data))
    for i in order:
        free = (data == vals[:, i : i + 1]) & ~matched
        first = free.argmax(axis=1)
        hit = free[lane, first]
        indices[hit, i] = first[hit]
        matched[lane[hit], first[hit]] = True
    return indices, matched


def _store_indices(dst: NkiTensor, indices: np.ndarray) -> None:
    dst.array()[...] = indices.astype(dst.dtype.numpy).reshape(dst.shape)


def topk(val_dst: NkiTensor, idx_dst: NkiTensor, src: NkiTensor, n: int, name: str | None = None) -> None:
    """Find the K largest values of each group of 16 partitions, in ascending order, and their indices. GpSimd.

    Parameters
    ----------
    val_dst, idx_dst : NkiTensor
        [P, K] values (bf16) and indices (uint32); each partition of a group receives the result of the group.
    src : NkiTensor
        bf16 SBUF tile; element e of a group is src[e % 16, e // 16]. Of equal values the lower index ranks higher.
    n : int
        Number of values of each group, at least K and from 8 to 65535.
    """
    op = "topk"
    run = machine.current()
    for role, t in (("val_dst", val_dst), ("idx_dst", idx_dst), ("src", src)):
        checks.tile(op, role, t, SBUF)
        checks.rank(op, role, t, 2)
        checks.same_partitions(op, role, t, "src", src)
    checks.one_of(op, "src", src, (dtypes.bfloat16,))
    checks.one_of(op, "val_dst", val_dst, (dtypes.bfloat16,))
    checks.one_of(op, "idx_dst", idx_dst, (dtypes.uint32,))
    if src.shape[0] % GPSIMD_PARTITIONS:
        raise NkiValidationError(f"topk src partition dimension must be a multiple of 16, got {src.shape[0]}")
    K = val_dst.shape[1]
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or not 8 <= n < 65536:
        raise NkiValidationError(f"topk n must be an integer between 8 and 65535, got {n!r}")
    if not 1 <= K < 32768 or n < K or idx_dst.shape[1] != K:
        raise NkiValidationError(
            f"topk val_dst and idx_dst must have the same K, 1 <= K < 32768 and K <= n = {n}, "
            f"got {K} and {idx_dst.shape[1]}"
        )
    if src.shape[1] * GPSIMD_PARTITIONS < n:
        raise NkiValidationError(f"topk src must hold n = {n} elements in 16 partitions, got {src.shape[1]} columns")
    if run.issue(op, "gpsimd", (val_dst, idx_dst), (src,), name):
        groups = widen(src.array()).reshape(-1, GPSIMD_PARTITIONS, src.shape[1])
        columns = groups.transpose(0, 2, 1).reshape(len(groups), -1)[:, :n]
        best = np.argsort(-columns, axis=1, kind="stable")[:, :K][:, ::-1]
        values = np.take_along_axis(columns, best, axis=1)
        store(val_dst.array(), np.repeat(values, GPSIMD_PARTITIONS, axis=0), val_dst.dtype)
        idx_dst.array()[...] = np.repeat(best, GPSIMD_PARTITIONS, axis=0)


def nonzero_with_count(
    dst: NkiTensor, src: NkiTensor, index_offset: int = 0, padding_val: int = -1, name: str | None = None
) -> None:
    """Find the indices of the nonzero elements of src[p], and their number, on GpSimd (trn2 or later).

    Parameters
    ----------
    dst : NkiTensor
        [P, T + 1] int32: the indices, then padding, and the number of nonzeros last.
    src : NkiTensor
        [P, T] of fp32 or int32.
    index_offset : int
        Number that is added to the indices.
    padding_val : int
        Value of the unused elements of dst.

    Notes
    -----
    Only partitions 0, 16, 32, ... of the machine are read and written.
    """
    op = "nonzero_with_count"
    run = machine.current()
    checks.needs_generation(run, op, 3)
    checks.tile(op, "dst", dst, SBUF)
    checks.tile(op, "src", src, SBUF)
    checks.one_of(op, "src", src, (dtypes.float32, dtypes.int32))
    checks.one_of(op, "dst", dst, (dtypes.int32,))
    checks.same_partitions(op, "dst", dst, "src", src)
    T = src.size // src.shape[0]
    if dst.size // dst.shape[0] != T + 1:
        raise NkiValidationError(
            f"{op} dst must have one element per partition more than src ({T} + 1), got {dst.size // dst.shape[0]}"
        )
    for role, value in (("index_offset", index_offset), ("padding_val", padding_val)):
        checks.int32(op, role, value)
    if run.issue(op, "gpsimd", (dst,), (src,), name):
        data, out = rows(src), dst.array()
        for p in range(-src.start_partition % GPSIMD_PARTITIONS, src.shape[0], GPSIMD_PARTITIONS):
            indices = np.flatnonzero(data[p])
            result = np.full(T + 1, padding_val, np.int32)
            result[: len(indices)] = indices + index_offset
            result[T] = len(indices)
            out[p] = result.reshape(out[p].shape)


def sequence_bounds(dst: NkiTensor, segment_ids: NkiTensor, name: str | None = None) -> None:
    """Find for each element the bounds of its segment, the run of equal ids around it, on GpSimd.

    Parameters
    ----------
    dst : NkiTensor
        [1, 2, n] of fp32 or int32: the first indices of the segments, then their exclusive ends.
    segment_ids : NkiTensor
        [1, n] of fp32 or int32. Elements with id 0 are padding, with the bounds (n, -1).
    """
    op = "sequence_bounds"
    run = machine.current()
    checks.tile(op, "dst", dst, SBUF)
    checks.tile(op, "segment_ids", segment_ids, SBUF)
    checks.one_of(op, "dst", dst, (dtypes.float32, dtypes.int32))
    checks.one_of(op, "segment_ids", segment_ids, (dtypes.float32, dtypes.int32))
    n = segment_ids.size
    if segment_ids.shape[0] != 1 or dst.shape != (1, 2, n):
        raise NkiValidationError(
            f"{op} needs segment_ids of shape (1, n) and dst of shape (1, 2, n), got {segment_ids.shape} and "
            f"{dst.shape}"
        )
    if run.issue(op, "gpsimd", (dst,), (segment_ids,), name):
        ids = segment_ids.array().reshape(-1)
        cuts = np.flatnonzero(np.diff(ids)) + 1
        begins, ends = np.concatenate([[0], cuts]), np.concatenate([cuts, [n]])
        lengths = ends - begins
        bounds = np.stack([np.repeat(begins, lengths), np.repeat(ends, lengths)])
        bounds[:, ids == 0] = [[n], [-1]]
        store(dst.array(), bounds, dst.dtype)
