"""VectorE instructions with a recurrence or reduction along the free dimension, and batch statistics."""

from __future__ import annotations

from typing import Any

import numpy as np

from trnqc.sim.instructions import checks
from trnqc.sim.instructions.reduction import Reduction
from trnqc.sim.instructions.vector import apply
from trnqc.sim.machine import machine, ops
from trnqc.sim.machine.enums import reduce_cmd
from trnqc.sim.machine.faults import NkiValidationError
from trnqc.sim.machine.machine import Run
from trnqc.sim.machine.ops import Op
from trnqc.sim.memory import dtypes
from trnqc.sim.memory.tensor import NkiTensor
from trnqc.sim.memory.values import rows, store, widen

BN_FMAX = 512  # elements per partition of bn_stats
CUMULATIVE = (ops.add, ops.subtract, ops.multiply, ops.maximum, ops.max, ops.minimum, ops.min)
REDUCTIONS = (ops.add, ops.multiply, ops.maximum, ops.max, ops.minimum, ops.min)


def _arithmetic(run: Run, op: str, role: str, value: Any) -> Op:
    fn = checks.alu_op(run, op, role, value, arithmetic_only=True)
    if fn.unary:
        raise NkiValidationError(f"{op} {role} must be a binary operator, got {value!r}")
    return fn


def _value(operand: Any) -> np.ndarray:
    """Convert a constant or a (P, 1) tile to an fp32 array that broadcasts over [P, n]."""
    if isinstance(operand, NkiTensor):
        return widen(operand.array()).reshape(-1, 1)
    return np.full((1, 1), operand, np.float32)


def tensor_tensor_scan(
    dst: NkiTensor,
    data0: NkiTensor,
    data1: NkiTensor,
    initial: float | NkiTensor,
    op0: Any,
    op1: Any,
    reverse0: bool = False,
    reverse1: bool = False,
    name: str | None = None,
) -> None:
    """Compute the recurrence dst[p, i] = (data0[p, i] op0 dst[p, i-1]) op1 data1[p, i] along the free dimensions.

    Parameters
    ----------
    dst, data0, data1 : NkiTensor
        Tiles with equal partitions and elements per partition; data0 and data1 must not both be in PSUM. The
        recurrence is carried in fp32 whatever the dtype of dst.
    initial : float or NkiTensor
        Value of dst[p, -1], a constant or a (P, 1) tile.
    op0, op1 : Op
        Binary arithmetic operators.
    reverse0, reverse1 : bool
        Whether to swap the sides of the operator.
    """
    op = "tensor_tensor_scan"
    run = machine.current()
    for role, t in (("dst", dst), ("data0", data0), ("data1", data1)):
        checks.tile(op, role, t)
    checks.same_tiles(op, "data0", data0, data1=data1, dst=dst)
    checks.not_both_psum(op, data0=data0, data1=data1)
    vectors = checks.scalar(op, "initial", initial, data0, None)
    first, second = _arithmetic(run, op, "op0", op0), _arithmetic(run, op, "op1", op1)
    swap0, swap1 = checks.flag(op, "reverse0", reverse0), checks.flag(op, "reverse1", reverse1)
    if run.issue(op, "vector", (dst,), (data0, data1, *vectors), name):
        a, b = widen(rows(data0)).T, widen(rows(data1)).T
        state = np.broadcast_to(_value(initial)[:, 0], a.shape[1:])
        out = np.empty(a.shape, np.float32)
        with np.errstate(all="ignore"):
            for i in range(len(a)):
                state = first.alu(state, a[i]) if swap0 else first.alu(a[i], state)
                state = second.alu(b[i], state) if swap1 else second.alu(state, b[i])
                out[i] = state
        store(dst.array(), np.ascontiguousarray(out.T), dst.dtype)


def tensor_scalar_reduce(
    dst: NkiTensor,
    data: NkiTensor,
    op0: Any,
    operand0: float | NkiTensor,
    reduce_op: Any,
    reduce_res: NkiTensor | None = None,
    reverse0: bool = False,
    reduce_cmd: reduce_cmd = reduce_cmd.reset_reduce,
    reduce_init: float | NkiTensor | None = None,
    reduce_res_negate: bool = False,
    name: str | None = None,
) -> None:
    """Compute dst = data op0 operand0, and reduce dst over the free dimensions in the reduction registers.

    Parameters
    ----------
    dst, data : NkiTensor
        Tiles with equal partitions and elements per partition.
    op0 : Op
        Arithmetic operator.
    operand0 : float or NkiTensor
        Constant or (P, 1) fp32 tile; None or 0 for a unary op0.
    reduce_op : Op
        Reduction operator: add, multiply, maximum or minimum.
    reduce_res : NkiTensor, optional
        (P, 1) tile that receives the registers.
    reverse0 : bool
        Must be False.
    reduce_cmd : reduce_cmd
        Start of the reduction: the identity of reduce_op (reset_reduce), the registers (reduce) or reduce_init
        (load_reduce).
    reduce_init : float or NkiTensor, optional
        Start value, with load_reduce only.
    reduce_res_negate : bool
        Whether reduce_res receives the negated registers.
    """
    op = "tensor_scalar_reduce"
    run = machine.current()
    commands = _registers_start(op, "reduce_init", reduce_cmd, reduce_init)
    checks.tile(op, "dst", dst)
    checks.tile(op, "data", data)
    checks.same_tiles(op, "data", data, dst=dst)
    fn = checks.alu_op(run, op, "op0", op0, arithmetic_only=True)
    if checks.flag(op, "reverse0", reverse0):
        raise NkiValidationError(f"{op} reverse0 must be False (the instruction does not support it yet), got True")
    vectors = _operand(op, fn, operand0, data)
    starts = () if reduce_init is None else checks.scalar(op, "reduce_init", reduce_init, data)
    negate = checks.flag(op, "reduce_res_negate", reduce_res_negate)
    red = Reduction(
        run, op, "vector", reduce_cmd, reduce_op, reduce_res, data, REDUCTIONS, commands, reduce_init, negate
    )
    if run.issue(op, "vector", (dst, *red.outputs), (data, *vectors, *starts), name):
        value = apply(fn, widen(rows(data))) if fn.unary else apply(fn, widen(rows(data)), _value(operand0))
        red.take(value)
        store(dst.array(), value, dst.dtype)
        red.write()


def _operand(op: str, fn: Op, operand: Any, data: NkiTensor) -> tuple[NkiTensor, ...]:
    if not fn.unary:
        return checks.scalar(op, "operand0", operand, data)
    if operand is not None and not (checks.is_number(operand) and operand == 0):
        raise NkiValidationError(f"{op} operand0 of the unary {fn!r} must be None or 0, got {operand!r}")
    return ()


def _registers_start(op: str, role: str, cmd: Any, start: Any) -> tuple[reduce_cmd, ...]:
    """Check that a start value is present with load_reduce and only with it; return the supported commands."""
    if (cmd is reduce_cmd.load_reduce) != (start is not None):
        raise NkiValidationError(
            f"{op} {role} goes with reduce_cmd.load_reduce and only with it, got {start!r} and {cmd}"
        )
    return reduce_cmd.reduce, reduce_cmd.reset_reduce, reduce_cmd.load_reduce


def tensor_scalar_cumulative(
    dst: NkiTensor,
    src: NkiTensor,
    op0: Any,
    op1: Any,
    imm0: float | NkiTensor,
    imm1: float | NkiTensor | None = None,
    reduce_cmd: reduce_cmd = reduce_cmd.reset_reduce,
    name: str | None = None,
) -> None:
    """Compute a cumulative reduction: dst[p, i] = reg[p] = (src[p, i] op0 imm0) op1 reg[p].

    Parameters
    ----------
    dst, src : NkiTensor
        Tiles with equal partitions and elements per partition, of any dtype but 32-bit integers.
    op0 : Op
        Binary arithmetic operator.
    op1 : Op
        Reduction operator: add, subtract, multiply, maximum or minimum.
    imm0 : float or NkiTensor
        Constant or (P, 1) fp32 tile.
    imm1 : float or NkiTensor, optional
        Start value of the reduction registers, with load_reduce only.
    reduce_cmd : reduce_cmd
        Start of the registers: the identity of op1 (reset_reduce), their value (reduce) or imm1 (load_reduce).
    """
    op = "tensor_scalar_cumulative"
    run = machine.current()
    commands = _registers_start(op, "imm1", reduce_cmd, imm1)
    for role, t in (("dst", dst), ("src", src)):
        checks.tile(op, role, t)
        if t.dtype in (dtypes.int32, dtypes.uint32):
            raise NkiValidationError(f"{op} {role} must not be a 32-bit integer tile, got {t.dtype}")
    checks.same_tiles(op, "src", src, dst=dst)
    first = _arithmetic(run, op, "op0", op0)
    vectors = checks.scalar(op, "imm0", imm0, src)
    starts = () if imm1 is None else checks.scalar(op, "imm1", imm1, src)
    red = Reduction(run, op, "vector", reduce_cmd, op1, None, src, CUMULATIVE, commands, imm1)
    if run.issue(op, "vector", (dst,), (src, *vectors, *starts), name):
        value = apply(first, widen(rows(src)), _value(imm0)).T
        state, out = red.start_values(), np.empty(value.shape, np.float32)
        with np.errstate(all="ignore"):
            for i in range(len(value)):
                state = op1.alu(value[i], state)
                out[i] = state
        red.keep(state)
        store(dst.array(), np.ascontiguousarray(out.T), dst.dtype)


def bn_stats(dst: NkiTensor, data: NkiTensor, name: str | None = None) -> None:
    """Compute batch statistics of the even and of the odd elements of each partition.

    Parameters
    ----------
    dst : NkiTensor
        [P, 6]: count, mean and count * variance of the even elements, then of the odd elements.
    data : NkiTensor
        Tile of at most 512 elements per partition.
    """
    run = machine.current()
    checks.tile("bn_stats", "dst", dst)
    checks.tile("bn_stats", "data", data)
    n = data.size // data.shape[0]
    if n > BN_FMAX:
        raise NkiValidationError(f"bn_stats data must have at most {BN_FMAX} elements per partition, got {n}")
    _statistics("bn_stats", dst, data, 6)
    if run.issue("bn_stats", "vector", (dst,), (data,), name):
        x = widen(rows(data))
        out = np.zeros((len(x), 2, 3), np.float32)
        for half in range(min(2, n)):
            part = x[:, half::2]
            mean = part.mean(axis=1, dtype=np.float32)
            out[:, half, 0] = part.shape[1]
            out[:, half, 1] = mean
            out[:, half, 2] = np.square(part - mean[:, None]).sum(axis=1, dtype=np.float32)
        store(dst.array(), out.reshape(len(x), 6), dst.dtype)


def bn_aggr(dst: NkiTensor, data: NkiTensor, name: str | None = None) -> None:
    """Combine the (count, mean, count * variance) triples in data[p, ...] to mean and variance in dst[p, 0:2]."""
    run = machine.current()
    checks.tile("bn_aggr", "dst", dst)
    checks.tile("bn_aggr", "data", data)
    n = data.size // data.shape[0]
    if n % 3:
        raise NkiValidationError(f"bn_aggr data must have a multiple of 3 elements per partition, got {n}")
    _statistics("bn_aggr", dst, data, 2)
    if run.issue("bn_aggr", "vector", (dst,), (data,), name):
        count, mean, squares = np.moveaxis(widen(rows(data)).reshape(len(dst.array()), -1, 3), 2, 0)
        with np.errstate(all="ignore"):
            total = count.sum(axis=1)
            overall = (count * mean).sum(axis=1) / total
            variance = (squares + count * np.square(mean - overall[:, None])).sum(axis=1) / total
        store(dst.array(), np.stack([overall, variance], axis=1), dst.dtype)


def _statistics(op: str, dst: NkiTensor, data: NkiTensor, width: int) -> None:
    """Check that dst has ``width`` elements in each partition of data."""
    if dst.shape[0] != data.shape[0] or dst.size != width * data.shape[0]:
        raise NkiValidationError(f"{op} dst must be [{data.shape[0]}, {width}], got {dst.shape}")
