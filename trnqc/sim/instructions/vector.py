"""VectorE and GpSimd: copies, element-wise arithmetic in fp32, and bitwise operators on integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from trnqc.sim.instructions import checks
from trnqc.sim.machine import enums, machine, ops
from trnqc.sim.machine.enums import engine
from trnqc.sim.machine.faults import NkiValidationError
from trnqc.sim.machine.machine import Run
from trnqc.sim.machine.ops import Op
from trnqc.sim.memory import dtypes
from trnqc.sim.memory.storage import MemoryRegion
from trnqc.sim.memory.tensor import NkiTensor
from trnqc.sim.memory.values import store, widen

_COMPUTE = (engine.vector, engine.scalar, engine.gpsimd)
_NATIVE_INT = (ops.add, ops.subtract, ops.multiply)  # exact in 32-bit integers on GpSimd
_INT32 = (dtypes.int32, dtypes.uint32)


def tensor_copy(dst: NkiTensor, src: NkiTensor, engine: engine = engine.unknown, name: str | None = None) -> None:
    """Copy a tile within SBUF and PSUM: dst = src.

    Parameters
    ----------
    dst, src : NkiTensor
        Tiles with equal partitions and elements per partition. Equal dtypes are copied bit by bit, others are cast
        through fp32.
    engine : engine
        VectorE (default), ScalarE (trn2 or later) or GpSimd (SBUF only).
    """
    run = machine.current()
    checks.tile("tensor_copy", "dst", dst)
    checks.tile("tensor_copy", "src", src)
    checks.same_tiles("tensor_copy", "dst", dst, src=src)
    checks.engine_choice("tensor_copy", engine, _COMPUTE)
    if engine.name == "scalar" and run.target.generation < 3:
        raise NkiValidationError(
            "tensor_copy on the scalar engine needs trn2 or later; use nisa.activation(op=nl.copy)"
        )
    if engine.name == "gpsimd":
        checks.no_psum("tensor_copy", "GpSimd does not reach it", dst=dst, src=src)
    if run.issue("tensor_copy", _named(engine), (dst,), (src,), name):
        _copy(dst, src)


def _copy(dst: NkiTensor, src: NkiTensor) -> None:
    out, value = dst.array(), src.array()
    if dst.dtype is src.dtype:
        out[...] = value if out.shape == value.shape else value.reshape(out.shape)
    else:
        store(out, widen(value), dst.dtype)


def _named(chosen: engine, default: str = "vector") -> str:
    return default if chosen.name == "unknown" else chosen.name


def memset(dst: NkiTensor, value: Any, engine: engine = engine.unknown, name: str | None = None) -> None:
    """Set all elements of a tile: dst = value.

    Parameters
    ----------
    dst : NkiTensor
        The tile.
    value : float
        Constant; integer dtypes need an integer in their range, packed dtypes 0.
    engine : engine
        VectorE (default) or GpSimd (SBUF only).
    """
    run = machine.current()
    checks.tile("memset", "dst", dst)
    _check_fill(dst.dtype, value)
    checks.engine_choice("memset", engine, (enums.engine.vector, enums.engine.gpsimd))
    if engine.name == "gpsimd":
        checks.no_psum("memset", "GpSimd does not reach it", dst=dst)
    if run.issue("memset", _named(engine), (dst,), (), name):
        fill(dst, value)


def fill(dst: NkiTensor, value: Any) -> None:
    """Set every element of ``dst`` to ``value``, without announcing an instruction."""
    if dst.dtype.is_int:
        dst.array()[...] = int(value)
    else:
        store(dst.array(), np.full(dst.shape, value, np.float32), dst.dtype)


def _check_fill(dtype: dtypes.DType, value: Any) -> None:
    if not checks.is_number(value):
        raise NkiValidationError(f"memset value must be a number, got {value!r}")
    if dtype.kind == "packed" and value != 0:
        raise NkiValidationError(f"memset value of a {dtype} tile must be 0, got {value!r}")
    if dtype.is_int:
        info = np.iinfo(dtype.numpy)
        if int(value) != value or not info.min <= value <= info.max:
            raise NkiValidationError(f"memset value of a {dtype} tile must be an integer within it, got {value!r}")


def tensor_tensor(
    dst: NkiTensor,
    data1: NkiTensor,
    data2: NkiTensor,
    op: Any,
    engine: engine = engine.unknown,
    name: str | None = None,
) -> None:
    """Combine two tiles element by element: dst = data1 op data2.

    Parameters
    ----------
    dst, data1, data2 : NkiTensor
        Tiles with equal partitions and elements per partition; data1 and data2 must not both be in PSUM.
    op : Op
        Binary operator; bitwise operators need integer tiles.
    engine : engine
        VectorE or GpSimd (SBUF only). By default GpSimd for ``nl.power`` and for sums, differences and products of
        32-bit integers in SBUF, which it computes exactly modulo 2^32, and the VectorE otherwise.
    """
    run = machine.current()
    checks.tile("tensor_tensor", "dst", dst)
    checks.tile("tensor_tensor", "data1", data1)
    checks.tile("tensor_tensor", "data2", data2)
    checks.same_tiles("tensor_tensor", "data1", data1, data2=data2, dst=dst)
    checks.not_both_psum("tensor_tensor", data1=data1, data2=data2)
    fn = checks.alu_op(run, "tensor_tensor", "op", op)
    if fn.unary:
        raise NkiValidationError(f"tensor_tensor op must be a binary operator, got {op!r}")
    if fn.alu is None:
        checks.integers("tensor_tensor", repr(op), data1=data1, data2=data2, dst=dst)
    chosen = _tensor_tensor_engine(engine, fn, dst, data1, data2)
    if run.issue("tensor_tensor", chosen, (dst,), (data1, data2), name):
        a, b = data1.array(), data2.array()
        shape = a.shape
        native = chosen == "gpsimd" and fn in _NATIVE_INT and _all_int32(dst, data1, data2)
        if native:
            _store_wrapped(dst, fn, a, b.reshape(shape))
        else:
            store(dst.array(), apply(fn, a, b.reshape(shape)), dst.dtype)


def _all_int32(*tiles: NkiTensor) -> bool:
    return all(t.dtype in _INT32 for t in tiles)


def _tensor_tensor_engine(chosen: Any, op: Op, dst: NkiTensor, data1: NkiTensor, data2: NkiTensor) -> str:
    checks.engine_choice("tensor_tensor", chosen, (engine.vector, engine.gpsimd))
    psum = any(t.buffer is MemoryRegion.psum for t in (dst, data1, data2))
    if op is ops.power or chosen is engine.gpsimd:
        why = "nl.power runs on GpSimd" if op is ops.power else "GpSimd does not reach it"
        checks.no_psum("tensor_tensor", why, dst=dst, data1=data1, data2=data2)
        return "gpsimd"
    if chosen is engine.unknown and not psum and op in _NATIVE_INT and _all_int32(dst, data1, data2):
        return "gpsimd"
    return "vector"


def _store_wrapped(dst: NkiTensor, op: Op, a: np.ndarray, b: np.ndarray) -> None:
    """Store a op b modulo 2^32."""
    wide = op.alu(a.astype(np.int64), b.astype(np.int64))
    bits = (wide & 0xFFFFFFFF).astype(np.uint32).view(dst.dtype.numpy)
    dst.array()[...] = bits.reshape(dst.shape)


def apply(op: Op, a: np.ndarray, b: Any = None) -> np.ndarray:
    """Apply an operator to arrays, or to an array and a constant, in fp32 or on the bits of integers."""
    if op.alu is None or (
        op.bits is not None and a.dtype.kind in "iu" and isinstance(b, np.ndarray) and b.dtype == a.dtype
    ):
        assert op.bits is not None
        return op.bits(a) if op.unary else op.bits(a, np.asarray(b).astype(a.dtype))
    with np.errstate(all="ignore"):
        x = widen(a)
        if op.unary:
            return op.alu(x)
        return op.alu(x, widen(b) if isinstance(b, np.ndarray) else np.float32(b))


def tensor_scalar(
    dst: NkiTensor,
    data: NkiTensor,
    op0: Any,
    operand0: Any,
    reverse0: bool = False,
    op1: Any = None,
    operand1: Any = None,
    reverse1: bool = False,
    engine: engine = engine.unknown,
    name: str | None = None,
) -> None:
    """Combine a tile with one or two scalars: dst = (data op0 operand0) op1 operand1.

    Parameters
    ----------
    dst, data : NkiTensor
        Tiles with equal partitions and elements per partition.
    op0, op1 : Op
        Operators, both arithmetic or both bitwise; op1 may be None. Bitwise operators need integer tiles.
    operand0, operand1 : float or NkiTensor
        Constants, or (P, 1) tiles of fp32 (for bitwise operators of integers); None or 0 for unary operators.
    reverse0, reverse1 : bool
        Whether the operand is the left side of the operator.
    engine : engine
        VectorE (default), ScalarE for multiply and add (trn2 or later), or GpSimd for ``nl.rsqrt`` in SBUF.
    """
    run = machine.current()
    checks.tile("tensor_scalar", "dst", dst)
    checks.tile("tensor_scalar", "data", data)
    checks.same_tiles("tensor_scalar", "data", data, dst=dst)
    steps = [_step(run, "tensor_scalar", "0", op0, operand0, reverse0, data)]
    if op1 is not None:
        steps.append(_step(run, "tensor_scalar", "1", op1, operand1, reverse1, data))
    elif operand1 is not None:
        raise NkiValidationError(f"tensor_scalar operand1 must be None without op1, got {operand1!r}")
    kinds = {s[0].alu is None for s in steps if s[0] is not ops.bypass}
    if len(kinds) > 1:
        raise NkiValidationError(
            f"tensor_scalar op0 and op1 must both be bitwise or both arithmetic, got {op0!r}, {op1!r}"
        )
    if True in kinds:
        checks.integers("tensor_scalar", "bitwise operators", data=data, dst=dst)
    _check_tensor_scalar_engine(run, engine, dst, data, [s[0] for s in steps], True in kinds)
    inputs = (data, *(t for s in steps for t in s[3]))
    if run.issue("tensor_scalar", _named(engine), (dst,), inputs, name):
        value = data.array()
        for op, operand, reverse, _ in steps:
            value = _apply_scalar(op, value, operand, reverse)
        store(dst.array(), value, dst.dtype)


def _step(
    run: Run,
    op: str,
    which: str,
    fn: Any,
    operand: Any,
    reverse: bool,
    data: NkiTensor,
    vector_dtype: dtypes.DType | None = dtypes.float32,
) -> tuple[Op, Any, bool, tuple[NkiTensor, ...]]:
    """Check one operator with its operand; return (operator, operand, reverse, tiles to read).

    A ``vector_dtype`` of None allows (P, 1) tiles of any dtype.
    """
    checked = checks.alu_op(run, op, f"op{which}", fn)
    swaps = checks.flag(op, f"reverse{which}", reverse)
    if checked.unary:
        if operand is not None and not (checks.is_number(operand) and operand == 0):
            raise NkiValidationError(f"{op} operand{which} of the unary {fn!r} must be None or 0, got {operand!r}")
        return checked, 0, swaps, ()
    if checked.alu is None:
        tensors = checks.scalar(op, f"operand{which}", operand, data, None)
        if any(not t.dtype.is_int for t in tensors) or (not tensors and int(operand) != operand):
            raise NkiValidationError(f"{op} operand{which} of {fn!r} must be an integer, got {operand!r}")
        return checked, operand, swaps, tensors
    return checked, operand, swaps, checks.scalar(op, f"operand{which}", operand, data, vector_dtype)


def column(operand: NkiTensor, rank: int) -> np.ndarray:
    """Reshape a (P, 1) operand so that it broadcasts over the free axes of a tile with ``rank`` dimensions."""
    return operand.array().reshape([operand.shape[0]] + [1] * (rank - 1))


def _apply_scalar(op: Op, value: np.ndarray, operand: Any, reverse: bool) -> np.ndarray:
    other = column(operand, value.ndim) if isinstance(operand, NkiTensor) else operand
    if op.unary:
        return apply(op, value)
    if op.alu is None and not isinstance(other, np.ndarray):
        other = np.int64(int(other)).astype(value.dtype)
    if not reverse:
        return apply(op, value, other)
    other = np.broadcast_to(np.asarray(other, value.dtype if op.alu is None else np.float32), value.shape)
    return apply(op, other, value)


def _check_tensor_scalar_engine(
    run: Run, chosen: Any, dst: NkiTensor, data: NkiTensor, operators: list[Op], bitwise: bool
) -> None:
    checks.engine_choice("tensor_scalar", chosen, _COMPUTE)
    if bitwise and chosen not in (engine.unknown, engine.vector):
        raise NkiValidationError(f"tensor_scalar with bitwise operators runs on the vector engine, got {chosen.name}")
    if chosen is engine.scalar and operators not in ([ops.multiply, ops.add], [ops.multiply], [ops.add]):
        raise NkiValidationError(
            f"tensor_scalar on the scalar engine does only multiply then add, multiply, or add, got {operators}"
        )
    if chosen is engine.scalar and run.target.generation < 3:
        raise NkiValidationError("tensor_scalar on the scalar engine needs trn2 or later; use nisa.activation")
    if chosen is engine.gpsimd:
        if ops.rsqrt not in operators:
            raise NkiValidationError(f"tensor_scalar on GpSimd is for nl.rsqrt only, got {operators}")
        checks.no_psum("tensor_scalar", "GpSimd does not reach it", dst=dst, data=data)


def scalar_tensor_tensor(
    dst: NkiTensor,
    data: NkiTensor,
    op0: Any,
    operand0: Any,
    op1: Any,
    operand1: NkiTensor,
    reverse0: bool = False,
    reverse1: bool = False,
    name: str | None = None,
) -> None:
    """Combine a tile with a scalar and another tile: dst = (data op0 operand0) op1 operand1.

    Parameters
    ----------
    dst, data, operand1 : NkiTensor
        Tiles with equal partitions and elements per partition; data and operand1 must not both be in PSUM.
    op0, op1 : Op
        Arithmetic operators; op1 must be binary.
    operand0 : float or NkiTensor
        Constant or (P, 1) tile; None or 0 for a unary op0.
    reverse0, reverse1 : bool
        Whether the operand is the left side of the operator.
    """
    run = machine.current()
    op = "scalar_tensor_tensor"
    for role, t in (("dst", dst), ("data", data), ("operand1", operand1)):
        checks.tile(op, role, t)
    checks.same_tiles(op, "data", data, operand1=operand1, dst=dst)
    checks.not_both_psum(op, data=data, operand1=operand1)
    checks.alu_op(run, op, "op0", op0, arithmetic_only=True)
    second = checks.alu_op(run, op, "op1", op1, arithmetic_only=True)
    if second.unary:
        raise NkiValidationError(f"{op} op1 must be a binary operator, got {op1!r}")
    first, operand, swaps, tensors = _step(run, op, "0", op0, operand0, reverse0, data, None)
    swaps1 = checks.flag(op, "reverse1", reverse1)
    if run.issue(op, "vector", (dst,), (data, *tensors, operand1), name):
        value = _apply_scalar(first, widen(data.array()), operand, swaps)
        other = widen(operand1.array()).reshape(value.shape)
        store(dst.array(), apply(second, other, value) if swaps1 else apply(second, value, other), dst.dtype)


def reciprocal(dst: NkiTensor, data: NkiTensor, name: str | None = None) -> None:
    """Compute dst = 1 / data on the VectorE; both tiles have equal partitions and elements per partition."""
    run = machine.current()
    checks.tile("reciprocal", "dst", dst)
    checks.tile("reciprocal", "data", data)
    checks.same_tiles("reciprocal", "data", data, dst=dst)
    if run.issue("reciprocal", "vector", (dst,), (data,), name):
        with np.errstate(all="ignore"):
            store(dst.array(), np.reciprocal(widen(data.array())), dst.dtype)
