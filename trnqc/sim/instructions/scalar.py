"""ScalarE: functions of one variable with a fused scale, bias and sum along the free axes."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from trnqc.sim.faults import NkiValidationError, RangeWarning
from trnqc.sim.functions import ops
from trnqc.sim.functions.enums import reduce_cmd
from trnqc.sim.functions.ops import Op
from trnqc.sim.instructions import checks
from trnqc.sim.instructions.vector import column
from trnqc.sim.launch import machine
from trnqc.sim.launch.machine import Run
from trnqc.sim.memory import dtypes
from trnqc.sim.memory import reduction as lanes
from trnqc.sim.memory.tensor import NkiTensor
from trnqc.sim.memory.values import store, widen

_COMMANDS = (reduce_cmd.idle, reduce_cmd.reset, reduce_cmd.reduce, reduce_cmd.reset_reduce)


def activation(
    dst: NkiTensor,
    op: Any,
    data: NkiTensor,
    bias: Any = None,
    scale: Any = 1.0,
    reduce_op: Any = None,
    reduce_res: NkiTensor | None = None,
    reduce_cmd: reduce_cmd = reduce_cmd.idle,
    name: str | None = None,
) -> None:
    """dst = op(data * scale + bias).

    The sum of dst along the free axes can be added to the lane registers and read out.
    """
    run = machine.current()
    _activate(run, "activation", dst, op, data, bias, scale, reduce_op, reduce_res, reduce_cmd, name)


def activation_reduce(
    dst: NkiTensor,
    op: Any,
    data: NkiTensor,
    reduce_op: Any,
    reduce_res: NkiTensor,
    bias: Any = None,
    scale: Any = 1.0,
    name: str | None = None,
) -> None:
    """activation with ``reduce_cmd.reset_reduce`` and its read-out."""
    run = machine.current()
    cmd = reduce_cmd.reset_reduce
    _activate(run, "activation_reduce", dst, op, data, bias, scale, reduce_op, reduce_res, cmd, name)


def _activate(
    run: Run,
    called: str,
    dst: NkiTensor,
    op: Any,
    data: NkiTensor,
    bias: Any,
    scale: Any,
    reduce_op: Any,
    reduce_res: Any,
    cmd: Any,
    name: str | None,
) -> None:
    checks.tile(called, "dst", dst)
    checks.tile(called, "data", data)
    checks.same_tiles(called, "data", data, dst=dst)
    fn = activation_function(called, op)
    operands = checks.scalar(called, "scale", scale, data)
    operands += _check_bias(run, called, bias, data)
    if fn is ops.reciprocal and bias is not None and run.target.generation < 3:
        raise NkiValidationError(f"{called} with nl.reciprocal takes no bias on {run.target.name}, got {bias!r}")
    chosen = ops.add if reduce_op is None and cmd in (reduce_cmd.idle, reduce_cmd.reset) else reduce_op
    reduction = lanes.Reduction(run, called, "scalar", cmd, chosen, reduce_res, data, (ops.add,), _COMMANDS)
    if run.issue(called, "scalar", (dst, *reduction.outputs), (data, *operands), name):
        rank = data.ndim
        x = widen(data.array())
        if isinstance(scale, NkiTensor):
            x = x * widen(column(scale, rank))
        elif scale != 1.0:
            x = x * np.float32(scale)
        if bias is not None:
            x = x + (widen(column(bias, rank)) if isinstance(bias, NkiTensor) else np.float32(bias))
        y = evaluate(fn, x)
        store(dst.array(), y, dst.dtype)
        if cmd is not reduce_cmd.idle:
            reduction.take(y.reshape(y.shape[0], -1))
        reduction.write()


def activation_function(called: str, op: Any) -> Op:
    """``op`` is a function that the ScalarE has."""
    if not isinstance(op, Op) or op.act is None:
        raise NkiValidationError(f"{called} op must be an activation function of nki.language, got {op!r}")
    return op


def _check_bias(run: Run, called: str, bias: Any, data: NkiTensor) -> tuple[NkiTensor, ...]:
    if bias is None:
        return ()
    if checks.is_number(bias) and run.target.generation < 3:
        raise NkiValidationError(
            f"{called} bias must be a ({data.shape[0]}, 1) tile on {run.target.name} (constants need trn2), got "
            f"{bias!r}"
        )
    tensors = checks.scalar(called, "bias", bias, data, None)
    if tensors and tensors[0].dtype is dtypes.tfloat32:
        raise NkiValidationError(f"{called} bias may have any dtype but tfloat32, got tfloat32")
    return tensors


def evaluate(fn: Op, x: np.ndarray) -> np.ndarray:
    """fn in fp32.

    Finite arguments outside the documented input range give NaN, with a warning: the chip gives garbage.
    """
    assert fn.act is not None
    with np.errstate(all="ignore"):
        y = np.asarray(fn.act(x)).astype(np.float32, copy=False)
    if fn.valid is not None:
        low, high = fn.valid
        magnitude = np.abs(x) if fn is ops.reciprocal else x
        bad = (magnitude < np.float32(low)) | (magnitude > np.float32(high))
        if bad.any():
            where = x[bad].flat[0]
            warnings.warn(
                f"ScalarE {fn.name} is valid within [{low:g}, {high:g}]; {int(bad.sum())} arguments are "
                f"outside, e.g. {where:g}",
                RangeWarning,
                stacklevel=4,
            )
            y = np.where(bad, np.float32(np.nan), y)
    return y
