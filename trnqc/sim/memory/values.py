"""Conversion between stored values and the fp32 arithmetic of the engines.

Operands are widened to fp32 when read; results are rounded once, when stored.
"""

from __future__ import annotations

import numpy as np

from trnqc.sim.memory import dtypes
from trnqc.sim.memory.dtypes import DType
from trnqc.sim.memory.tensor import NkiTensor


def widen(array: np.ndarray) -> np.ndarray:
    """Convert an array to fp32; an fp32 array is returned without a copy."""
    return array if array.dtype == np.float32 else array.astype(np.float32)


def store(out: np.ndarray, value: np.ndarray, dtype: DType) -> None:
    """Round ``value`` to ``dtype`` and write it to ``out``.

    Parameters
    ----------
    out : np.ndarray
        Destination, in the storage dtype of ``dtype``.
    value : np.ndarray
        fp32 or integer values, as many as ``out`` has elements.
    dtype : DType
        Format of the destination.

    Notes
    -----
    All formats round half to even. Integer formats saturate and store NaN as 0.
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
    """Round floating-point values to integers: half to even, saturating, with NaN stored as 0."""
    info = np.iinfo(dtype.numpy)
    rounded = np.rint(value.astype(np.float64))
    return np.clip(np.nan_to_num(rounded, nan=0.0, posinf=info.max, neginf=info.min), info.min, info.max)


def round_tf32(value: np.ndarray) -> np.ndarray:
    """Round fp32 values to the 10 explicit mantissa bits of TF32, half to even."""
    bits = np.ascontiguousarray(value, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(value), rounded.view(np.float32), value)


def rows(t: NkiTensor) -> np.ndarray:
    """Return the elements of a tile as an array [partitions, elements per partition]."""
    array = t.array()
    return array.reshape(array.shape[0], -1)
