"""Matrix product on the tensor engine, both operands with the contraction index first: no transposes anywhere.

    out[M, N] = sum_p,q a_p[K, M].T @ b_q[K, N]

Operands come in parts: one array, or the high and low parts of a bf16 split (x = high + low), whose three products
high high + high low + low high add up in the same PSUM bank: nearly fp32 results at bf16 speed.

Limits: any M, N, K >= 1 with fewer than 2^31 elements in each array; fp32 or bf16 parts, both operands alike; fp32
accumulation and output. The program unrolls over K and over one block; see ``gemm_blocks``.
"""

from __future__ import annotations

import numpy as np

from nki_kernels.gemm_blocks import contract, plan
from nki_kernels.lang import nki, nl


@nki.jit
def gemm(a_t, b, rows=0, cols=0, kchunk=0, batch=1, hold=0):
    """a_t, b: tuples of one or two parts [K, M] and [K, N]; returns [M, N] fp32.

    rows, cols, kchunk, batch, hold: compile-time block sizes as ``gemm_blocks.plan`` returns them; rows = 0 plans here.
    """
    K, M = a_t[0].shape
    N = b[0].shape[1]
    assert b[0].shape[0] == K, f"gemm: a_t has {K} rows of the contraction index, b has {b[0].shape[0]}"
    out = nl.ndarray((M, N), dtype=nl.float32, buffer=nl.shared_hbm)
    blocks = {"rows": rows, "cols": cols, "kchunk": kchunk, "batch": batch, "hold": hold}
    if rows == 0:
        itemsize = len(a_t) * (4 if a_t[0].dtype == nl.float32 else 2)
        blocks = plan(1, M, N, K, itemsize)
    contract(a_t, b, out, (1, M, N, K), blocks)
    return out


def reference_gemm(a_t, b, rows=0, cols=0, kchunk=0, batch=1, hold=0):
    """The same sum of products in NumPy: fp64 arithmetic on the given (rounded) parts, rounded once to fp32."""
    a_t, b = [np.asarray(x, np.float64) for x in a_t], [np.asarray(x, np.float64) for x in b]
    total = sum(a_t[p].T @ b[q] for p in range(len(a_t)) for q in range(len(b)) if p + q < 2)
    return np.asarray(total, np.float32)
