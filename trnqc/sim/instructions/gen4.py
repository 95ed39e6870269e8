"""Instructions of trn3: an exponential on the VectorE, and activations with two arithmetic steps on the ScalarE."""

from __future__ import annotations

from typing import Any

import numpy as np

from trnqc.sim.instructions import checks
from trnqc.sim.instructions.reduction import Reduction
from trnqc.sim.instructions.scalar import activation_function, evaluate
from trnqc.sim.instructions.vector import apply
from trnqc.sim.machine import machine, ops
from trnqc.sim.machine.enums import reduce_cmd
from trnqc.sim.machine.faults import NkiValidationError
from trnqc.sim.machine.ops import Op
from trnqc.sim.memory import dtypes
from trnqc.sim.memory.tensor import NkiTensor
from trnqc.sim.memory.values import rows, store, widen

SMALL = (dtypes.float8_e4m3, dtypes.float8_e5m2, dtypes.float16, dtypes.bfloat16, dtypes.float32)
EXP_INPUTS = (*SMALL, dtypes.int8, dtypes.int16, dtypes.int32, dtypes.uint8, dtypes.uint16, dtypes.uint32)
EXP_OUTPUTS = (*SMALL, dtypes.tfloat32, dtypes.int8, dtypes.int16, dtypes.int32, dtypes.uint8, dtypes.uint16)
# Pairs (op0, op1) that activate2 supports.
STAGES = (
    (ops.multiply, ops.add),
    (ops.multiply, ops.subtract),
    (ops.multiply, ops.bypass),
    (ops.add, ops.bypass),
    (ops.subtract, ops.bypass),
    (ops.bypass, ops.bypass),
)
ACTIVATE2_REDUCTIONS = (ops.add, ops.maximum, ops.max, ops.minimum, ops.min)


def _value(operand: Any) -> np.ndarray:
    if isinstance(operand, NkiTensor):
        return widen(operand.array()).reshape(-1, 1)
    return np.full((1, 1), operand, np.float32)


def exponential(
    dst: NkiTensor,
    src: NkiTensor,
    max_value: float | NkiTensor = 0.0,
    reduce_res: NkiTensor | None = None,
    reduce_cmd: reduce_cmd = reduce_cmd.idle,
    reduce_init: float | NkiTensor = 0.0,
    name: str | None = None,
) -> None:
    """Compute dst = exp(src - max_value), and sum dst over the free dimensions in the reduction registers.

    Parameters
    ----------
    dst, src : NkiTensor
        Tiles of up to 4 dimensions with equal partitions and elements per partition.
    max_value : float or NkiTensor
        Constant or (P, 1) fp32 tile.
    reduce_res : NkiTensor, optional
        (P, 1) tile that receives the registers.
    reduce_cmd : reduce_cmd
        Effect on the registers; any command but reset.
    reduce_init : float or NkiTensor
        Start value of the sum for load_reduce, a constant or (P, 1) fp32 tile; 0.0 otherwise.
    """
    op = "exponential"
    run = machine.current()
    checks.needs_generation(run, op, 4)
    for role, t in (("dst", dst), ("src", src)):
        checks.tile(op, role, t)
        if t.ndim > 4:
            raise NkiValidationError(f"{op} {role} must have at most 4 dimensions, got shape {t.shape}")
    checks.same_tiles(op, "src", src, dst=dst)
    checks.one_of(op, "src", src, EXP_INPUTS)
    checks.one_of(op, "dst", dst, EXP_OUTPUTS)
    vectors = checks.scalar(op, "max_value", max_value, src) + checks.scalar(op, "reduce_init", reduce_init, src)
    loads = reduce_cmd is type(reduce_cmd).load_reduce
    if not loads and (isinstance(reduce_init, NkiTensor) or reduce_init != 0.0):
        raise NkiValidationError(f"{op} reduce_init must be 0.0 unless reduce_cmd is load_reduce, got {reduce_init!r}")
    cmds = tuple(c for c in type(reduce_cmd) if c.name != "reset")
    red = Reduction(run, op, "vector", reduce_cmd, ops.add, reduce_res, src, (ops.add,), cmds, reduce_init)
    if run.issue(op, "vector", (dst, *red.outputs), (src, *vectors), name):
        with np.errstate(all="ignore"):
            value = np.exp(widen(rows(src)) - _value(max_value))
        red.take(value)
        store(dst.array(), value, dst.dtype)
        red.write()


def activate2(
    dst: NkiTensor,
    op: Any,
    data: NkiTensor,
    imm0: float | NkiTensor,
    imm1: float | NkiTensor,
    op0: Any,
    op1: Any,
    relu_param: float | NkiTensor = 0.0,
    reverse0: bool = False,
    reverse1: bool = False,
    reduce_op: Any = None,
    reduce_res: NkiTensor | None = None,
    reduce_cmd: reduce_cmd = reduce_cmd.idle,
    name: str | None = None,
) -> None:
    """Apply a function after two arithmetic steps on the ScalarE: dst = op((data op0 imm0) op1 imm1).

    Parameters
    ----------
    dst, data : NkiTensor
        Tiles with equal partitions and elements per partition.
    op : Op
        Activation function of ``nki.language``, or ``nl.prelu``.
    imm0, imm1 : float or NkiTensor
        Operands of the steps, constants or (P, 1) fp32 tiles.
    op0, op1 : Op
        One of the pairs in ``STAGES``; ``nl.bypass`` omits a step.
    relu_param : float or NkiTensor
        Slope of ``nl.prelu`` below zero, a constant or (P, 1) fp32 tile.
    reverse0, reverse1 : bool
        Whether the operand is the left side of the operator.
    reduce_op : Op, optional
        Reduction of dst: add (default), maximum or minimum.
    reduce_res : NkiTensor, optional
        (P, 1) tile that receives the reduction registers.
    reduce_cmd : reduce_cmd
        Effect on the registers; any command but load_reduce.
    """
    called = "activate2"
    run = machine.current()
    checks.needs_generation(run, called, 4)
    checks.tile(called, "dst", dst)
    checks.tile(called, "data", data)
    checks.same_tiles(called, "data", data, dst=dst)
    fn = op if op is ops.prelu else activation_function(called, op)
    if (op0, op1) not in STAGES:
        allowed = ", ".join(f"({a!r}, {b!r})" for a, b in STAGES)
        raise NkiValidationError(f"{called} (op0, op1) must be one of {allowed}, got ({op0!r}, {op1!r})")
    swaps = checks.flag(called, "reverse0", reverse0), checks.flag(called, "reverse1", reverse1)
    for which, (step, swap) in enumerate(zip((op0, op1), swaps, strict=True)):
        if swap and step is ops.bypass:
            raise NkiValidationError(f"{called} reverse{which} needs op{which} to be set, got nl.bypass")
    tensors: tuple[NkiTensor, ...] = ()
    for role, operand in (("imm0", imm0), ("imm1", imm1), ("relu_param", relu_param)):
        tensors += checks.scalar(called, role, operand, data)
    reduces = reduce_op is not None or reduce_res is not None or reduce_cmd is not type(reduce_cmd).idle
    red = _reduction(run, called, reduce_cmd, reduce_op, reduce_res, data) if reduces else None
    if run.issue(called, "scalar", (dst, *(red.outputs if red else ())), (data, *tensors), name):
        value = widen(rows(data))
        for step, imm, swap in zip((op0, op1), (imm0, imm1), swaps, strict=True):
            value = _stage(step, value, imm, swap)
        value = np.where(value > 0, value, value * _value(relu_param)) if op is ops.prelu else evaluate(fn, value)
        store(dst.array(), value, dst.dtype)
        if red:
            red.take(value)
            red.write()


def _reduction(run: Any, called: str, cmd: Any, reduce_op: Any, reduce_res: Any, data: NkiTensor) -> Reduction:
    cmds = tuple(c for c in reduce_cmd if c is not reduce_cmd.load_reduce)
    return Reduction(run, called, "scalar", cmd, reduce_op or ops.add, reduce_res, data, ACTIVATE2_REDUCTIONS, cmds)


def _stage(step: Op, value: np.ndarray, imm: Any, swap: bool) -> np.ndarray:
    if step is ops.bypass:
        return value
    other = np.broadcast_to(_value(imm), value.shape)
    return apply(step, other, value) if swap else apply(step, value, other)
