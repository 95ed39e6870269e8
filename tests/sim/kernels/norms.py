"""Root-mean-square norm with a learned weight, and mean-variance norm, of the rows of x[T, H]."""

import numpy as np

from trnqc.sim import jit
from trnqc.sim.nki import isa as nisa
from trnqc.sim.nki import language as nl

P, FREE = 128, 512


@jit
def rms_norm(x, weight, eps):
    """The weight row reaches all partitions by a product with a column of ones."""
    T, H = x.shape
    out = nl.ndarray((T, H), dtype=x.dtype, buffer=nl.shared_hbm)
    row = nl.ndarray((1, H), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=row, src=weight.reshape((1, H)))
    ones = nl.full((1, P), 1.0, dtype=nl.float32)
    spread = nl.ndarray((P, H), dtype=nl.float32, buffer=nl.sbuf)
    for h in range(0, H, FREE):
        width = min(FREE, H - h)
        bank = nl.ndarray((P, width), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=bank, stationary=ones, moving=row[:, h : h + width])
        nisa.tensor_copy(dst=spread[:, h : h + width], src=bank)
    for t in range(0, T, P):
        rows = min(P, T - t)
        tile = nl.load(x[t : t + rows, :])
        squares = nl.ndarray((rows, H), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation_reduce(dst=squares, op=nl.square, data=tile, reduce_op=nl.add, reduce_res=total)
        nisa.tensor_scalar(dst=total, data=total, op0=nl.multiply, operand0=1.0 / H, op1=nl.add, operand1=eps)
        nisa.activation(dst=total, op=nl.rsqrt, data=total)
        normed = nl.ndarray((rows, H), dtype=x.dtype, buffer=nl.sbuf)
        nisa.scalar_tensor_tensor(
            dst=normed, data=tile, op0=nl.multiply, operand0=total, op1=nl.multiply, operand1=spread[0:rows, :]
        )
        nisa.dma_copy(dst=out[t : t + rows, :], src=normed)
    return out


def rms_norm_reference(x, weight, eps):
    x = x.astype(np.float64)
    return x / np.sqrt((x**2).mean(1, keepdims=True) + eps) * weight


@jit
def layer_norm(x, eps):
    """Statistics from bn_stats on pieces of at most 512 and one bn_aggr."""
    T, H = x.shape
    pieces = -(-H // FREE)
    out = nl.ndarray((T, H), dtype=x.dtype, buffer=nl.shared_hbm)
    for t in range(0, T, P):
        rows = min(P, T - t)
        tile = nl.load(x[t : t + rows, :])
        stats = nl.ndarray((rows, 6 * pieces), dtype=nl.float32, buffer=nl.sbuf)
        for piece in range(pieces):
            part = tile[:, piece * FREE : min(H, (piece + 1) * FREE)]
            nisa.bn_stats(dst=stats[:, 6 * piece : 6 * piece + 6], data=part)
        moments = nl.ndarray((rows, 2), dtype=nl.float32, buffer=nl.sbuf)
        nisa.bn_aggr(dst=moments, data=stats)
        scale = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=scale, data=moments[:, 1:2], op0=nl.add, operand0=eps)
        nisa.activation(dst=scale, op=nl.rsqrt, data=scale)
        normed = nl.ndarray((rows, H), dtype=x.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(
            dst=normed, data=tile, op0=nl.subtract, operand0=moments[:, 0:1], op1=nl.multiply, operand1=scale
        )
        nisa.dma_copy(dst=out[t : t + rows, :], src=normed)
    return out


def layer_norm_reference(x, eps):
    x = x.astype(np.float64)
    return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + eps)
