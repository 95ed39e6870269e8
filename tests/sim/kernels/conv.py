"""y[F, L] = sum over taps and channels of w[tap, C, F] x[C, stride l + dilation tap - padding]: one product a tap."""

import numpy as np

from trnqc.sim import jit
from trnqc.sim.nki import isa as nisa
from trnqc.sim.nki import language as nl

P, FREE = 128, 512


@jit
def conv(x, w, stride, padding, dilation):
    """Channels C, F up to 128; the padded row stays in SBUF and each tap reads it with a stride."""
    C, N = x.shape
    taps, _, F = w.shape
    width = N + 2 * padding
    length = (width - dilation * (taps - 1) - 1) // stride + 1
    row = nl.zeros((C, width), dtype=x.dtype)
    nisa.dma_copy(dst=row[:, padding : padding + N], src=x)
    filters = []
    for tap in range(taps):
        filters.append(nl.load(w[tap, :, :]))
    y = nl.ndarray((F, length), dtype=nl.float32, buffer=nl.shared_hbm)
    for start in range(0, length, FREE):
        count = min(FREE, length - start)
        acc = nl.ndarray((F, count), dtype=nl.float32, buffer=nl.psum)
        for tap in range(taps):
            moving = row.ap([[width, C], [stride, count]], offset=start * stride + tap * dilation)
            nisa.nc_matmul(dst=acc, stationary=filters[tap], moving=moving, accumulate=tap > 0)
        out = nl.ndarray((F, count), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=out, op=nl.relu, data=acc)
        nisa.dma_copy(dst=y[:, start : start + count], src=out)
    return y


def reference(x, w, stride, padding, dilation):
    taps, _, F = w.shape
    x = np.pad(x.astype(np.float64), ((0, 0), (padding, padding)))
    length = (x.shape[1] - dilation * (taps - 1) - 1) // stride + 1
    y = np.zeros((F, length))
    for tap in range(taps):
        y += w[tap].T.astype(np.float64) @ x[:, tap * dilation : tap * dilation + stride * (length - 1) + 1 : stride]
    return np.maximum(y, 0)
