"""Reductions: over free axes on the VectorE, over partitions on GpSimd."""

from __future__ import annotations

from typing import Any

import numpy as np

from trnqc.sim.instructions import checks
from trnqc.sim.machine import machine, ops
from trnqc.sim.machine.faults import NkiValidationError
from trnqc.sim.machine.machine import Run
from trnqc.sim.machine.ops import Op
from trnqc.sim.memory.tensor import NkiTensor
from trnqc.sim.memory.values import store, widen


def reduction_op(run: Run, op: str, role: str, value: Any) -> Op:
    """Return ``value`` if it is an operator that reduces."""
    fn = checks.alu_op(run, op, role, value)
    if fn.fold is None:
        raise NkiValidationError(f"{op} {role} must be a reduction operator (add, maximum, ...), got {value!r}")
    return fn


def last_axes(op: str, axis: Any, rank: int) -> int:
    """Return the first reduced axis.

    The reduced axes must be contiguous, end at the last dimension and leave out the partition dimension.
    """
    axes = sorted(a + rank if a < 0 else a for a in ((axis,) if isinstance(axis, int) else tuple(axis)))
    if not axes or axes[0] < 1 or axes != list(range(axes[0], rank)):
        raise NkiValidationError(
            f"{op} axis must be the last contiguous dim(s) of the tile, without the partition dim, got {axis} "
            f"of {rank} dims"
        )
    return axes[0]


def fold(op: Op, value: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Reduce the last ``axes`` in fp32, or with a bitwise operator on integers."""
    assert op.fold is not None
    flat = value.reshape(*value.shape[: axes[0]], -1)
    if op.alu is None:
        return op.fold(flat, axis=-1)
    wide = widen(flat)
    with np.errstate(all="ignore"):
        return np.asarray(op.fold(wide, axis=-1)).astype(np.float32)


def tensor_reduce(
    dst: NkiTensor,
    op: Any,
    data: NkiTensor,
    axis: Any,
    negate: bool = False,
    keepdims: bool = False,
    name: str | None = None,
) -> None:
    """Reduce a tile over its last free axes on the VectorE.

    Parameters
    ----------
    dst : NkiTensor
        Result, with the partitions of data and one element for each remaining position.
    op : Op
        Reduction operator; bitwise operators need integer tiles.
    data : NkiTensor
        The tile.
    axis : int or sequence of int
        Reduced axes, contiguous up to the last.
    negate : bool
        Whether dst receives the negated result; for arithmetic operators.
    keepdims : bool
        Accepted for compatibility; dst already has its shape.
    """
    run = machine.current()
    checks.tile("tensor_reduce", "dst", dst)
    checks.tile("tensor_reduce", "data", data)
    fn = reduction_op(run, "tensor_reduce", "op", op)
    first = last_axes("tensor_reduce", axis, data.ndim)
    kept = data.shape[:first]
    size = int(np.prod(kept))
    if dst.shape[0] != data.shape[0] or dst.size != size:
        raise NkiValidationError(
            f"tensor_reduce dst must have {data.shape[0]} partitions with {size // kept[0]} elements, got {dst.shape}"
        )
    checks.flag("tensor_reduce", "keepdims", keepdims)
    if fn.alu is None:
        checks.integers("tensor_reduce", repr(op), data=data, dst=dst)
        if checks.flag("tensor_reduce", "negate", negate):
            raise NkiValidationError(f"tensor_reduce negate is for arithmetic operators, got {op!r}")
    if run.issue("tensor_reduce", "vector", (dst,), (data,), name):
        value = fold(fn, data.array(), tuple(range(first, data.ndim)))
        store(dst.array(), -value if checks.flag("tensor_reduce", "negate", negate) else value, dst.dtype)


def tensor_partition_reduce(dst: NkiTensor, op: Any, data: NkiTensor, name: str | None = None) -> None:
    """Reduce data[P, F] over partitions to dst[1, F] on GpSimd.

    Both tiles are in SBUF; ``op`` is add, average, maximum, bitwise_or or bitwise_and, the last two for integer tiles.
    """
    run = machine.current()
    name_of = "tensor_partition_reduce"
    checks.tile(name_of, "dst", dst, checks.SBUF)
    checks.tile(name_of, "data", data, checks.SBUF)
    allowed = (ops.add, ops.average, ops.maximum, ops.max, ops.bitwise_or, ops.bitwise_and)
    if op not in allowed:
        raise NkiValidationError(f"{name_of} op must be one of {list(allowed)}, got {op!r}")
    if dst.shape[0] != 1 or dst.size != data.size // data.shape[0]:
        raise NkiValidationError(f"{name_of} dst must be [1, {data.size // data.shape[0]}], got {dst.shape}")
    if op.alu is None and op is not ops.average:
        checks.integers(name_of, repr(op), data=data, dst=dst)
    if run.issue(name_of, "gpsimd", (dst,), (data,), name):
        value = data.array()
        if op is ops.average:
            result = widen(value).sum(0) / np.float32(data.shape[0])
        else:
            result = op.fold(value if op.alu is None else widen(value), axis=0)
        store(dst.array(), result, dst.dtype)
