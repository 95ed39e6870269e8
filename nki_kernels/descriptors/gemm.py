"""Descriptor of `nki_kernels.gemm`."""

from nki_kernels.descriptors.product import product_kernel
from nki_kernels.gemm import gemm, reference_gemm

KERNEL = product_kernel(gemm, reference_gemm, {"M": 130, "N": 700, "K": 140}, "one product")
