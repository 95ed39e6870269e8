"""Tensor products, their convolutions and symmetric contractions as functions of JAX arrays on the CPU.

problem -> primitives with rules for jit, jvp, vjp and vmap -> calls of XLA's foreign function interface -> kernels
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnqc.lazy import lazy_names

if TYPE_CHECKING:
    from trnqc.cg.jax.contraction import SymmetricContraction
    from trnqc.cg.jax.products import TensorProduct, TensorProductConv

__all__ = ["SymmetricContraction", "TensorProduct", "TensorProductConv"]

_HOMES = {
    "SymmetricContraction": "trnqc.cg.jax.contraction",
    "TensorProduct": "trnqc.cg.jax.products",
    "TensorProductConv": "trnqc.cg.jax.products",
}

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
