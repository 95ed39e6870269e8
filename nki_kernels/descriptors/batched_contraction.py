"""Descriptor of `nki_kernels.batched_contraction`."""

from nki_kernels.batched_contraction import batched_contraction, reference_batched_contraction
from nki_kernels.descriptors.product import product_kernel

KERNEL = product_kernel(
    batched_contraction, reference_batched_contraction, ("Z", "M", "N", "K"), "one launch of Z products"
)
