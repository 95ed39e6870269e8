"""``nl`` functions of tiles that are not calls of operators: softmax, normalisation, selection, products, broadcasts.

Each function issues a few instructions and returns a new SBUF tile; ``matmul`` and ``transpose`` return PSUM tiles.
"""

from __future__ import annotations

from typing import Any

from trnqc.sim.functions.alloc import full, ndarray, ones, psum
from trnqc.sim.functions.evaluate import free_axes, new_tile, reduced_shape, scaled, tile_argument
from trnqc.sim.instructions import matmul as isa_matmul
from trnqc.sim.instructions import reduce, scalar, select, vector
from trnqc.sim.machine import ops
from trnqc.sim.machine.faults import NkiValidationError
from trnqc.sim.memory import dtypes
from trnqc.sim.memory.indexing import ds
from trnqc.sim.memory.storage import MemoryRegion
from trnqc.sim.memory.tensor import NkiTensor


def all(x: NkiTensor, axis: Any, dtype: Any = None) -> NkiTensor:
    """Reduce the last free axes with logical and."""
    tile = tile_argument("nl.all", "x", x)
    axes = free_axes("nl.all", axis, tile)
    out = new_tile(reduced_shape(tile, axes, False), tile.dtype if dtype is None else dtype)
    reduce.tensor_reduce(out, ops.logical_and, tile, axes)
    return out


# -- several instructions ---------------------------------------------------------------------------------------------


def softmax(x: NkiTensor, axis: Any = -1, dtype: Any = None) -> NkiTensor:
    """Return exp(x - max(x)) / sum(exp(x - max(x))) over all free axes of the tile."""
    tile = tile_argument("nl.softmax", "x", x)
    axes = free_axes("nl.softmax", axis, tile)
    if len(axes) != tile.ndim - 1:
        raise NkiValidationError(f"nl.softmax runs over all free axes of the tile, got axes {axes} of {tile.shape}")
    peak, total = (new_tile((tile.shape[0], 1), dtypes.float32) for _ in range(2))
    reduce.tensor_reduce(peak, ops.maximum, tile, axes, negate=True)
    weight = new_tile(tile.shape, dtypes.float32)
    scalar.activation_reduce(weight, ops.exp, tile, ops.add, total, bias=peak)
    inverse, out = new_tile(total.shape, dtypes.float32), new_tile(tile.shape, tile.dtype if dtype is None else dtype)
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
    tile = tile_argument("nl.rms_norm", "x", x)
    axes = free_axes("nl.rms_norm", axis, tile)
    work = dtypes.float32 if compute_dtype is None else compute_dtype
    squares, total = new_tile(tile.shape, work), new_tile((tile.shape[0], 1), dtypes.float32)
    scalar.activation_reduce(squares, ops.square, tile, ops.add, total)
    if len(axes) != tile.ndim - 1:
        raise NkiValidationError(f"nl.rms_norm runs over all free axes of the tile, got axes {axes} of {tile.shape}")
    level = scaled(total, ops.multiply, 1.0 / n, dtypes.float32, ops.add, epsilon)
    inverse, out = new_tile(level.shape, dtypes.float32), new_tile(tile.shape, tile.dtype if dtype is None else dtype)
    scalar.activation(inverse, ops.rsqrt, level)
    vector.scalar_tensor_tensor(out, tile, ops.multiply, inverse, ops.multiply, w)
    return out


def where(condition: NkiTensor, x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """Return x where ``condition`` is not zero, else y; x and y are tiles or numbers."""
    tile = tile_argument("nl.where", "condition", condition)
    tiles = [t for t in (x, y) if isinstance(t, NkiTensor)]
    fmt = dtypes.as_dtype(dtype) if dtype is not None else (tiles[0].dtype if tiles else dtypes.float32)
    mask, out = new_tile(tile.shape, dtypes.uint8), new_tile(tile.shape, fmt)
    vector.tensor_scalar(mask, tile, ops.not_equal, 0.0)
    if isinstance(y, NkiTensor):
        vector.tensor_copy(out, y)
    else:
        vector.memset(out, y)
    chosen = x
    if not isinstance(x, NkiTensor):
        chosen = full(tile.shape, x, fmt)
    elif x.dtype is not fmt:
        chosen = new_tile(tile.shape, fmt)
        vector.tensor_copy(chosen, x)
    select.tensor_copy_predicated(out, chosen, mask)
    return out


def transpose(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """Return the transpose of a 2-D tile of at most [128, 128], in PSUM; ``dtype`` must be that of the tile."""
    tile = tile_argument("nl.transpose", "x", x)
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
    left, right = tile_argument("nl.matmul", "x", x), tile_argument("nl.matmul", "y", y)
    out = ndarray((left.size // left.shape[0], right.size // right.shape[0]), dtypes.float32, psum)
    isa_matmul.nc_matmul(out, left, right)
    return out


def broadcast_to(x: NkiTensor, shape: Any, dtype: Any = None) -> NkiTensor:
    """Copy a tile with its dimensions of size 1 expanded to ``shape``, which has the same rank.

    The partition dimension is expanded by a product on the TensorE.
    """
    tile, sizes = tile_argument("nl.broadcast_to", "x", x), tuple(int(n) for n in shape)
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
    out = new_tile(sizes, fmt)
    vector.tensor_copy(out, tile)
    return out


def _over_partitions(x: NkiTensor, rows: int) -> NkiTensor:
    """Copy x [1, ...] to ``rows`` partitions by a product with a column of ones, which is exact in fp32."""
    if x.dtype.is_int:
        raise NkiValidationError(f"nl.broadcast_to over partitions takes floating-point tiles, got {x.dtype}")
    source = x
    if x.buffer is MemoryRegion.psum or not x.is_contiguous():
        source = new_tile(x.shape, x.dtype)
        vector.tensor_copy(source, x)
    source = source.reshape((1, source.size))
    column, out = ones((1, rows), x.dtype), new_tile((rows, source.size), x.dtype)
    for start in range(0, source.size, 512):
        width = source.size - start if source.size - start < 512 else 512
        part = ndarray((rows, width), dtypes.float32, psum)
        isa_matmul.nc_matmul(part, column, source[:, ds(start, width)])
        vector.tensor_copy(out[:, ds(start, width)], part)
    return out.reshape((rows, *x.shape[1:]))
