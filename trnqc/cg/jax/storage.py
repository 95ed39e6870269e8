"""JAX arrays in half precision: they are stored in float16 or bfloat16, and computed in float32.

XLA fuses neither conversion with our kernels, so that half precision saves memory between operations, not time. The
largest error of a result, relative to float32, is 2^-8 in bfloat16 and 2^-11 in float16, as under PyTorch.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from trnqc.errors import OperandError, UnsupportedPrecision

COMPUTED = (jnp.float32, jnp.float64)
HALVES = (jnp.float16, jnp.bfloat16)


def widened(**operands: Array) -> tuple[Any, ...]:
    """Return the type in which a result is stored, and the operands in the type in which it is computed.

    Raises UnsupportedPrecision for a type that cannot be computed, OperandError for operands of different types.
    """
    (first, x), *others = operands.items()
    if x.dtype not in COMPUTED and x.dtype not in HALVES:
        raise UnsupportedPrecision(f"{first}: expected float32, float64, float16 or bfloat16, found {x.dtype}")
    for name, operand in others:
        if operand.dtype != x.dtype:
            raise OperandError(f"{name}: expected {x.dtype}, as {first} has, found {operand.dtype}")
    if x.dtype in COMPUTED:
        return (x.dtype, *operands.values())
    return (x.dtype, *(operand.astype(jnp.float32) for operand in operands.values()))
