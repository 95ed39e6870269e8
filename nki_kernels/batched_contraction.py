"""Many matrix products of one shape in one launch: out[z] = a_t[z].T @ b[z].

The batch is walked by a device-side loop, a few products an iteration so that loads of one overlap with products of
another; the static instruction count does not depend on Z. Operands, parts and limits as in ``gemm``, with fewer than
2^31 elements in each whole array.
"""

from __future__ import annotations

import numpy as np

from nki_kernels.gemm_blocks import contract, plan
from nki_kernels.lang import nki, nl


@nki.jit
def batched_contraction(a_t, b, rows=0, cols=0, kchunk=0, batch=1, hold=0):
    """a_t, b: tuples of one or two parts [Z, K, M] and [Z, K, N]; returns [Z, M, N] fp32.

    rows, cols, kchunk, batch, hold: compile-time block sizes as ``gemm_blocks.plan`` returns them; rows = 0 plans here.
    """
    Z, K, M = a_t[0].shape
    N = b[0].shape[2]
    assert b[0].shape[0] == Z and b[0].shape[1] == K, "batched_contraction: a_t and b differ in Z or K"
    out = nl.ndarray((Z, M, N), dtype=nl.float32, buffer=nl.shared_hbm)
    blocks = {"rows": rows, "cols": cols, "kchunk": kchunk, "batch": batch, "hold": hold}
    if rows == 0:
        itemsize = len(a_t) * (4 if a_t[0].dtype == nl.float32 else 2)
        blocks = plan(Z, M, N, K, itemsize)
    contract(a_t, b, out, (Z, M, N, K), blocks)
    return out


def reference_batched_contraction(a_t, b, rows=0, cols=0, kchunk=0, batch=1, hold=0):
    """The same sums in NumPy: fp64 arithmetic on the given (rounded) parts, rounded once to fp32."""
    a_t, b = [np.asarray(x, np.float64) for x in a_t], [np.asarray(x, np.float64) for x in b]
    total = sum(
        np.einsum("zkm,zkn->zmn", a_t[p], b[q]) for p in range(len(a_t)) for q in range(len(b)) if p + q < 2
    )
    return np.asarray(total, np.float32)
