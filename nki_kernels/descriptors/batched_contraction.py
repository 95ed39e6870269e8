"""Descriptor of `nki_kernels.batched_contraction`."""

from nki_kernels.batched_contraction import batched_contraction, reference_batched_contraction
from nki_kernels.descriptors.product import product_kernel

KERNEL = product_kernel(
    batched_contraction,
    reference_batched_contraction,
    {"Z": 3, "M": 129, "N": 130, "K": 140},
    "one launch of Z products",
)
