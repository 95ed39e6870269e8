"""Linear recurrences along the free dimension: a selective state-space layer, and sums carried from chunk to chunk."""

import numpy as np

from trnqc.sim import jit
from trnqc.sim.nki import isa as nisa
from trnqc.sim.nki import language as nl

P = 128


@jit
def selective_scan(delta, u, a, b, c):
    """y[k, t] = sum_s c[s, t] h[k, s, t];  h[k, s, t] = exp(delta[k, t] a[k, s]) h[k, s, t-1] + delta u b[s, t]."""
    channels, steps = delta.shape
    _, states = a.shape
    y = nl.ndarray((channels, steps), dtype=nl.float32, buffer=nl.shared_hbm)
    for k in range(0, channels, P):
        rows = min(P, channels - k)
        d = nl.load(delta[k : k + rows, :])
        du = nl.load(u[k : k + rows, :])
        nisa.tensor_tensor(dst=du, data1=du, data2=d, op=nl.multiply)
        rates = nl.load(a[k : k + rows, :])
        total = nl.zeros((rows, steps), dtype=nl.float32)
        for s in range(states):
            decay = nl.ndarray((rows, steps), dtype=nl.float32, buffer=nl.sbuf)
            nisa.activation(dst=decay, op=nl.exp, data=d, scale=rates[:, s : s + 1])
            gain = nl.broadcast_to(nl.load(b[s : s + 1, :]), (rows, steps))
            drive = nl.ndarray((rows, steps), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_tensor(dst=drive, data1=du, data2=gain, op=nl.multiply)
            h = nl.ndarray((rows, steps), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_tensor_scan(dst=h, data0=decay, data1=drive, initial=0.0, op0=nl.multiply, op1=nl.add)
            read = nl.broadcast_to(nl.load(c[s : s + 1, :]), (rows, steps))
            nisa.tensor_tensor(dst=h, data1=h, data2=read, op=nl.multiply)
            nisa.tensor_tensor(dst=total, data1=total, data2=h, op=nl.add)
        nisa.dma_copy(dst=y[k : k + rows, :], src=total)
    return y


def selective_scan_reference(delta, u, a, b, c):
    delta, u, a, b, c = (x.astype(np.float64) for x in (delta, u, a, b, c))
    h, y = np.zeros(a.shape), np.empty(delta.shape)
    for t in range(delta.shape[1]):
        h = np.exp(delta[:, t, None] * a) * h + (delta * u)[:, t, None] * b[:, t]
        y[:, t] = h @ c[:, t]
    return y


@jit
def cumulative_sum(x, chunk):
    rows, length = x.shape
    out = nl.ndarray((rows, length), dtype=x.dtype, buffer=nl.shared_hbm)
    for r in range(0, rows, P):
        height = min(P, rows - r)
        carry = nl.zeros((height, 1), dtype=nl.float32)
        for start in range(0, length, chunk):
            width = min(chunk, length - start)
            part = nl.load(x[r : r + height, start : start + width])
            ones = nl.full((height, width), 1.0, dtype=nl.float32)
            sums = nl.ndarray((height, width), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_tensor_scan(dst=sums, data0=ones, data1=part, initial=carry, op0=nl.multiply, op1=nl.add)
            nisa.tensor_copy(dst=carry, src=sums[:, width - 1 : width])
            nisa.dma_copy(dst=out[r : r + height, start : start + width], src=sums)
    return out
