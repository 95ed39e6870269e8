"""x[M, N] -> x.T, tile by tile on the Tensor engine; and the same on the DMA engines."""

import numpy as np

from trnqc.sim import jit
from trnqc.sim.nki import isa as nisa
from trnqc.sim.nki import language as nl

P = 128


@jit
def transpose(x):
    M, N = x.shape
    out = nl.ndarray((N, M), dtype=x.dtype, buffer=nl.shared_hbm)
    for m in range(0, M, P):
        for n in range(0, N, P):
            rows, columns = min(P, M - m), min(P, N - n)
            tile = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[m : m + rows, n : n + columns])
            turned = nl.ndarray((columns, rows), dtype=x.dtype, buffer=nl.psum)
            nisa.nc_transpose(dst=turned, data=tile, engine=nisa.engine.tensor)
            back = nl.ndarray((columns, rows), dtype=x.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=back, src=turned)
            nisa.dma_copy(dst=out[n : n + columns, m : m + rows], src=back)
    return out


@jit
def transpose_by_dma(x):
    M, N = x.shape
    out = nl.ndarray((N, M), dtype=x.dtype, buffer=nl.shared_hbm)
    for n in range(0, N, P):
        columns = min(P, N - n)
        turned = nl.ndarray((columns, M), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_transpose(dst=turned, src=x[:, n : n + columns], axes=(1, 0))
        nisa.dma_copy(dst=out[n : n + columns, :], src=turned)
    return out


def reference(x):
    return np.ascontiguousarray(x.T)
