"""Selection between elements by affine, range and predicate masks, and the index patterns behind them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trnqc.sim.instructions import checks, reduction
from trnqc.sim.instructions.checks import SBUF
from trnqc.sim.machine import machine, ops
from trnqc.sim.machine.enums import reduce_cmd
from trnqc.sim.machine.faults import NkiValidationError
from trnqc.sim.memory import dtypes
from trnqc.sim.memory.tensor import NkiTensor
from trnqc.sim.memory.values import rows, store, widen

COMPARISONS = (ops.equal, ops.less, ops.less_equal, ops.greater, ops.greater_equal)
FP32_MIN = float(np.finfo(np.float32).min)


def _affine(op: str, pattern: Any, offset: Any, channel_multiplier: Any, dst: NkiTensor) -> np.ndarray:
    """Return offset + p channel_multiplier + sum_d i_d step_d, [P, elements per partition], modulo 2^32."""
    if not isinstance(pattern, Sequence) or not 1 <= len(pattern) <= 4 or any(len(pair) != 2 for pair in pattern):
        raise NkiValidationError(f"{op} pattern must be a list of one to four [step, num] pairs, got {pattern!r}")
    value = np.full((1,), checks.int32(op, "offset", offset), np.int64)
    for step, num in pattern:
        if checks.int32(op, "pattern num", num) < 1:
            raise NkiValidationError(f"{op} pattern num must be positive, got {pattern}")
        if not -(2**15) <= checks.int32(op, "pattern step", step) < 2**15:
            raise NkiValidationError(f"{op} pattern steps have 16 bits, from -32768 to 32767; got {step} in {pattern}")
        value = (value[:, None] + step * np.arange(num)).reshape(-1)
    if len(value) != dst.size // dst.shape[0]:
        raise NkiValidationError(
            f"{op} pattern must have as many elements as dst per partition ({dst.size // dst.shape[0]}), "
            f"got {len(value)} from {pattern}"
        )
    channel = np.arange(dst.shape[0])[:, None] * checks.int32(op, "channel_multiplier", channel_multiplier)
    return (value + channel).astype(np.int32)


def iota(
    dst: NkiTensor,
    pattern: Sequence[Sequence[int]],
    offset: int = 0,
    channel_multiplier: int = 0,
    name: str | None = None,
) -> None:
    """Write an index pattern on GpSimd: dst[p, i...] = offset + p channel_multiplier + sum_d i_d step_d.

    Parameters
    ----------
    dst : NkiTensor
        SBUF tile with as many elements per partition as the pattern.
    pattern : sequence of (int, int)
        One to four pairs [step_d, number of i_d].
    offset, channel_multiplier : int
        32-bit constants; all arithmetic is modulo 2^32.
    """
    run = machine.current()
    checks.tile("iota", "dst", dst, SBUF)
    value = _affine("iota", pattern, offset, channel_multiplier, dst)
    if run.issue("iota", "gpsimd", (dst,), (), name):
        store(dst.array(), value, dst.dtype)


def affine_select(
    dst: NkiTensor,
    pattern: Sequence[Sequence[int]],
    channel_multiplier: int,
    on_true_tile: NkiTensor,
    on_false_value: float,
    cmp_op: ops.Op = ops.equal,
    offset: int = 0,
    name: str | None = None,
) -> None:
    """Select by an index pattern on GpSimd: dst = on_true_tile where cmp_op(pattern value, 0) holds.

    Parameters
    ----------
    dst, on_true_tile : NkiTensor
        SBUF tiles with equal partitions and elements per partition.
    pattern, channel_multiplier, offset
        Index pattern; see `iota`.
    on_false_value : float
        Value of dst elsewhere.
    cmp_op : Op
        Comparison operator.
    """
    op = "affine_select"
    run = machine.current()
    checks.tile(op, "dst", dst, SBUF)
    checks.tile(op, "on_true_tile", on_true_tile, SBUF)
    checks.same_tiles(op, "dst", dst, on_true_tile=on_true_tile)
    _comparison(op, "cmp_op", cmp_op, (*COMPARISONS, ops.not_equal))
    if not checks.is_number(on_false_value):
        raise NkiValidationError(f"{op} on_false_value must be a number (fp32), got {on_false_value!r}")
    value = _affine(op, pattern, offset, channel_multiplier, dst)
    if run.issue(op, "gpsimd", (dst,), (on_true_tile,), name):
        kept = cmp_op.alu(value, np.int32(0)) != 0
        _store_choice(dst, kept, on_true_tile, np.float32(on_false_value))


def _comparison(op: str, role: str, value: Any, allowed: tuple[ops.Op, ...]) -> None:
    if value not in allowed:
        raise NkiValidationError(f"{op} {role} must be one of {', '.join(map(repr, allowed))}, got {value!r}")


def _store_choice(dst: NkiTensor, mask: np.ndarray, on_true: NkiTensor, on_false: Any) -> None:
    """Store ``on_true`` where ``mask`` holds, bit by bit if the dtypes agree, and ``on_false`` elsewhere."""
    source, out = rows(on_true).copy(), dst.array()
    store(out, np.broadcast_to(np.asarray(on_false, np.float32), mask.shape), dst.dtype)
    flat = mask.reshape(out.shape)
    if on_true.dtype is dst.dtype:
        out[flat] = source.reshape(out.shape)[flat]
    else:
        cast = np.empty(out.shape, out.dtype)
        store(cast, widen(source), dst.dtype)
        out[flat] = cast[flat]


def range_select(
    dst: NkiTensor,
    on_true_tile: NkiTensor,
    comp_op0: ops.Op,
    comp_op1: ops.Op,
    bound0: NkiTensor,
    bound1: NkiTensor,
    reduce_cmd: reduce_cmd = reduce_cmd.reset_reduce,
    reduce_res: NkiTensor | None = None,
    reduce_op: ops.Op = ops.maximum,
    range_start: int = 0,
    on_false_value: Any = FP32_MIN,
    name: str | None = None,
) -> None:
    """Select a range of indices: dst = on_true_tile where comp_op0(j, bound0[p]) and comp_op1(j, bound1[p]).

    The index is j = range_start + index in the partition, compared in fp32. VectorE, trn2 or later.

    Parameters
    ----------
    dst, on_true_tile : NkiTensor
        Tiles with equal partitions and elements per partition; on_true_tile has a floating-point dtype.
    comp_op0, comp_op1 : Op
        Comparison operators.
    bound0, bound1 : NkiTensor
        (P, 1) fp32 tiles.
    reduce_cmd, reduce_res, reduce_op
        Reduction of dst with ``nl.maximum`` in the reduction registers, and the (P, 1) tile that receives them.
    range_start : int
        First index; all indices must stay within 2^24, so that fp32 represents them.
    on_false_value : float
        Value of dst elsewhere, which must be the lowest fp32 number.
    """
    op = "range_select"
    run = machine.current()
    checks.needs_generation(run, op, 3)
    checks.tile(op, "dst", dst)
    checks.tile(op, "on_true_tile", on_true_tile)
    checks.same_tiles(op, "dst", dst, on_true_tile=on_true_tile)
    if on_true_tile.dtype.kind != "float":
        raise NkiValidationError(f"{op} on_true_tile must be a floating-point tile, got {on_true_tile.dtype}")
    for role, compare in (("comp_op0", comp_op0), ("comp_op1", comp_op1)):
        _comparison(op, role, compare, COMPARISONS)
    for role, bound in (("bound0", bound0), ("bound1", bound1)):
        if not checks.scalar(op, role, bound, on_true_tile):
            raise NkiValidationError(f"{op} {role} must be a ({on_true_tile.shape[0]}, 1) float32 tile, got {bound!r}")
    if on_false_value is not ... and np.float32(on_false_value) != np.float32(FP32_MIN):
        raise NkiValidationError(f"{op} on_false_value must be {FP32_MIN!r}, got {on_false_value!r}")
    count = on_true_tile.size // on_true_tile.shape[0]
    if abs(checks.int32(op, "range_start", range_start)) + count > 2**24:
        raise NkiValidationError(f"{op} range_start + index must stay within 2^24, got {range_start} + {count}")
    red = reduction.Reduction(
        run, op, "vector", reduce_cmd, reduce_op, reduce_res, on_true_tile, (ops.maximum, ops.max)
    )
    if run.issue(op, "vector", (dst, *red.outputs), (on_true_tile, bound0, bound1), name):
        index = np.arange(range_start, range_start + count, dtype=np.float32)[None, :]
        low, high = rows(bound0), rows(bound1)
        mask = (comp_op0.alu(index, low) != 0) & (comp_op1.alu(index, high) != 0)
        chosen = np.where(mask, widen(rows(on_true_tile)), np.float32(FP32_MIN))
        red.take(chosen)
        store(dst.array(), chosen, dst.dtype)
        red.write()


def select_reduce(
    dst: NkiTensor,
    predicate: NkiTensor,
    on_true: NkiTensor,
    on_false: Any,
    reduce_res: NkiTensor | None = None,
    reduce_cmd: reduce_cmd = reduce_cmd.idle,
    reduce_op: ops.Op = ops.maximum,
    reverse_pred: bool = False,
    name: str | None = None,
) -> None:
    """Select by a predicate on the VectorE: dst = on_true where the predicate is not 0, else on_false.

    Parameters
    ----------
    dst, on_true : NkiTensor
        Tiles with equal partitions and elements per partition; on_true is not tfloat32 or a 32-bit integer.
    predicate : NkiTensor
        8-bit or 16-bit integers; on_true and predicate must not both be in PSUM.
    on_false : float or NkiTensor
        Constant or (P, 1) tile.
    reduce_res, reduce_cmd, reduce_op
        Reduction of dst with ``nl.maximum`` in the reduction registers, and the (P, 1) tile that receives them.
    reverse_pred : bool
        Whether to select on_true where the predicate is 0.
    """
    op = "select_reduce"
    run = machine.current()
    for role, t in (("dst", dst), ("predicate", predicate), ("on_true", on_true)):
        checks.tile(op, role, t)
    checks.same_tiles(op, "dst", dst, predicate=predicate, on_true=on_true)
    checks.not_both_psum(op, on_true=on_true, predicate=predicate)
    checks.one_of(op, "predicate", predicate, (dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16))
    if on_true.dtype in (dtypes.tfloat32, dtypes.int32, dtypes.uint32):
        raise NkiValidationError(f"{op} on_true must not be tfloat32, int32 or uint32, got {on_true.dtype}")
    vectors = checks.scalar(op, "on_false", on_false, on_true, None)
    reverse = checks.flag(op, "reverse_pred", reverse_pred)
    red = reduction.Reduction(run, op, "vector", reduce_cmd, reduce_op, reduce_res, on_true, (ops.maximum, ops.max))
    if run.issue(op, "vector", (dst, *red.outputs), (predicate, on_true, *vectors), name):
        mask = (rows(predicate) != 0) ^ reverse
        other = widen(rows(on_false)) if vectors else np.float32(on_false)
        chosen = np.where(mask, widen(rows(on_true)), other)
        red.take(chosen)
        store(dst.array(), chosen, dst.dtype)
        red.write()


def tensor_copy_predicated(
    dst: NkiTensor, src: Any, predicate: NkiTensor, reverse_pred: bool = False, name: str | None = None
) -> None:
    """Copy by a predicate on the VectorE: dst = src where the predicate is not 0; dst is unchanged elsewhere.

    Parameters
    ----------
    dst : NkiTensor
        The tile.
    src : float or NkiTensor
        Number, or tile with the dtype of dst; src and predicate must not both be in PSUM.
    predicate : NkiTensor
        Unsigned integers.
    reverse_pred : bool
        Whether to copy where the predicate is 0.
    """
    op = "tensor_copy_predicated"
    run = machine.current()
    checks.tile(op, "dst", dst)
    checks.tile(op, "predicate", predicate)
    checks.same_tiles(op, "dst", dst, predicate=predicate)
    checks.one_of(op, "predicate", predicate, (dtypes.uint8, dtypes.uint16, dtypes.uint32))
    reverse = checks.flag(op, "reverse_pred", reverse_pred)
    inputs: tuple[NkiTensor, ...] = (predicate, dst)
    if not checks.is_number(src):
        checks.tile(op, "src", src)
        checks.same_tiles(op, "dst", dst, src=src)
        checks.not_both_psum(op, src=src, predicate=predicate)
        if src.dtype is not dst.dtype:
            raise NkiValidationError(f"{op} src and dst must have the same dtype, got {src.dtype} and {dst.dtype}")
        inputs = (src, predicate, dst)
    if run.issue(op, "vector", (dst,), inputs, name):
        out = dst.array()
        mask = ((predicate.array() != 0) ^ reverse).reshape(out.shape)
        if isinstance(src, NkiTensor):
            out[mask] = src.array().reshape(out.shape)[mask]
        else:
            cast = np.empty(out.shape, out.dtype)
            store(cast, np.full(out.shape, src, np.float32), dst.dtype)
            out[mask] = cast[mask]
