"""Matrix product on the tensor engine. Both operands have the contraction index first, so nothing is transposed.

    out[M, N] = sum_p,q a_t[p, K, M].T @ b[q, K, N]

An operand has one part, or the parts of a split into numbers in bf16 (``precision.splits``). The products of the parts
that matter are added up in the same PSUM bank. Two parts and three products give nearly fp32 accuracy at bf16 speed.

Limits: M, N, K >= 1; fewer than 2^31 elements in each array; parts in fp32 or bf16, the same for both operands.
Accumulation and output are in fp32. The program is unrolled over K and over one block; see ``gemm_blocks``.
"""

from __future__ import annotations

import numpy as np

from nki_kernels.gemm_blocks import contract
from nki_kernels.lang import nki, nl
from nki_kernels.precision.splits import sum_of_products


@nki.jit
def gemm(a_t, b, rows=0, cols=0, kchunk=0, batch=1, hold=0, drains=4, drainer=0):
    """a_t[parts, K, M], b[parts, K, N]; returns [M, N] fp32.

    rows, cols, kchunk, batch, hold: compile-time block sizes as ``gemm_blocks.plan`` returns them; rows = 0 plans here.
    drains: output tiles in flight between PSUM and memory; drainer: who copies them, 0 VectorE, 1 ScalarE, 2 in turn.
    """
    out = nl.ndarray((a_t.shape[2], b.shape[2]), dtype=nl.float32, buffer=nl.shared_hbm)
    a4 = a_t.reshape((a_t.shape[0], 1, a_t.shape[1], a_t.shape[2]))
    b4 = b.reshape((b.shape[0], 1, b.shape[1], b.shape[2]))
    blocks = {"rows": rows, "cols": cols, "kchunk": kchunk, "batch": batch, "hold": hold}
    contract(a4, b4, out.reshape((1, out.shape[0], out.shape[1])), blocks, drains, drainer)
    return out


def reference_gemm(a_t, b, rows=0, cols=0, kchunk=0, batch=1, hold=0, drains=4, drainer=0):
    """The same sum of products in NumPy: fp64 arithmetic on the given (rounded) parts, rounded once to fp32."""
    return np.asarray(sum_of_products(a_t, b), np.float32)
