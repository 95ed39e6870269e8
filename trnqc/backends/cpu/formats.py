"""B in the number format of each precision, in a layout from which one GEMM computes T.

bf16x3 and bf16 emulate a tensor engine that multiplies in bf16 and accumulates in fp32. Every bf16 number and every
product of two of them is exact in fp32, so that an fp32 GEMM on rounded factors has the same error bound. The emulation
is slower than fp32.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np


@dataclass(frozen=True)
class NumberFormat:
    """The number format of one precision.

    Parameters
    ----------
    dtype
        The dtype of the products.
    copies
        The number of copies of the auxiliary index in a row, whose length is `copies` * naux.
    left, right
        First and last + 1 of the copies of B_i and of the copies of B_j that T contracts.
    """

    dtype: type
    copies: int
    left: tuple[int, int]
    right: tuple[int, int]

    @property
    def itemsize(self) -> int:
        return np.dtype(self.dtype).itemsize

    def left_of(self, encoded: np.ndarray) -> np.ndarray:
        return self._runs(encoded, self.left)

    def right_of(self, encoded: np.ndarray) -> np.ndarray:
        return self._runs(encoded, self.right)

    def _runs(self, encoded: np.ndarray, runs: tuple[int, int]) -> np.ndarray:
        naux = encoded.shape[-1] // self.copies
        return encoded[..., runs[0] * naux : runs[1] * naux]


# In rows [lo|hi|hi|lo], the left operand [hi|hi|lo] and the right operand [lo|hi|hi] are views of the same array.
FORMATS = {
    "fp64": NumberFormat(np.float64, 1, (0, 1), (0, 1)),
    "fp32": NumberFormat(np.float32, 1, (0, 1), (0, 1)),
    "bf16x3": NumberFormat(np.float32, 4, (1, 4), (0, 3)),
    "bf16": NumberFormat(np.float32, 1, (0, 1), (0, 1)),
}


def _bf16(values: np.ndarray) -> np.ndarray:
    return values.astype(ml_dtypes.bfloat16).astype(np.float32)


def encode(values: np.ndarray, precision: str) -> np.ndarray:
    """Convert fp64 [..., naux] to the format of a precision, [..., copies * naux]. For fp64 nothing is copied."""
    if precision == "bf16":
        return _bf16(values)
    if precision == "bf16x3":
        hi = _bf16(values)
        lo = _bf16(values - hi)
        return np.concatenate((lo, hi, hi, lo), axis=-1)
    return np.asarray(values, dtype=FORMATS[precision].dtype)
