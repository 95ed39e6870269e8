"""The NKI kernels as PyTorch operators; importing this package registers them as ``torch.ops.trnqc.*``.

    gemm(a_t[K, M], b[K, N], precision="fp32") -> [M, N] fp32                   differentiable
    batched_contraction(a_t[Z, K, M], b[Z, K, N], precision="fp32") -> [Z, M, N] fp32    differentiable
    mp2_pair_energy(bt, ev_row, ev_col, e_pair, work, bounds, nvir, naux, kchunk) -> partial sums, one launch

The functions `gemm` and `batched_contraction` here have forward-mode derivatives and go through ``torch.func`` too; the
operators have gradients, and raise where they would drop a tangent. Real, strided tensors are taken.

On a Trainium device they launch the kernel; on CPU tensors they raise unless ``host_kernels`` says what stands in.
Needs PyTorch (the extra ``torch``).
"""

from trnqc.backends.neuron.launch import host_kernels
from trnqc.torch_ops.ops import batched_contraction, gemm, mp2_pair_energy

__all__ = ["batched_contraction", "gemm", "host_kernels", "mp2_pair_energy"]
