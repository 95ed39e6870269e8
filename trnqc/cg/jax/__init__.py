"""Tensor products and their convolutions as functions of JAX arrays on the CPU.

problem -> primitives with rules for jit, jvp, vjp and vmap -> calls of XLA's foreign function interface -> kernels
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnqc.lazy import lazy_names

if TYPE_CHECKING:
    from trnqc.cg.jax.products import TensorProduct, TensorProductConv

__all__ = ["TensorProduct", "TensorProductConv"]

_HOMES = dict.fromkeys(__all__, "trnqc.cg.jax.products")

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
