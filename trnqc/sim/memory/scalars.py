"""Scalars of NKI 0.7: integers whose values are known only while the program runs, with arithmetic.

A scalar is loaded from a tile, or is the index of a device loop. Arithmetic on it becomes instructions of the program
and gives a new scalar. Unlike a register, a scalar is never written. The vendor names scalars as the future replacement
of registers (migration guide from NKI 0.6.0 to 0.7.0, and the pages ``nki.isa.NkiScalar``, ``nki.isa.scalar_load`` and
``nki.isa.scalar_store`` of the documentation of Neuron 2.33).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from trnqc.sim.machine import machine
from trnqc.sim.machine.faults import NkiValidationError
from trnqc.sim.machine.version import needs_version
from trnqc.sim.memory import dtypes
from trnqc.sim.memory.dtypes import DType
from trnqc.sim.memory.registers import loop_depth, one_element, wrap
from trnqc.sim.memory.tensor import NkiTensor


class NkiScalar:
    """A 32-bit integer that the device computes.

    The operators ``+``, ``-`` and ``*`` take scalars and Python integers, and wrap to 32 bits. Comparisons are
    possible, but nothing accepts their results. 64-bit scalars are not simulated: the simulator has no 64-bit tiles.

    Parameters
    ----------
    state : int or None
        The value; None where the simulator does not know it.
    dtype : DType, optional
        `nl.int32`.
    is_comparison : bool
        Whether the scalar is the result of a comparison.
    """

    __slots__ = ("dtype", "is_comparison", "value", "visit", "writer")
    __hash__ = None  # type: ignore[assignment]  # scalars are compared on the device

    def __init__(self, state: int | None, dtype: DType | None = None, is_comparison: bool = False):
        self.value = state
        self.dtype = dtypes.int32 if dtype is None else dtype
        self.is_comparison = is_comparison
        self.visit = loop_depth()
        self.writer = -1  # id of the instruction that computed it

    def __add__(self, other: Any) -> NkiScalar:
        return _computed(operator.add, self, other)

    def __sub__(self, other: Any) -> NkiScalar:
        return _computed(operator.sub, self, other)

    def __rsub__(self, other: Any) -> NkiScalar:
        return _computed(operator.sub, other, self)

    def __mul__(self, other: Any) -> NkiScalar:
        return _computed(operator.mul, self, other)

    def __neg__(self) -> NkiScalar:
        return _computed(operator.sub, 0, self)

    def __pos__(self) -> NkiScalar:
        return self

    __radd__, __rmul__ = __add__, __mul__

    def __eq__(self, other: object) -> NkiScalar:  # type: ignore[override]
        return _computed(operator.eq, self, other)

    def __ne__(self, other: object) -> NkiScalar:  # type: ignore[override]
        return _computed(operator.ne, self, other)

    def __lt__(self, other: Any) -> NkiScalar:
        return _computed(operator.lt, self, other)

    def __le__(self, other: Any) -> NkiScalar:
        return _computed(operator.le, self, other)

    def __gt__(self, other: Any) -> NkiScalar:
        return _computed(operator.gt, self, other)

    def __ge__(self, other: Any) -> NkiScalar:
        return _computed(operator.ge, self, other)

    def _no_python_value(self, *_: object) -> int:
        raise TypeError(
            "an NkiScalar has no value while the kernel is being traced; use it in arithmetic, as scalar_offset or as "
            "a bound of nl.fori_loop"
        )

    __int__ = __index__ = __bool__ = __float__ = __iter__ = _no_python_value

    def __repr__(self) -> str:
        return f"NkiScalar({self.value})"


_COMPARISONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)


def _computed(op: Callable[[Any, Any], Any], left: Any, right: Any) -> NkiScalar:
    """Issue the instruction that computes ``left op right``, and return its result."""
    values, visits = [], [0]
    for operand in (left, right):
        if isinstance(operand, NkiScalar):
            values.append(usable(operand, f"{op.__name__} operand").value)
            visits.append(operand.visit)
        elif isinstance(operand, (int, np.integer)) and not isinstance(operand, bool):
            values.append(int(operand))
        else:
            raise TypeError(f"{op.__name__} of an NkiScalar takes an int or an NkiScalar, got {operand!r}")
    run = machine.current()
    known = None not in values
    result = NkiScalar(wrap(op(*values)) if known else None, is_comparison=op in _COMPARISONS)
    result.visit, result.writer = max(visits), run.tick
    run.issue(f"scalar_{op.__name__}", "sync", (), ())
    return result


def usable(scalar: NkiScalar, what: str) -> NkiScalar:
    """Return a scalar unless it is the result of a comparison, which no instruction takes."""
    if scalar.is_comparison:
        raise NkiValidationError(f"{what} is the result of a comparison of scalars, which nothing accepts in NKI 0.7")
    return scalar


def scalar_load(src: NkiTensor) -> NkiScalar:
    """Load a scalar from ``src``, an int32 tensor of one element in SBUF or HBM; NKI 0.7.

    Raises
    ------
    NkiValidationError
        If the simulator stands for NKI 0.6, or ``src`` is another tensor.
    """
    needs_version("nisa.scalar_load", "0.7", "nisa.register_load")
    run, tensor = machine.current(), _int32("scalar_load", "src", src)
    scalar = NkiScalar(None)
    scalar.writer, scalar.visit = run.tick, len(run.loop_path)
    known = run.issue("scalar_load", "sync", (), (tensor,))
    if run.absent:
        return scalar
    if not known:
        raise NkiValidationError(
            f"scalar_load src `{tensor.name}` depends on floating-point data, which a trace does not compute"
        )
    scalar.value = int(tensor.array().flat[0])
    return scalar


def scalar_store(dst: NkiTensor, value: NkiScalar) -> None:
    """Write a scalar to ``dst``, an int32 tensor of one element in SBUF or HBM; NKI 0.7.

    Raises
    ------
    NkiValidationError
        If the simulator stands for NKI 0.6, ``dst`` is another tensor, or ``value`` is no scalar.
    """
    needs_version("nisa.scalar_store", "0.7", "nisa.register_store")
    run, tensor = machine.current(), _int32("scalar_store", "dst", dst)
    if not isinstance(value, NkiScalar):
        raise NkiValidationError(f"scalar_store value must be an NkiScalar, got {value!r}; write numbers with memset")
    if run.issue("scalar_store", "sync", (tensor,), ()):
        tensor.array().flat[0] = usable(value, "scalar_store value").value


def _int32(op: str, role: str, tensor: object) -> NkiTensor:
    checked = one_element(op, role, tensor)
    if checked.dtype is not dtypes.int32:
        raise NkiValidationError(f"{op} {role} must be an int32 tensor, got {checked.dtype}")
    return checked
