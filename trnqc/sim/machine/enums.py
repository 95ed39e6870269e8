"""Enumerations of the instruction set; instructions refuse plain integers and strings in their place.

A lenient run takes the integer of a ``dge_mode``, which the vendor's own library passes.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from trnqc.sim.machine.faults import NkiValidationError
from trnqc.sim.machine.rules import broken


class engine(Enum):
    """Engines of a NeuronCore."""

    tensor = 1
    vector = 5
    scalar = 2
    gpsimd = 3
    dma = 4
    sync = 6
    unknown = 0


# Older names of the members.
tensor_engine, vector_engine, scalar_engine = engine.tensor, engine.vector, engine.scalar
gpsimd_engine, unknown_engine = engine.gpsimd, engine.unknown


class reduce_cmd(Enum):
    """Effect of an instruction on the reduction registers of its engine."""

    idle = 0
    reset = 1
    reduce = 2
    reset_reduce = 3
    load_reduce = 4


class dge_mode(Enum):
    """Software or hardware that generates the descriptors of a DMA."""

    unknown = 0
    swdge = 1
    hwdge = 2
    none = 3


class oob_mode(Enum):
    """Treatment of runtime indices outside the tensor in a DMA."""

    error = 0
    skip = 1


class matmul_perf_mode(Enum):
    """Performance modes of the TensorE."""

    none = "none"
    double_row = "double_row"


class dma_engine(Enum):
    """Engines for transfers between cores."""

    dma = 1
    gpsimd_dma = 2


def member(op: str, role: str, value: Any, kind: type[Enum]) -> None:
    """Check that the operand ``role`` of instruction ``op`` is a member of the enumeration ``kind``."""
    if not isinstance(value, kind):
        allowed = ", ".join(f"nisa.{m}" for m in kind)
        raise NkiValidationError(f"{op} {role} must be one of {allowed}, got {value!r}")


def descriptor_mode(op: str, value: Any) -> dge_mode:
    """Return a ``dge_mode`` operand of instruction ``op``; a lenient run takes its integer with a finding."""
    known = {mode.value: mode for mode in dge_mode}
    if isinstance(value, int) and not isinstance(value, bool) and value in known:
        mode = known[value]
        broken(f"{op} dge_mode must be nisa.{mode}, got the integer {value}", "rejected")
        return mode
    member(op, "dge_mode", value, dge_mode)
    return value
