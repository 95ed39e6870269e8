"""Between stored bits and the fp32 arithmetic of the engines: widening on the way in, one rounding on the way out."""

from __future__ import annotations

import numpy as np

from trnqc.sim.memory import dtypes
from trnqc.sim.memory.dtypes import DType


def widen(array: np.ndarray) -> np.ndarray:
    """The array in fp32, without a copy where it already is."""
    return array if array.dtype == np.float32 else array.astype(np.float32)


def store(out: np.ndarray, value: np.ndarray, dtype: DType) -> None:
    """Round ``value`` (fp32 or integer) into ``out``, an array in the storage of ``dtype``; equal element counts.

    Floating point rounds half to even; integers round half to even and saturate, and take NaN as 0.
    """
    if value.shape != out.shape:
        value = value.reshape(out.shape)
    if dtype is dtypes.float32:
        out[...] = value
    elif dtype is dtypes.tfloat32:
        out[...] = round_tf32(widen(value))
    elif dtype.kind == "bool":
        out[...] = value != 0
    elif dtype.kind == "int" and value.dtype.kind == "f":
        out[...] = to_int(value, dtype)
    elif dtype.kind == "int":
        info = np.iinfo(dtype.numpy)
        out[...] = np.clip(value.astype(np.int64), info.min, info.max)
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            out[...] = value


def to_int(value: np.ndarray, dtype: DType) -> np.ndarray:
    """Floating point to integer: half to even, saturating, NaN to 0."""
    info = np.iinfo(dtype.numpy)
    rounded = np.rint(value.astype(np.float64))
    return np.clip(np.nan_to_num(rounded, nan=0.0, posinf=info.max, neginf=info.min), info.min, info.max)


def round_tf32(value: np.ndarray) -> np.ndarray:
    """fp32 rounded to 10 explicit mantissa bits, half to even."""
    bits = np.ascontiguousarray(value, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(value), rounded.view(np.float32), value)
