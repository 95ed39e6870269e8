"""Causal softmax attention of one head, and rotary position embedding of its rows."""

import numpy as np

from trnqc.sim import jit
from trnqc.sim.nki import isa as nisa
from trnqc.sim.nki import language as nl

MINUS = -30000.0


@jit
def causal_attention(q_t, k_t, v):
    """q_t, k_t[D, T], v[T, D], T <= 128 -> softmax(q k^T / sqrt(D), lower triangle) v."""
    D, T = q_t.shape
    q, k, values = nl.load(q_t), nl.load(k_t), nl.load(v)
    scores = nl.ndarray((T, T), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=scores, stationary=q, moving=k)
    masked = nl.ndarray((T, T), dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation(dst=masked, op=nl.copy, data=scores, scale=D**-0.5)
    nisa.affine_select(
        dst=masked,
        pattern=[[-1, T]],
        channel_multiplier=1,
        on_true_tile=masked,
        on_false_value=MINUS,
        cmp_op=nl.greater_equal,
    )
    top = nl.ndarray((T, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=top, op=nl.maximum, data=masked, axis=1, negate=True)
    weights = nl.ndarray((T, T), dtype=nl.float32, buffer=nl.sbuf)
    total = nl.ndarray((T, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation_reduce(dst=weights, op=nl.exp, data=masked, reduce_op=nl.add, reduce_res=total, bias=top)
    turned = nl.ndarray((T, T), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_transpose(dst=turned, data=weights)
    weights_t = nl.copy(turned)
    mixed = nl.ndarray((T, D), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=mixed, stationary=weights_t, moving=values)
    nisa.reciprocal(dst=total, data=total)
    rows = nl.ndarray((T, D), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=rows, data=mixed, op0=nl.multiply, operand0=total)
    out = nl.ndarray((T, D), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=rows)
    return out


def causal_attention_reference(q_t, k_t, v):
    D, T = q_t.shape
    scores = q_t.astype(np.float64).T @ k_t / np.sqrt(D)
    scores[np.triu_indices(T, 1)] = -np.inf
    weights = np.exp(scores - scores.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True) @ v


@jit
def rotate(x, cos, sin):
    """x[D, N], pairs (d, d + D/2) turned by the angles of cos, sin[D/2, N]; both halves start at partition 0."""
    D, N = x.shape
    half = D // 2
    low, high = nl.load(x[0:half, :]), nl.load(x[half:D, :])
    c, s = nl.load(cos), nl.load(sin)
    out = nl.ndarray((D, N), dtype=x.dtype, buffer=nl.shared_hbm)
    for first, second, op, place in ((low, high, nl.subtract, 0), (high, low, nl.add, half)):
        straight = nl.ndarray((half, N), dtype=nl.float32, buffer=nl.sbuf)
        crossed = nl.ndarray((half, N), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=straight, data1=first, data2=c, op=nl.multiply)
        nisa.tensor_tensor(dst=crossed, data1=second, data2=s, op=nl.multiply)
        nisa.tensor_tensor(dst=straight, data1=straight, data2=crossed, op=op)
        nisa.dma_copy(dst=out[place : place + half, :], src=straight)
    return out


def rotate_reference(x, cos, sin):
    low, high = np.split(x.astype(np.float64), 2)
    return np.concatenate([low * cos - high * sin, high * cos + low * sin])
