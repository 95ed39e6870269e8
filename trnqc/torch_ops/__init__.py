"""The NKI kernels as PyTorch operators; importing this package registers them as ``torch.ops.trnqc.*``.

    gemm(a_t[K, M], b[K, N], precision="fp32") -> [M, N] fp32                   differentiable
    batched_contraction(a_t[Z, K, M], b[Z, K, N], precision="fp32") -> [Z, M, N] fp32    differentiable
    mp2_pair_energy(bt, ev_row, ev_col, e_pair, work, bounds, nvir, naux, kchunk) -> partial sums, one launch

The functions `gemm` and `batched_contraction` of this package also support forward-mode derivatives and ``torch.func``.
The operators have gradients only, and raise UnsupportedError where they would drop a tangent. All take real, strided
tensors.

For tensors on a Trainium device the operators launch the kernel. For CPU tensors they raise an error unless
``host_kernels`` selects a substitute. This package needs PyTorch (the extra ``torch``).
"""

from trnqc.backends.nki.launch import host_kernels
from trnqc.torch_ops.ops import batched_contraction, gemm, mp2_pair_energy

__all__ = ["batched_contraction", "gemm", "host_kernels", "mp2_pair_energy"]
