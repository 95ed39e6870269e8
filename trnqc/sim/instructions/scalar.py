"""ScalarE: functions of one variable, fused with a scale, a bias and a sum over the free axes."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from trnqc.sim.instructions import checks
from trnqc.sim.instructions import reduction as lanes
from trnqc.sim.instructions.vector import column
from trnqc.sim.machine import machine, ops
from trnqc.sim.machine.enums import reduce_cmd
from trnqc.sim.machine.faults import NkiValidationError, RangeWarning
from trnqc.sim.machine.machine import Run
from trnqc.sim.machine.ops import Op
from trnqc.sim.memory import dtypes
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
    """Apply a function: dst = op(data * scale + bias).

    Parameters
    ----------
    dst, data : NkiTensor
        Tiles with equal partitions and elements per partition.
    op : Op
        Activation function of ``nki.language``.
    bias : float or NkiTensor, optional
        Constant (trn2 or later) or (P, 1) tile of any dtype but tfloat32. ``nl.reciprocal`` takes none on trn1.
    scale : float or NkiTensor
        Constant or (P, 1) fp32 tile.
    reduce_op : Op, optional
        ``nl.add``, needed if ``reduce_cmd`` reduces.
    reduce_res : NkiTensor, optional
        (P, 1) tile that receives the reduction registers.
    reduce_cmd : reduce_cmd
        Effect on the reduction registers, which sum dst over the free axes: idle, reset, reduce or reset_reduce.

    Warns
    -----
    RangeWarning
        If finite arguments lie outside the documented range of the function; their results are NaN.
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
    """Compute dst = op(data * scale + bias) and its sum over the free axes, reduce_res.

    The instruction is `activation` with ``reduce_cmd.reset_reduce``; its arguments are described there.
    """
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
    """Return ``op`` if it is a function of the ScalarE; ``called`` names the instruction in the error message."""
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
    """Evaluate a function of the ScalarE in fp32.

    Results of the hardware outside the documented input range are undefined; they are NaN here, with a RangeWarning.
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
