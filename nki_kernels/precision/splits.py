"""The precisions of matrix products: operands in fp32 or bf16, or split into several numbers in bf16.

    x = x_0 + x_1 + ... + x_(n-1)        each part is the rounded remainder of the parts before it
    x y ~ sum of x_p y_q over p + q < n

The products are added up in fp32 in PSUM, in one accumulation group. Products with p + q >= n are smaller than what the
split itself leaves of x and y, and are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np


@dataclass(frozen=True)
class Precision:
    """How the operands of one precision are stored.

    Attributes
    ----------
    dtype
        The dtype of each part.
    parts
        The number of parts.
    bits
        The number of significant bits of each part. Where it is less than the dtype has, products of two parts are
        numbers of the dtype as well.
    error
        The promised error of a sum of products: the largest allowed |error| / sum |x_k| |y_k|, where x and y are the
        operands before they are rounded.
    """

    dtype: np.dtype
    parts: int
    bits: int
    error: float

    @property
    def itemsize(self) -> int:
        """The size of an element in bytes, summed over the parts."""
        return self.parts * self.dtype.itemsize


_FP32, _BF16 = np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16)
# What accumulation in fp32 may add to the error of a precision: 64 times the rounding error of one addition. Sums of a
# thousand terms stay below a third of it on the simulator.
_ACCUMULATION = 2.0**-18
# Rounding to b bits has a relative error of at most 2^-b. A bf16 split in n parts leaves at most 2^-(9n - 1) of each
# operand. The largest products that two parts leave out are 2^-16; for three parts they are 2^-24. Four-bit parts leave
# out 2^-21. What bf16 promises, twice the error of rounded operands, holds
# for products that are rounded as well.
PRECISIONS = {
    "fp32": Precision(_FP32, 1, 24, _ACCUMULATION),
    "bf16x15": Precision(_BF16, 5, 4, _ACCUMULATION),
    "bf16x6": Precision(_BF16, 3, 8, _ACCUMULATION),
    "bf16x3": Precision(_BF16, 2, 8, 2.0**-15 + _ACCUMULATION),
    "bf16": Precision(_BF16, 1, 8, 2.0**-6),
}
"""The precisions of the tensor engine by name, the most accurate ones first. The name tells the number of products."""


def products_of(parts_a: int, parts_b: int):
    """(part of a, part of b) of the products that matter, given the number of parts of both operands."""
    pairs = []
    for p in range(parts_a):
        for q in range(parts_b):
            if p + q < max(parts_a, parts_b):
                pairs.append((p, q))
    return pairs


def split(array: np.ndarray, precision: str) -> np.ndarray:
    """Split an operand in fp64 into its parts for the tensor engine.

    Parameters
    ----------
    array
        The operand, of any shape.
    precision
        One of `PRECISIONS`.

    Returns
    -------
    ndarray
        [parts, ...] in the dtype of the precision.

    Examples
    --------
    >>> split(np.array([1 / 3]), "bf16x3")[:, 0].astype(float)
    array([ 0.33398438, -0.00065231])
    """
    form = PRECISIONS[precision]
    if form.parts == 1:
        return array.astype(form.dtype)[None]
    rest, parts = np.array(array, np.float64), []
    for _ in range(form.parts):
        part = _rounded(rest, form)
        parts.append(part)
        rest -= part.astype(np.float64)
    return np.stack(parts)


def split_like(array: np.ndarray, operand: np.ndarray) -> np.ndarray:
    """Split an array as an operand [parts, ...] in fp32 or in parts of eight bits; kernels split their results so."""
    return split(array, "fp32" if operand.dtype == _FP32 else ("bf16", "bf16x3", "bf16x6")[len(operand) - 1])


def sum_of_products(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """What kernels compute from split operands a[parts, ..., K, M] and b[parts, ..., K, N]: a.T @ b, here in fp64."""
    a, b = np.asarray(a, np.float64).swapaxes(-1, -2), np.asarray(b, np.float64)
    return sum(a[p] @ b[q] for p, q in products_of(len(a), len(b)))


def _rounded(values: np.ndarray, form: Precision) -> np.ndarray:
    if form.bits == 8:
        return values.astype(form.dtype)
    significand, exponent = np.frexp(values)
    scale = 2.0**form.bits
    return np.ldexp(np.rint(significand * scale) / scale, exponent).astype(form.dtype)
