"""How the simulated tensor engine multiplies: exactly, or with products that are rounded to bf16.

The vendor documents that the tensor engine accumulates in fp32, but not how it rounds the products. The default is the
documented reading: products enter the sum exactly. Measurements on devices have been published that fit products which
are rounded to bf16 before they are added up (docs/precision.md). Two environment variables select this for the
simulator, so that the consequences of such a device can be seen:

    TRNQC_SIM_BF16_PRODUCTS=exact|rounded    products of operands with at most 16 bits: bf16, fp16, fp8
    TRNQC_SIM_FP32_PRODUCTS=exact|rounded    products of fp32 and tf32 operands
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from trnqc.sim.machine.faults import NkiValidationError

BF16_VARIABLE = "TRNQC_SIM_BF16_PRODUCTS"
FP32_VARIABLE = "TRNQC_SIM_FP32_PRODUCTS"
# Values of both variables; the first is the default.
MODES = ("exact", "rounded")


@dataclass(frozen=True)
class Arithmetic:
    """The rounding of products by the tensor engine, one of `MODES` for each width of the operands."""

    bf16_products: str = "exact"
    fp32_products: str = "exact"

    def multiply(self, left: np.ndarray, right: np.ndarray, wide: bool) -> np.ndarray:
        """Return left.T @ right in fp32 for fp32 arrays [K, M] and [K, N]; `wide` if the operands are fp32 or tf32."""
        mode = self.fp32_products if wide else self.bf16_products
        return left.T @ right if mode == "exact" else _sum_of_rounded(left, right)


def arithmetic_from_environment() -> Arithmetic:
    """Return the arithmetic that the environment variables select; raises NkiValidationError for a value that is not in
    `MODES`.
    """
    return Arithmetic(_mode(BF16_VARIABLE), _mode(FP32_VARIABLE))


def _mode(variable: str) -> str:
    mode = os.environ.get(variable, "") or MODES[0]
    if mode not in MODES:
        raise NkiValidationError(f"{variable} must be one of {', '.join(MODES)}, got {mode!r}")
    return mode


def _sum_of_rounded(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Add up left[k, m] right[k, n] over k in fp32, with each product rounded to bf16 first."""
    total = np.zeros((left.shape[1], right.shape[1]), np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        for column, row in zip(left, right, strict=True):
            total += np.multiply.outer(column, row).astype(ml_dtypes.bfloat16).astype(np.float32)
    return total
