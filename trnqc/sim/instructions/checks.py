"""Operand checks common to the compute instructions: memories, partitions, sizes, scalar operands and engines.

In all functions ``op`` is the name of the instruction and ``role`` that of the operand, for error messages.
"""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from trnqc.sim.machine.enums import engine, member
from trnqc.sim.machine.faults import NkiValidationError
from trnqc.sim.machine.machine import Run
from trnqc.sim.machine.ops import Op
from trnqc.sim.machine.rules import broken
from trnqc.sim.memory.dtypes import DType, float32
from trnqc.sim.memory.storage import MemoryRegion
from trnqc.sim.memory.tensor import NkiTensor

SBUF = (MemoryRegion.sbuf,)
PSUM = (MemoryRegion.psum,)
ON_CHIP = (MemoryRegion.sbuf, MemoryRegion.psum)
DMA = (MemoryRegion.sbuf, MemoryRegion.private_hbm, MemoryRegion.shared_hbm)
MAX_RANK = 5  # dimensions of an operand
MAX_STRIDE = 2**15 - 1  # elements; instructions encode free strides in int16
MAX_COUNT = 2**16 - 1  # elements; instructions encode free counts in uint16
FREE_LIMIT = {MemoryRegion.sbuf: 64 * 1024, MemoryRegion.psum: 4 * 1024}  # elements per partition of an operand


def tensor(op: str, role: str, t: Any, buffers: tuple[MemoryRegion, ...]) -> None:
    """Check that ``t`` is a tensor in one of the memories ``buffers``."""
    if not isinstance(t, NkiTensor):
        raise NkiValidationError(f"{op} {role} must be a tensor, got {type(t).__name__} {t!r}")
    if t.storage.buffer not in buffers:
        allowed = ",".join(repr(b.value) for b in buffers)
        raise NkiValidationError(f"{op} {role} must be in [{allowed}], got {t.storage.buffer.value}")


def tile(op: str, role: str, t: Any, buffers: tuple[MemoryRegion, ...] = ON_CHIP) -> None:
    """Check that a compute engine can address ``t``: its memory, rank, first partition, strides and free size."""
    tensor(op, role, t, buffers)
    shape = t.shape
    if len(shape) > MAX_RANK:
        raise NkiValidationError(f"{op} {role} must have at most {MAX_RANK} dimensions, got shape {shape}")
    rows = shape[0]
    start = t.start_partition
    if start:
        step = 128 if rows > 64 else 64 if rows > 32 else 32
        if start % step:
            broken(
                f"{op} {role} of {rows} partitions must start at partition "
                f"{', '.join(str(p) for p in range(0, 128, step))}, got {start} (DMA may start anywhere)",
                "rejected",
            )
    if t.partition_stride > MAX_STRIDE:
        _check_strides(op, role, t)
    limit = FREE_LIMIT.get(t.storage.buffer)
    if limit is not None and t.size > limit * rows:
        raise NkiValidationError(
            f"{op} {role} must have at most {limit} elements per partition in {t.buffer.value}, got {t.size // rows}"
        )


def _check_strides(op: str, role: str, t: NkiTensor) -> None:
    for n, stride in zip(t.shape[1:], t.strides[1:], strict=True):
        if n > MAX_COUNT or (n > 1 and not -MAX_STRIDE <= stride <= MAX_STRIDE):
            raise NkiValidationError(
                f"{op} {role} free pattern must have counts up to {MAX_COUNT} and strides up to {MAX_STRIDE}, got "
                f"{t.get_pattern()[1:]}"
            )


def same_tiles(op: str, role: str, reference: NkiTensor, **others: NkiTensor) -> None:
    """Check that all operands have as many partitions and elements per partition as ``reference``."""
    rows, size = reference.shape[0], reference.size
    for other_role, other in others.items():
        if other.shape[0] != rows:
            raise NkiValidationError(
                f"{op} {role} and {other_role} must have the same partition dimension, got {rows} and {other.shape[0]}"
            )
        if other.size != size:
            raise NkiValidationError(
                f"{op} {role} and {other_role} must have the same number of elements per partition (nothing is "
                f"broadcast), got {reference.shape} and {other.shape}"
            )


def not_both_psum(op: str, **pair: NkiTensor) -> None:
    """Check that the operands are not all in PSUM."""
    if all(t.storage.buffer is MemoryRegion.psum for t in pair.values()):
        raise NkiValidationError(f"{op} {' and '.join(pair)} cannot both be in psum; copy one to sbuf first")


def no_psum(op: str, why: str, **operands: Any) -> None:
    """Check that no operand is in PSUM; ``why`` completes the error message."""
    for role, t in operands.items():
        if isinstance(t, NkiTensor) and t.storage.buffer is MemoryRegion.psum:
            raise NkiValidationError(f"{op} {role} must be in ['sbuf'], got psum ({why})")


def is_number(value: Any) -> bool:
    """Whether a value is a real Python or NumPy number."""
    return isinstance(value, (Real, np.generic)) and not isinstance(value, np.complexfloating)


def scalar(op: str, role: str, value: Any, data: NkiTensor, dtype: DType | None = float32) -> tuple[NkiTensor, ...]:
    """Check that a scalar operand is a number, or a (P, 1) tile with as many partitions as ``data``; return () or
    (value,).

    A tile must have the dtype `dtype`, unless that is None. `op` and `role` name the instruction and the operand.
    """
    if is_number(value):
        return ()
    if not isinstance(value, NkiTensor):
        raise NkiValidationError(f"{op} {role} must be a number or a ({data.shape[0]}, 1) tile, got {value!r}")
    tile(op, role, value)
    if value.shape[0] != data.shape[0] or value.size != value.shape[0]:
        raise NkiValidationError(
            f"{op} {role} must be a number or a ({data.shape[0]}, 1) tile, got shape {value.shape}"
        )
    if dtype is not None and value.dtype is not dtype:
        raise NkiValidationError(f"{op} {role} tile must be {dtype}, got {value.dtype}")
    return (value,)


def alu_op(run: Run, op: str, role: str, value: Any, arithmetic_only: bool = False) -> Op:
    """Return ``value`` if it is an operator of the VectorE on this target, on request an arithmetic one."""
    if not isinstance(value, Op) or (value.alu is None and value.bits is None):
        hint = "; multiply by nisa.reciprocal" if isinstance(value, Op) and value.name == "divide" else ""
        raise NkiValidationError(f"{op} {role} must be an ALU operator of nki.language, got {value!r}{hint}")
    if value.generation > run.target.generation:
        raise NkiValidationError(f"{op} {role} {value!r} needs gen{value.generation}, got {run.target.name}")
    if arithmetic_only and value.alu is None:
        raise NkiValidationError(f"{op} {role} must be an arithmetic operator, got {value!r}")
    return value


def integers(op: str, why: str, **operands: NkiTensor) -> None:
    """Check that all operands are integer tiles, as bitwise operators need; ``why`` completes the error message."""
    for role, t in operands.items():
        if not t.dtype.is_int:
            raise NkiValidationError(f"{op} {role} must be an integer tile for {why}, got {t.dtype}")


def engine_choice(op: str, chosen: Any, allowed: tuple[engine, ...]) -> None:
    """Check that ``chosen`` is ``engine.unknown`` or one of ``allowed``."""
    member(op, "engine", chosen, engine)
    if chosen is not engine.unknown and chosen not in allowed:
        names = ", ".join(e.name for e in allowed)
        raise NkiValidationError(f"{op} engine must be unknown or one of {names}, got {chosen.name}")


def flag(op: str, role: str, value: Any) -> bool:
    """Return ``value`` as a bool; raise NkiValidationError for anything but True and False."""
    if not isinstance(value, (bool, np.bool_)):
        raise NkiValidationError(f"{op} {role} must be True or False, got {value!r}")
    return bool(value)


def needs_generation(run: Run, op: str, generation: int) -> None:
    """Check that the target has instruction ``op``, which exists from ``generation`` on."""
    if run.target.generation < generation:
        raise NkiValidationError(f"{op} needs trn{generation - 1} (gen{generation}) or later, got {run.target.name}")


def one_of(op: str, role: str, t: NkiTensor, allowed: tuple[DType, ...]) -> None:
    """Check that the dtype of operand ``role`` is in ``allowed``."""
    if t.dtype not in allowed:
        raise NkiValidationError(f"{op} {role} must be {' or '.join(d.name for d in allowed)}, got {t.dtype}")


def per_partition(op: str, role: str, t: NkiTensor, low: int, high: int) -> None:
    """Check that an operand has ``low`` to ``high`` elements per partition."""
    count = t.size // t.shape[0]
    if not low <= count <= high:
        allowed = str(low) if low == high else f"between {low} and {high}"
        raise NkiValidationError(f"{op} {role} must have {allowed} elements per partition, got {count}")


def rank(op: str, role: str, t: NkiTensor, most: int) -> None:
    """Check that an operand has at most ``most`` dimensions."""
    if t.ndim > most:
        raise NkiValidationError(f"{op} {role} must have at most {most} dimensions, got shape {t.shape}")


def same_partitions(op: str, first: str, a: NkiTensor, second: str, b: NkiTensor) -> None:
    """Check that operands ``first`` and ``second`` have the same number of partitions."""
    if a.shape[0] != b.shape[0]:
        raise NkiValidationError(
            f"{op} {first} and {second} must have the same partition dimension, got {a.shape[0]} and {b.shape[0]}"
        )


def int32(op: str, role: str, value: Any) -> int:
    """Return ``value`` as an int if it is a 32-bit integer constant."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not -(2**31) <= value < 2**31:
        raise NkiValidationError(f"{op} {role} must be a 32-bit integer constant, got {value!r}")
    return int(value)
