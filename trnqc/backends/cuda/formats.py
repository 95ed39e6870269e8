"""B in the number formats of matrix products on GPUs.

Rows hold the copies of the auxiliary index that `trnqc.backends.cpu.formats` describes, so that one product of two
views computes T. Every copy is padded with zeros to a multiple of ALIGNED elements.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from trnqc.backends.cpu.formats import FORMATS

ALIGNED = 8
"""Elements to which rows are padded: tensor cores read 16 bytes at a time, which are eight bf16 numbers."""


def aligned(elements: int) -> int:
    """The number of elements, rounded up to a multiple of ALIGNED."""
    return -(-elements // ALIGNED) * ALIGNED


@dataclass(frozen=True)
class DeviceFormat:
    """The number format of one precision on a GPU.

    Attributes
    ----------
    precision
        The name of the precision.
    operand, result
        The dtypes of B and of T.
    capability
        The lowest compute capability that has its products, ten times the number that NVIDIA writes.
    parts
        Which copies of the auxiliary index are the parts of B, the largest part first.
    """

    precision: str
    operand: np.dtype
    result: np.dtype
    capability: int
    parts: tuple[int, ...] = (0,)

    @property
    def halves(self) -> bool:
        """Whether operands are bf16 numbers, of which programs write two in a word."""
        return self.operand.itemsize == 2

    @property
    def stored(self) -> np.dtype:
        """The dtype of the words that programs write: that of operands, or of two bf16 numbers as an integer."""
        return np.dtype(np.int32) if self.halves else self.operand

    @property
    def kind(self) -> str:
        """The type of T in programs."""
        return {"float64": "f64", "float32": "f32"}[self.result.name]

    def padded(self, naux: int) -> int:
        """Elements of one copy of a row."""
        return aligned(naux)

    def row(self, naux: int) -> int:
        """Elements of a row with all of its copies."""
        return FORMATS[self.precision].copies * self.padded(naux)

    def columns(self, side: int, naux: int) -> slice:
        """The elements of a row that are the left (0) or the right (1) operand of T."""
        form, width = FORMATS[self.precision], self.padded(naux)
        first, last = (form.left, form.right)[side]
        return slice(first * width, last * width)

    def part(self, number: int, naux: int) -> slice:
        """The elements of a row that are one of the parts of B."""
        start = self.parts[number] * self.padded(naux)
        return slice(start, start + naux)

    def orbital_bytes(self, nvir: int, naux: int) -> int:
        """Bytes of the rows of one orbital."""
        return nvir * self.row(naux) * self.operand.itemsize


# Tensor cores have bf16 from compute capability 8.0 on. CUDA 13 compiles for 7.5 and later.
_BF16 = np.dtype(ml_dtypes.bfloat16)
DEVICE_FORMATS = {
    "fp64": DeviceFormat("fp64", np.dtype(np.float64), np.dtype(np.float64), 75),
    "fp32": DeviceFormat("fp32", np.dtype(np.float32), np.dtype(np.float32), 75),
    "bf16x3": DeviceFormat("bf16x3", _BF16, np.dtype(np.float32), 80, parts=(1, 0)),
    "bf16": DeviceFormat("bf16", _BF16, np.dtype(np.float32), 80),
}
