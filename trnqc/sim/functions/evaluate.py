"""Calls of operators as ``nl`` functions of tiles: of one argument, of two arguments, and reductions.

Each call issues a few instructions and returns a new SBUF tile.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from math import prod
from typing import Any

from trnqc.sim.functions.alloc import ndarray
from trnqc.sim.instructions import checks, reduce, scalar, vector
from trnqc.sim.machine import ops
from trnqc.sim.machine.faults import NkiValidationError
from trnqc.sim.machine.ops import BinaryOp, Op, ReduceOp, UnaryOp
from trnqc.sim.memory import dtypes
from trnqc.sim.memory.storage import MemoryRegion
from trnqc.sim.memory.tensor import NkiTensor

# Operators that the hardware does not have -> what to use instead.
_NOT_ON_HARDWARE = {
    "divide": "multiply by nl.reciprocal",
    "fmod": "use nl.trunc, nl.multiply and nl.subtract",
    "mod": "use nl.floor, nl.multiply and nl.subtract",
}


def tile_argument(op: Op | str, role: str, x: Any) -> NkiTensor:
    """Return an argument that must be a tile; ``op`` and ``role`` name it in the error."""
    name = op if isinstance(op, str) else f"nl.{op.name}"
    checks.tile(name, role, x)
    return x


def new_tile(shape: tuple[int, ...], dtype: Any) -> NkiTensor:
    """Return a new SBUF tile."""
    return ndarray(shape, dtype)


def evaluate(op: Op, args: tuple[Any, ...], dtype: Any) -> NkiTensor:
    """Evaluate the call of an operator as an ``nl`` function, in `dtype` or in that of the first tile.

    `args` are (x,) for unary operators, (x, y) for binary operators and (x, axis, keepdims) for reductions.
    """
    if isinstance(op, UnaryOp):
        return _unary(op, tile_argument(op, "x", args[0]), dtype)
    if isinstance(op, BinaryOp):
        return _binary(op, args[0], args[1], dtype)
    if isinstance(op, ReduceOp):
        x, axis, keepdims = args
        return _reduce(op, x, axis, keepdims, dtype)
    raise TypeError(f"{op!r} is an operator for instructions, not a function")


Op.evaluate = staticmethod(evaluate)


# -- one argument -----------------------------------------------------------------------------------------------------


def _unary(op: Op, x: NkiTensor, dtype: Any) -> NkiTensor:
    composite = _COMPOSITE.get(op.name)
    if composite is not None:
        return composite(x, x.dtype if dtype is None else dtype)
    if op is ops.rsqrt and x.buffer is MemoryRegion.psum:
        raise NkiValidationError("nl.rsqrt x must be in ['sbuf'], got psum; copy it to sbuf first")
    out = new_tile(x.shape, x.dtype if dtype is None else dtype)
    if op is ops.copy:
        vector.tensor_copy(out, x)
    elif op is ops.reciprocal:
        vector.reciprocal(out, x)
    elif op.alu is not None or op.act is None:
        vector.tensor_scalar(out, x, op, None)
    else:
        scalar.activation(out, op, x)
    return out


def scaled(x: NkiTensor, op0: Op, a: float, dtype: Any, op1: Op | None = None, b: Any = None) -> NkiTensor:
    """Return ``op0(x, a)``, or ``op1(op0(x, a), b)``, as a new tile."""
    out = new_tile(x.shape, dtype)
    vector.tensor_scalar(out, x, op0, a, op1=op1, operand1=b)
    return out


def _negative(x: NkiTensor, dtype: Any) -> NkiTensor:
    return scaled(x, ops.multiply, -1.0, dtype)


def _logical_not(x: NkiTensor, dtype: Any) -> NkiTensor:
    return scaled(x, ops.logical_xor, 1.0, dtype)


def _nearest(x: NkiTensor) -> tuple[NkiTensor, NkiTensor]:
    """Return x and x rounded to an integer, both in fp32, for absolute values below 2^31."""
    wide, whole = new_tile(x.shape, dtypes.float32), new_tile(x.shape, dtypes.int32)
    vector.tensor_copy(wide, x)
    vector.tensor_copy(whole, wide)
    rounded = new_tile(x.shape, dtypes.float32)
    vector.tensor_copy(rounded, whole)
    return wide, rounded


def _step_towards(x: NkiTensor, dtype: Any, compare: Op, adjust: Op) -> NkiTensor:
    """Round to the nearest integer, then correct by 1 where the rounded value compares with x."""
    wide, rounded = _nearest(x)
    off, out = new_tile(x.shape, dtypes.float32), new_tile(x.shape, dtype)
    vector.tensor_tensor(off, rounded, wide, compare)
    vector.tensor_tensor(out, rounded, off, adjust)
    return out


def _floor(x: NkiTensor, dtype: Any) -> NkiTensor:
    return _step_towards(x, dtype, ops.greater, ops.subtract)


def _ceil(x: NkiTensor, dtype: Any) -> NkiTensor:
    return _step_towards(x, dtype, ops.less, ops.add)


def _trunc(x: NkiTensor, dtype: Any) -> NkiTensor:
    magnitude = _floor(_unary(ops.abs, x, dtypes.float32), dtypes.float32)
    sign, out = _unary(ops.sign, x, dtypes.float32), new_tile(x.shape, dtype)
    vector.tensor_tensor(out, magnitude, sign, ops.multiply)
    return out


def _sine(x: NkiTensor, dtype: Any, shift: float) -> NkiTensor:
    """sin(x + shift), with the argument reduced to [-pi, pi]."""
    moved = scaled(x, ops.add, shift, dtypes.float32)
    turns = _nearest(scaled(moved, ops.multiply, 1 / (2 * math.pi), dtypes.float32))[1]
    reduced, out = new_tile(x.shape, dtypes.float32), new_tile(x.shape, dtype)
    vector.scalar_tensor_tensor(reduced, turns, ops.multiply, -2 * math.pi, ops.add, moved)
    inside = scaled(reduced, ops.minimum, _PI, dtypes.float32, ops.maximum, -_PI)
    scalar.activation(out, ops.sin, inside)
    return out


_PI = 3.1415925  # largest fp32 number below pi


def _tan(x: NkiTensor, dtype: Any) -> NkiTensor:
    out, inverse = new_tile(x.shape, dtype), new_tile(x.shape, dtypes.float32)
    vector.reciprocal(inverse, _sine(x, dtypes.float32, math.pi / 2))
    vector.tensor_tensor(out, _sine(x, dtypes.float32, 0.0), inverse, ops.multiply)
    return out


_COMPOSITE: dict[str, Callable[[NkiTensor, Any], NkiTensor]] = {
    "negative": _negative,
    "logical_not": _logical_not,
    "floor": _floor,
    "ceil": _ceil,
    "trunc": _trunc,
    "sin": lambda x, dtype: _sine(x, dtype, 0.0),
    "cos": lambda x, dtype: _sine(x, dtype, math.pi / 2),
    "tan": _tan,
}


# -- two arguments ----------------------------------------------------------------------------------------------------


def _binary(op: Op, x: Any, y: Any, dtype: Any) -> NkiTensor:
    if op.name in _NOT_ON_HARDWARE:
        raise NkiValidationError(f"nl.{op.name} does not run on the hardware; {_NOT_ON_HARDWARE[op.name]}")
    tiles = [t for t in (x, y) if isinstance(t, NkiTensor)]
    if not tiles:
        raise NkiValidationError(f"nl.{op.name} needs at least one tile, got {x!r} and {y!r}")
    if len(tiles) == 2:
        return _two_tiles(op, x, y, dtype)
    if op is ops.power:
        raise NkiValidationError(
            "nl.power with a scalar does not run on the hardware; use nisa.tensor_scalar or nl.square"
        )
    tile, number, swapped = (x, y, False) if isinstance(x, NkiTensor) else (y, x, True)
    out = new_tile(tile_argument(op, "x", tile).shape, tile.dtype if dtype is None else dtype)
    vector.tensor_scalar(out, tile, op, number, reverse0=swapped)
    return out


def _two_tiles(op: Op, x: NkiTensor, y: NkiTensor, dtype: Any) -> NkiTensor:
    if x.shape != y.shape:
        raise NkiValidationError(
            f"nl.{op.name} broadcasts nothing: x and y must have one shape, got {x.shape} and {y.shape}"
        )
    if dtype is None and x.dtype is not y.dtype:
        raise NkiValidationError(f"nl.{op.name} of {x.dtype} and {y.dtype} needs dtype=")
    out = new_tile(x.shape, x.dtype if dtype is None else dtype)
    vector.tensor_tensor(out, x, y, op)
    return out


# -- reductions -------------------------------------------------------------------------------------------------------


def free_axes(op: str, axis: Any, x: NkiTensor) -> tuple[int, ...]:
    """Return the free axes over which a reduction runs, checked for what the hardware can do."""
    return tuple(range(reduce.last_axes(op, axis, x.ndim), x.ndim))


def reduced_shape(x: NkiTensor, axes: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    """Shape of the reduced tile, which has at least two dimensions."""
    shape = x.shape[: axes[0]] + ((1,) * len(axes) if keepdims else ())
    return shape if len(shape) > 1 else (*shape, 1)


_VECTOR_OPS: dict[Op, Op] = {
    ops.sum: ops.add,
    ops.prod: ops.multiply,
    ops.max: ops.maximum,
    ops.min: ops.minimum,
}


def _reduce(op: Op, x: Any, axis: Any, keepdims: bool, dtype: Any) -> NkiTensor:
    tile = tile_argument(op, "x", x)
    axes = free_axes(f"nl.{op.name}", axis, tile)
    shape, fmt = reduced_shape(tile, axes, keepdims), tile.dtype if dtype is None else dtype
    if op is ops.var:
        return _variance(tile, axes, fmt)
    out = new_tile(shape, fmt)
    if op is not ops.mean:
        reduce.tensor_reduce(out, _VECTOR_OPS[op], tile, axes)
        return out
    total = new_tile(shape, dtypes.float32)
    reduce.tensor_reduce(total, ops.add, tile, axes)
    vector.tensor_scalar(out, total, ops.multiply, 1.0 / prod(tile.shape[axes[0] :]))
    return out


def _variance(x: NkiTensor, axes: tuple[int, ...], dtype: Any) -> NkiTensor:
    """Population variance; the reduced axes stay with size 1 whatever the value of keepdims."""
    count = prod(x.shape[axes[0] :])
    if len(axes) != x.ndim - 1:
        raise NkiValidationError(f"nl.var reduces all free axes of the tile, got axes {axes} of {x.shape}")
    mean, squares = new_tile((x.shape[0], 1), dtypes.float32), new_tile((x.shape[0], 1), dtypes.float32)
    reduce.tensor_reduce(mean, ops.add, x, axes, negate=True)
    centre = scaled(mean, ops.multiply, 1.0 / count, dtypes.float32)
    scratch = new_tile(x.shape, dtypes.float32)
    scalar.activation_reduce(scratch, ops.square, x, ops.add, squares, bias=centre)
    out = new_tile(reduced_shape(x, axes, True), dtype)
    vector.tensor_scalar(out, squares, ops.multiply, 1.0 / count)
    return out
