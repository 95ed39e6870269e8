"""Many matrix products of the same shape in one launch: out[z] = sum_p,q a_t[p, z].T @ b[q, z].

A device-side loop runs over the batch, with several products per iteration, so that the loads of one product overlap
with the computation of another. The static instruction count does not depend on Z. For parts and limits see ``gemm``.
"""

from __future__ import annotations

import numpy as np

from nki_kernels.gemm_blocks import contract
from nki_kernels.lang import nki, nl


@nki.jit
def batched_contraction(a_t, b, rows=0, cols=0, kchunk=0, batch=1, hold=0, drains=4, drainer=0):
    """a_t[parts, Z, K, M], b[parts, Z, K, N]; returns [Z, M, N] fp32.

    rows, cols, kchunk, batch, hold: compile-time block sizes as ``gemm_blocks.plan`` returns them; rows = 0 plans here.
    drains: output tiles in flight between PSUM and memory; drainer: who copies them, 0 VectorE, 1 ScalarE, 2 in turn.
    """
    out = nl.ndarray((a_t.shape[1], a_t.shape[3], b.shape[3]), dtype=nl.float32, buffer=nl.shared_hbm)
    contract(a_t, b, out, {"rows": rows, "cols": cols, "kchunk": kchunk, "batch": batch, "hold": hold}, drains, drainer)
    return out


def reference_batched_contraction(a_t, b, rows=0, cols=0, kchunk=0, batch=1, hold=0, drains=4, drainer=0):
    """The same sums in NumPy: fp64 arithmetic on the given (rounded) parts, rounded once to fp32."""
    a_t, b = np.asarray(a_t, np.float64), np.asarray(b, np.float64)
    a_t = a_t.swapaxes(2, 3)
    total = sum(a_t[p] @ b[q] for p in range(len(a_t)) for q in range(len(b)) if p + q < 2)
    return np.asarray(total, np.float32)
