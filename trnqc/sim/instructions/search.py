"""Search within partitions: the eight largest, where they are, replacing them; top-k, nonzeros, segment bounds."""

from __future__ import annotations

from typing import Any

import numpy as np

from trnqc.sim.faults import NkiValidationError
from trnqc.sim.instructions import checks
from trnqc.sim.instructions.checks import SBUF
from trnqc.sim.launch import machine
from trnqc.sim.launch.machine import Run
from trnqc.sim.memory import dtypes
from trnqc.sim.memory.tensor import NkiTensor
from trnqc.sim.memory.values import store, widen

EIGHT = 8
SEARCH_MIN, SEARCH_MAX = 8, 16384
GPSIMD_PARTITIONS = 16  # partitions that one GpSimd core is wired to


def rows(t: NkiTensor) -> np.ndarray:
    """The tile as [partitions, elements per partition]."""
    array = t.array()
    return array.reshape(array.shape[0], -1)


def needs_generation(run: Run, op: str, generation: int) -> None:
    """Refuse an instruction that the target does not have."""
    if run.target.generation < generation:
        raise NkiValidationError(f"{op} needs trn{generation - 1} (gen{generation}) or later, got {run.target.name}")


def one_of(op: str, role: str, t: NkiTensor, allowed: tuple[dtypes.DType, ...]) -> None:
    """Refuse a tile whose number format is not among those allowed."""
    if t.dtype not in allowed:
        raise NkiValidationError(f"{op} {role} must be {' or '.join(d.name for d in allowed)}, got {t.dtype}")


def _per_partition(op: str, role: str, t: NkiTensor, low: int, high: int) -> None:
    count = t.size // t.shape[0]
    if not low <= count <= high:
        allowed = str(low) if low == high else f"between {low} and {high}"
        raise NkiValidationError(f"{op} {role} must have {allowed} elements per partition, got {count}")


def _rank(op: str, role: str, t: NkiTensor, most: int) -> None:
    if t.ndim > most:
        raise NkiValidationError(f"{op} {role} must have at most {most} dimensions, got shape {t.shape}")


def _same_partitions(op: str, first: str, a: NkiTensor, second: str, b: NkiTensor) -> None:
    if a.shape[0] != b.shape[0]:
        raise NkiValidationError(
            f"{op} {first} and {second} must have the same partition dimension, got {a.shape[0]} and {b.shape[0]}"
        )


def max8(dst: NkiTensor, src: NkiTensor, name: str | None = None) -> None:
    """dst[p, 0:8] = the eight largest of src[p, ...] in descending order (fp32). VectorE.

    src: up to 3 dimensions, 8 to 16384 elements per partition. dst: [P, 8].
    """
    run = machine.current()
    checks.tile("max8", "dst", dst)
    checks.tile("max8", "src", src)
    _rank("max8", "src", src, 3)
    _rank("max8", "dst", dst, 2)
    _per_partition("max8", "src", src, SEARCH_MIN, SEARCH_MAX)
    _per_partition("max8", "dst", dst, EIGHT, EIGHT)
    _same_partitions("max8", "dst", dst, "src", src)
    if run.issue("max8", "vector", (dst,), (src,), name):
        store(dst.array(), np.sort(widen(rows(src)), axis=1)[:, : -EIGHT - 1 : -1], dst.dtype)


def nc_find_index8(dst: NkiTensor, data: NkiTensor, vals: NkiTensor, name: str | None = None) -> None:
    """dst[p, i] = the first place of vals[p, i] in data[p, ...], all ones where there is none. VectorE.

    A value that stands n times in ``vals`` is paired with its first n places, in ascending order. data: 8 to 16384
    elements per partition; vals: 8; dst: [P, 8] of uint16 or uint32.
    """
    run = machine.current()
    _check_search("nc_find_index8", data, vals)
    checks.tile("nc_find_index8", "dst", dst)
    _check_places("nc_find_index8", "dst", dst, data)
    if run.issue("nc_find_index8", "vector", (dst,), (data, vals), name):
        found, _ = _match(rows(data), rows(vals), range(EIGHT))
        _store_places(dst, found)


def nc_match_replace8(
    dst: NkiTensor,
    data: NkiTensor,
    vals: NkiTensor,
    imm: float,
    dst_idx: NkiTensor | None = None,
    name: str | None = None,
) -> None:
    """dst = data with the first occurrence of each vals[p, i] replaced by ``imm``. VectorE.

    ``vals`` are matched from the last to the first, so of n equal ones the last takes the first place. dst_idx[p, i]
    is the place taken by vals[p, i], all ones if none.
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
        _check_places(op, "dst_idx", dst_idx, data)
        outputs = (dst, dst_idx)
    if run.issue(op, "vector", outputs, (data, vals), name):
        found, taken = _match(rows(data), rows(vals), reversed(range(EIGHT)))
        store(dst.array(), np.where(taken, np.float32(imm), widen(rows(data))), dst.dtype)
        if dst_idx is not None:
            _store_places(dst_idx, found)


def _check_search(op: str, data: NkiTensor, vals: NkiTensor) -> None:
    checks.tile(op, "data", data)
    checks.tile(op, "vals", vals)
    _rank(op, "vals", vals, 3)
    _per_partition(op, "data", data, SEARCH_MIN, SEARCH_MAX)
    _per_partition(op, "vals", vals, EIGHT, EIGHT)
    _same_partitions(op, "data", data, "vals", vals)


def _check_places(op: str, role: str, places: NkiTensor, data: NkiTensor) -> None:
    one_of(op, role, places, (dtypes.uint16, dtypes.uint32))
    _rank(op, role, places, 2)
    _per_partition(op, role, places, EIGHT, EIGHT)
    _same_partitions(op, role, places, "data", data)


def _match(data: np.ndarray, vals: np.ndarray, order: Any) -> tuple[np.ndarray, np.ndarray]:
    """(places [P, 8] with -1 for none, mask of the places taken); each element of data is taken once."""
    data, vals = widen(data), widen(vals)
    places = np.full(vals.shape, -1, np.int64)
    taken = np.zeros(data.shape, bool)
    lane = np.arange(len(data))
    for i in order:
        free = (data == vals[:, i : i + 1]) & ~taken
        first = free.argmax(axis=1)
        hit = free[lane, first]
        places[hit, i] = first[hit]
        taken[lane[hit], first[hit]] = True
    return places, taken


def _store_places(dst: NkiTensor, places: np.ndarray) -> None:
    dst.array()[...] = places.astype(dst.dtype.numpy).reshape(dst.shape)


def topk(val_dst: NkiTensor, idx_dst: NkiTensor, src: NkiTensor, n: int, name: str | None = None) -> None:
    """The K largest of each group of 16 partitions, ascending, and their places. GpSimd.

    Element e of a group's n values lies at src[e % 16, e // 16]. Every partition of the group gets the group's result
    in val_dst [P, K] (bf16) and idx_dst [P, K] (uint32); of equal values the lower place ranks higher.
    """
    op = "topk"
    run = machine.current()
    for role, t in (("val_dst", val_dst), ("idx_dst", idx_dst), ("src", src)):
        checks.tile(op, role, t, SBUF)
        _rank(op, role, t, 2)
        _same_partitions(op, role, t, "src", src)
    one_of(op, "src", src, (dtypes.bfloat16,))
    one_of(op, "val_dst", val_dst, (dtypes.bfloat16,))
    one_of(op, "idx_dst", idx_dst, (dtypes.uint32,))
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
        snakes = groups.transpose(0, 2, 1).reshape(len(groups), -1)[:, :n]
        best = np.argsort(-snakes, axis=1, kind="stable")[:, :K][:, ::-1]
        values = np.take_along_axis(snakes, best, axis=1)
        store(val_dst.array(), np.repeat(values, GPSIMD_PARTITIONS, axis=0), val_dst.dtype)
        idx_dst.array()[...] = np.repeat(best, GPSIMD_PARTITIONS, axis=0)


def nonzero_with_count(
    dst: NkiTensor, src: NkiTensor, index_offset: int = 0, padding_val: int = -1, name: str | None = None
) -> None:
    """dst[p] = places of the nonzero elements of src[p] plus ``index_offset``, padding, and last their number.
    GpSimd, gen3+.

    Only partitions 0, 16, 32, ... of the machine are read and written. src: fp32 or int32, [P, T];
    dst: int32, [P, T + 1].
    """
    op = "nonzero_with_count"
    run = machine.current()
    needs_generation(run, op, 3)
    checks.tile(op, "dst", dst, SBUF)
    checks.tile(op, "src", src, SBUF)
    one_of(op, "src", src, (dtypes.float32, dtypes.int32))
    one_of(op, "dst", dst, (dtypes.int32,))
    _same_partitions(op, "dst", dst, "src", src)
    T = src.size // src.shape[0]
    if dst.size // dst.shape[0] != T + 1:
        raise NkiValidationError(
            f"{op} dst must have one element per partition more than src ({T} + 1), got {dst.size // dst.shape[0]}"
        )
    for role, value in (("index_offset", index_offset), ("padding_val", padding_val)):
        int32(op, role, value)
    if run.issue(op, "gpsimd", (dst,), (src,), name):
        found, out = rows(src), dst.array()
        for p in range(-src.start_partition % GPSIMD_PARTITIONS, src.shape[0], GPSIMD_PARTITIONS):
            places = np.flatnonzero(found[p])
            line = np.full(T + 1, padding_val, np.int32)
            line[: len(places)] = places + index_offset
            line[T] = len(places)
            out[p] = line.reshape(out[p].shape)


def int32(op: str, role: str, value: Any) -> int:
    """``value`` is a 32-bit integer constant."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not -(2**31) <= value < 2**31:
        raise NkiValidationError(f"{op} {role} must be a 32-bit integer constant, got {value!r}")
    return int(value)


def sequence_bounds(dst: NkiTensor, segment_ids: NkiTensor, name: str | None = None) -> None:
    """For each element, begin and end (exclusive) of the run of equal ids that it is in. GpSimd.

    segment_ids: [1, n] of fp32 or int32, 0 marking padding, whose bounds are (n, -1). dst: [1, 2, n], begins then ends.
    """
    op = "sequence_bounds"
    run = machine.current()
    checks.tile(op, "dst", dst, SBUF)
    checks.tile(op, "segment_ids", segment_ids, SBUF)
    one_of(op, "dst", dst, (dtypes.float32, dtypes.int32))
    one_of(op, "segment_ids", segment_ids, (dtypes.float32, dtypes.int32))
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
