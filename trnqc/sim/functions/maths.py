"""``nl`` functions of tiles.

Each function issues a few instructions and returns a new SBUF tile; ``matmul`` and ``transpose`` return PSUM tiles.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from math import prod
from typing import Any

from trnqc.sim.faults import NkiValidationError
from trnqc.sim.functions import ops
from trnqc.sim.functions.alloc import full, ndarray, ones, psum
from trnqc.sim.functions.ops import BinaryOp, Op, ReduceOp, UnaryOp
from trnqc.sim.instructions import checks, reduce, scalar, select, vector
from trnqc.sim.instructions import matmul as isa_matmul
from trnqc.sim.memory import dtypes
from trnqc.sim.memory.indexing import ds
from trnqc.sim.memory.storage import MemoryRegion
from trnqc.sim.memory.tensor import NkiTensor

_NOT_ON_HARDWARE = {
    "divide": "multiply by nl.reciprocal",
    "fmod": "use nl.trunc, nl.multiply and nl.subtract",
    "mod": "use nl.floor, nl.multiply and nl.subtract",
}


def _tile(op: Op | str, role: str, x: Any) -> NkiTensor:
    name = op if isinstance(op, str) else f"nl.{op.name}"
    checks.tile(name, role, x)
    return x


def _result(shape: tuple[int, ...], dtype: Any) -> NkiTensor:
    return ndarray(shape, dtype)


def evaluate(op: Op, args: tuple[Any, ...], dtype: Any) -> NkiTensor:
    """Evaluate the call of an operator as an ``nl`` function.

    Parameters
    ----------
    op : Op
        The operator.
    args : tuple
        (x,), (x, y) or (x, axis, keepdims) for unary operators, binary operators and reductions.
    dtype : DType or None
        Dtype of the result; by default that of the first tile.
    """
    if isinstance(op, UnaryOp):
        return _unary(op, _tile(op, "x", args[0]), dtype)
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
    out = _result(x.shape, x.dtype if dtype is None else dtype)
    if op is ops.copy:
        vector.tensor_copy(out, x)
    elif op is ops.reciprocal:
        vector.reciprocal(out, x)
    elif op.alu is not None or op.act is None:
        vector.tensor_scalar(out, x, op, None)
    else:
        scalar.activation(out, op, x)
    return out


def _scaled(x: NkiTensor, op0: Op, a: float, dtype: Any, op1: Op | None = None, b: Any = None) -> NkiTensor:
    out = _result(x.shape, dtype)
    vector.tensor_scalar(out, x, op0, a, op1=op1, operand1=b)
    return out


def _negative(x: NkiTensor, dtype: Any) -> NkiTensor:
    return _scaled(x, ops.multiply, -1.0, dtype)


def _logical_not(x: NkiTensor, dtype: Any) -> NkiTensor:
    return _scaled(x, ops.logical_xor, 1.0, dtype)


def _nearest(x: NkiTensor) -> tuple[NkiTensor, NkiTensor]:
    """Return x and x rounded to an integer, both in fp32, for absolute values below 2^31."""
    wide, whole = _result(x.shape, dtypes.float32), _result(x.shape, dtypes.int32)
    vector.tensor_copy(wide, x)
    vector.tensor_copy(whole, wide)
    rounded = _result(x.shape, dtypes.float32)
    vector.tensor_copy(rounded, whole)
    return wide, rounded


def _step_towards(x: NkiTensor, dtype: Any, compare: Op, adjust: Op) -> NkiTensor:
    """Round to the nearest integer, then correct by 1 where the rounded value compares with x."""
    wide, rounded = _nearest(x)
    off, out = _result(x.shape, dtypes.float32), _result(x.shape, dtype)
    vector.tensor_tensor(off, rounded, wide, compare)
    vector.tensor_tensor(out, rounded, off, adjust)
    return out


def _floor(x: NkiTensor, dtype: Any) -> NkiTensor:
    return _step_towards(x, dtype, ops.greater, ops.subtract)


def _ceil(x: NkiTensor, dtype: Any) -> NkiTensor:
    return _step_towards(x, dtype, ops.less, ops.add)


def _trunc(x: NkiTensor, dtype: Any) -> NkiTensor:
    magnitude = _floor(_unary(ops.abs, x, dtypes.float32), dtypes.float32)
    sign, out = _unary(ops.sign, x, dtypes.float32), _result(x.shape, dtype)
    vector.tensor_tensor(out, magnitude, sign, ops.multiply)
    return out


def _sine(x: NkiTensor, dtype: Any, shift: float) -> NkiTensor:
    """sin(x + shift), with the argument reduced to [-pi, pi]."""
    moved = _scaled(x, ops.add, shift, dtypes.float32)
    turns = _nearest(_scaled(moved, ops.multiply, 1 / (2 * math.pi), dtypes.float32))[1]
    reduced, out = _result(x.shape, dtypes.float32), _result(x.shape, dtype)
    vector.scalar_tensor_tensor(reduced, turns, ops.multiply, -2 * math.pi, ops.add, moved)
    inside = _scaled(reduced, ops.minimum, _PI, dtypes.float32, ops.maximum, -_PI)
    scalar.activation(out, ops.sin, inside)
    return out


_PI = 3.1415925  # largest fp32 number below pi


def _tan(x: NkiTensor, dtype: Any) -> NkiTensor:
    out, inverse = _result(x.shape, dtype), _result(x.shape, dtypes.float32)
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
    out = _result(_tile(op, "x", tile).shape, tile.dtype if dtype is None else dtype)
    vector.tensor_scalar(out, tile, op, number, reverse0=swapped)
    return out


def _two_tiles(op: Op, x: NkiTensor, y: NkiTensor, dtype: Any) -> NkiTensor:
    if x.shape != y.shape:
        raise NkiValidationError(
            f"nl.{op.name} broadcasts nothing: x and y must have one shape, got {x.shape} and {y.shape}"
        )
    if dtype is None and x.dtype is not y.dtype:
        raise NkiValidationError(f"nl.{op.name} of {x.dtype} and {y.dtype} needs dtype=")
    out = _result(x.shape, x.dtype if dtype is None else dtype)
    vector.tensor_tensor(out, x, y, op)
    return out


# -- reductions -------------------------------------------------------------------------------------------------------


def _axes(op: str, axis: Any, x: NkiTensor) -> tuple[int, ...]:
    return tuple(range(reduce.last_axes(op, axis, x.ndim), x.ndim))


def _kept(x: NkiTensor, axes: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
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
    tile = _tile(op, "x", x)
    axes = _axes(f"nl.{op.name}", axis, tile)
    shape, fmt = _kept(tile, axes, keepdims), tile.dtype if dtype is None else dtype
    if op is ops.var:
        return _variance(tile, axes, fmt)
    out = _result(shape, fmt)
    if op is not ops.mean:
        reduce.tensor_reduce(out, _VECTOR_OPS[op], tile, axes)
        return out
    total = _result(shape, dtypes.float32)
    reduce.tensor_reduce(total, ops.add, tile, axes)
    vector.tensor_scalar(out, total, ops.multiply, 1.0 / prod(tile.shape[axes[0] :]))
    return out


def _variance(x: NkiTensor, axes: tuple[int, ...], dtype: Any) -> NkiTensor:
    """Population variance; the reduced axes stay with size 1 whatever the value of keepdims."""
    count = prod(x.shape[axes[0] :])
    if len(axes) != x.ndim - 1:
        raise NkiValidationError(f"nl.var reduces all free axes of the tile, got axes {axes} of {x.shape}")
    mean, squares = _result((x.shape[0], 1), dtypes.float32), _result((x.shape[0], 1), dtypes.float32)
    reduce.tensor_reduce(mean, ops.add, x, axes, negate=True)
    centre = _scaled(mean, ops.multiply, 1.0 / count, dtypes.float32)
    scratch = _result(x.shape, dtypes.float32)
    scalar.activation_reduce(scratch, ops.square, x, ops.add, squares, bias=centre)
    out = _result(_kept(x, axes, True), dtype)
    vector.tensor_scalar(out, squares, ops.multiply, 1.0 / count)
    return out


def all(x: NkiTensor, axis: Any, dtype: Any = None) -> NkiTensor:
    """Reduce the last free axes with logical and."""
    tile = _tile("nl.all", "x", x)
    axes = _axes("nl.all", axis, tile)
    out = _result(_kept(tile, axes, False), tile.dtype if dtype is None else dtype)
    reduce.tensor_reduce(out, ops.logical_and, tile, axes)
    return out


# -- several instructions ---------------------------------------------------------------------------------------------


def softmax(x: NkiTensor, axis: Any = -1, dtype: Any = None) -> NkiTensor:
    """Return exp(x - max(x)) / sum(exp(x - max(x))) over all free axes of the tile."""
    tile = _tile("nl.softmax", "x", x)
    axes = _axes("nl.softmax", axis, tile)
    if len(axes) != tile.ndim - 1:
        raise NkiValidationError(f"nl.softmax runs over all free axes of the tile, got axes {axes} of {tile.shape}")
    peak, total = (_result((tile.shape[0], 1), dtypes.float32) for _ in range(2))
    reduce.tensor_reduce(peak, ops.maximum, tile, axes, negate=True)
    weight = _result(tile.shape, dtypes.float32)
    scalar.activation_reduce(weight, ops.exp, tile, ops.add, total, bias=peak)
    inverse, out = _result(total.shape, dtypes.float32), _result(tile.shape, tile.dtype if dtype is None else dtype)
    vector.reciprocal(inverse, total)
    vector.tensor_scalar(out, weight, ops.multiply, inverse)
    return out


def rms_norm(
    x: NkiTensor, w: NkiTensor, axis: Any, n: int, epsilon: float = 1e-06, dtype: Any = None, compute_dtype: Any = None
) -> NkiTensor:
    """Root-mean-square normalisation, x / sqrt(sum(x^2) / n + epsilon) * w.

    Parameters
    ----------
    x : NkiTensor
        The tile.
    w : NkiTensor
        Weights, in the shape of ``x``.
    axis : int or sequence of int
        Axes of the sum, which must be all free axes.
    n : int
        Divisor of the sum.
    epsilon : float
        Term that keeps the root away from zero.
    dtype, compute_dtype : DType, optional
        Dtype of the result, by default that of ``x``, and of the squares, by default fp32.
    """
    tile = _tile("nl.rms_norm", "x", x)
    axes = _axes("nl.rms_norm", axis, tile)
    work = dtypes.float32 if compute_dtype is None else compute_dtype
    squares, total = _result(tile.shape, work), _result((tile.shape[0], 1), dtypes.float32)
    scalar.activation_reduce(squares, ops.square, tile, ops.add, total)
    if len(axes) != tile.ndim - 1:
        raise NkiValidationError(f"nl.rms_norm runs over all free axes of the tile, got axes {axes} of {tile.shape}")
    level = _scaled(total, ops.multiply, 1.0 / n, dtypes.float32, ops.add, epsilon)
    inverse, out = _result(level.shape, dtypes.float32), _result(tile.shape, tile.dtype if dtype is None else dtype)
    scalar.activation(inverse, ops.rsqrt, level)
    vector.scalar_tensor_tensor(out, tile, ops.multiply, inverse, ops.multiply, w)
    return out


def where(condition: NkiTensor, x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """Return x where ``condition`` is not zero, else y; x and y are tiles or numbers."""
    tile = _tile("nl.where", "condition", condition)
    tiles = [t for t in (x, y) if isinstance(t, NkiTensor)]
    fmt = dtypes.as_dtype(dtype) if dtype is not None else (tiles[0].dtype if tiles else dtypes.float32)
    mask, out = _result(tile.shape, dtypes.uint8), _result(tile.shape, fmt)
    vector.tensor_scalar(mask, tile, ops.not_equal, 0.0)
    if isinstance(y, NkiTensor):
        vector.tensor_copy(out, y)
    else:
        vector.memset(out, y)
    chosen = x
    if not isinstance(x, NkiTensor):
        chosen = full(tile.shape, x, fmt)
    elif x.dtype is not fmt:
        chosen = _result(tile.shape, fmt)
        vector.tensor_copy(chosen, x)
    select.tensor_copy_predicated(out, chosen, mask)
    return out


def transpose(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """Return the transpose of a 2-D tile of at most [128, 128], in PSUM; ``dtype`` must be that of the tile."""
    tile = _tile("nl.transpose", "x", x)
    if dtype is not None and dtypes.as_dtype(dtype) is not tile.dtype:
        raise NkiValidationError(f"nl.transpose keeps the dtype {tile.dtype}, got dtype={dtype}; cast with nl.copy")
    if tile.ndim != 2:
        raise NkiValidationError(f"nl.transpose x must be 2-D, got shape {tile.shape}")
    out = ndarray((tile.shape[1], tile.shape[0]), tile.dtype, psum)
    isa_matmul.nc_transpose(out, tile)
    return out


def matmul(x: NkiTensor, y: NkiTensor, transpose_x: bool = False) -> NkiTensor:
    """Return x.T @ y of x [K, M] and y [K, N] as an fp32 PSUM tile; ``transpose_x`` must be True."""
    if not transpose_x:
        raise NkiValidationError("nl.matmul runs on the hardware only with transpose_x=True; transpose x first")
    left, right = _tile("nl.matmul", "x", x), _tile("nl.matmul", "y", y)
    out = ndarray((left.size // left.shape[0], right.size // right.shape[0]), dtypes.float32, psum)
    isa_matmul.nc_matmul(out, left, right)
    return out


def broadcast_to(x: NkiTensor, shape: Any, dtype: Any = None) -> NkiTensor:
    """Copy a tile with its dimensions of size 1 expanded to ``shape``, which has the same rank.

    The partition dimension is expanded by a product on the TensorE.
    """
    tile, sizes = _tile("nl.broadcast_to", "x", x), tuple(int(n) for n in shape)
    if len(sizes) != tile.ndim or any(n not in (1, m) for n, m in zip(tile.shape, sizes, strict=True)):
        raise NkiValidationError(f"nl.broadcast_to expands dimensions of size 1 only, got {tile.shape} -> {sizes}")
    fmt = tile.dtype if dtype is None else dtypes.as_dtype(dtype)
    if sizes == tile.shape and fmt is tile.dtype:
        return tile
    if sizes[0] != tile.shape[0]:
        tile = _over_partitions(tile, sizes[0])
    for dim in range(1, tile.ndim):
        if tile.shape[dim] != sizes[dim]:
            tile = tile.broadcast(dim, sizes[dim])
    out = _result(sizes, fmt)
    vector.tensor_copy(out, tile)
    return out


def _over_partitions(x: NkiTensor, rows: int) -> NkiTensor:
    """Copy x [1, ...] to ``rows`` partitions by a product with a column of ones, which is exact in fp32."""
    if x.dtype.is_int:
        raise NkiValidationError(f"nl.broadcast_to over partitions takes floating-point tiles, got {x.dtype}")
    source = x
    if x.buffer is MemoryRegion.psum or not x.is_contiguous():
        source = _result(x.shape, x.dtype)
        vector.tensor_copy(source, x)
    source = source.reshape((1, source.size))
    column, out = ones((1, rows), x.dtype), _result((rows, source.size), x.dtype)
    for start in range(0, source.size, 512):
        width = source.size - start if source.size - start < 512 else 512
        part = ndarray((rows, width), dtypes.float32, psum)
        isa_matmul.nc_matmul(part, column, source[:, ds(start, width)])
        vector.tensor_copy(out[:, ds(start, width)], part)
    return out.reshape((rows, *x.shape[1:]))
