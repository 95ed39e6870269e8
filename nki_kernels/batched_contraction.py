"""Many matrix products of the same shape in one launch: out[z] = sum_p,q a_t[p, z].T @ b[q, z].

A device-side loop runs over the batch, with several products per iteration, so that the loads of one product overlap
with the computation of another. The static instruction count does not depend on Z. For parts and limits see ``gemm``.
"""

from __future__ import annotations

import numpy as np

from nki_kernels.gemm_blocks import contract
from nki_kernels.lang import nki, nl
from nki_kernels.precision.splits import sum_of_products


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
    return np.asarray(sum_of_products(a_t, b), np.float32)
