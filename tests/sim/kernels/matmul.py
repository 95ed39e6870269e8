"""C[M, N] = A_t[K, M].T @ B[K, N] in tiles of any size, the stationary tiles of a row of C kept on chip."""

import numpy as np

from trnqc.sim import jit
from trnqc.sim.nki import isa as nisa
from trnqc.sim.nki import language as nl

P, FREE = 128, 512


@jit
def matmul(a_t, b):
    K, M = a_t.shape
    _, N = b.shape
    c = nl.ndarray((M, N), dtype=nl.float32, buffer=nl.shared_hbm)
    for m in range(0, M, P):
        rows = min(P, M - m)
        stationary = []
        for k in range(0, K, P):
            depth = min(P, K - k)
            tile = nl.ndarray((depth, rows), dtype=a_t.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=a_t[k : k + depth, m : m + rows])
            stationary.append(tile)
        for n in range(0, N, FREE):
            columns = min(FREE, N - n)
            acc = nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.psum)
            for step, k in enumerate(range(0, K, P)):
                depth = min(P, K - k)
                moving = nl.ndarray((depth, columns), dtype=b.dtype, buffer=nl.sbuf)
                nisa.dma_copy(dst=moving, src=b[k : k + depth, n : n + columns])
                nisa.nc_matmul(dst=acc, stationary=stationary[step], moving=moving, accumulate=step > 0)
            out = nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_copy(dst=out, src=acc)
            nisa.dma_copy(dst=c[m : m + rows, n : n + columns], src=out)
    return c


def reference(a_t, b):
    return a_t.astype(np.float64).T @ b.astype(np.float64)
