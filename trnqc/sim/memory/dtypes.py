"""The number formats of the machine, each with the NumPy dtype that stores it.

The machine has no 64-bit format: kernels refuse arguments in float64 or int64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from trnqc.sim.machine.faults import NkiValidationError


class DType:
    """A number format of the machine, named as in ``nki.language``, e.g. ``bfloat16``, with the NumPy dtype of the
    stored bits.

    Each format exists once: copying or unpickling a DType returns the same object, so formats compare by identity. The
    kind is ``'float'``, ``'int'``, ``'bool'`` or ``'packed'`` (four values in one element).
    """

    __slots__ = ("kind", "name", "numpy")

    def __init__(self, name: str, numpy: np.dtype, kind: str):
        self.name, self.numpy, self.kind = name, numpy, kind

    def __reduce__(self) -> tuple[Callable[[str], DType], tuple[str]]:
        return as_dtype, (self.name,)

    def __repr__(self) -> str:
        return self.name

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, str) and other == self.name)

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def dtype(self) -> np.dtype:
        """The storage dtype, under the attribute name that NumPy looks for in dtype arguments."""
        return self.numpy

    @property
    def itemsize(self) -> int:
        return self.numpy.itemsize

    @property
    def is_int(self) -> bool:
        return self.kind in ("int", "bool")


def _dtype(name: str, storage: Any, kind: str) -> DType:
    return DType(name, np.dtype(storage), kind)


bool_ = _dtype("bool_", np.uint8, "bool")
int8, int16, int32 = (_dtype(n, n, "int") for n in ("int8", "int16", "int32"))
uint8, uint16, uint32 = (_dtype(n, n, "int") for n in ("uint8", "uint16", "uint32"))
float16 = _dtype("float16", np.float16, "float")
bfloat16 = _dtype("bfloat16", ml_dtypes.bfloat16, "float")
tfloat32 = _dtype("tfloat32", np.float32, "float")
float32 = _dtype("float32", np.float32, "float")
float8_e4m3 = _dtype("float8_e4m3", ml_dtypes.float8_e4m3, "float")
float8_e5m2 = _dtype("float8_e5m2", ml_dtypes.float8_e5m2, "float")
float8_e4m3fn = _dtype("float8_e4m3fn", ml_dtypes.float8_e4m3fn, "float")
float8_e8m0fnu = _dtype("float8_e8m0fnu", ml_dtypes.float8_e8m0fnu, "float")
float8_e5m2_x4 = _dtype("float8_e5m2_x4", np.uint32, "packed")
float8_e4m3fn_x4 = _dtype("float8_e4m3fn_x4", np.uint32, "packed")
float4_e2m1fn_x4 = _dtype("float4_e2m1fn_x4", np.uint16, "packed")

ALL = (
    bool_,
    int8,
    int16,
    int32,
    uint8,
    uint16,
    uint32,
    float16,
    bfloat16,
    tfloat32,
    float32,
    float8_e4m3,
    float8_e5m2,
    float8_e4m3fn,
    float8_e8m0fnu,
    float8_e5m2_x4,
    float8_e4m3fn_x4,
    float4_e2m1fn_x4,
)
BY_NAME = {d.name: d for d in ALL}
_FROM_NUMPY = {d.numpy: d for d in ALL if d.kind in ("float", "int") and d is not tfloat32}
_FROM_NUMPY[np.dtype(bool)] = bool_


def as_dtype(dtype: Any) -> DType:
    """Convert a DType, the name of one or a NumPy dtype to a DType; raises NkiValidationError if the machine has no
    such format.
    """
    if isinstance(dtype, DType):
        return dtype
    fmt = BY_NAME.get(dtype) if isinstance(dtype, str) else None
    if fmt is None:
        try:
            fmt = _FROM_NUMPY.get(np.dtype(dtype))
        except TypeError:
            fmt = None
    if fmt is None:
        raise NkiValidationError(f"dtype must be one of {', '.join(BY_NAME)}, got {dtype!r}")
    return fmt


def from_numpy(dtype: np.dtype, what: str) -> DType:
    """Convert the NumPy dtype of an array to a DType; ``what`` names the array in the error message."""
    fmt = _FROM_NUMPY.get(np.dtype(dtype))
    if fmt is None:
        allowed = ", ".join(d.name for d in _FROM_NUMPY.values())
        raise NkiValidationError(
            f"{what} has dtype {dtype}, which the machine does not have; convert it first (allowed: {allowed})"
        )
    return fmt


def poison(dtype: DType) -> object:
    """The value that uninitialised memory reads as: NaN for floats, 4 for integers, all ones for packed formats."""
    if dtype.kind == "float":
        return np.nan
    return 4 if dtype.is_int else np.iinfo(dtype.numpy).max
