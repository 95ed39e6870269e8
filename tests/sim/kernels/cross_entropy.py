"""Cross entropy of logits[T, V] against classes[T], the vocabulary streamed in chunks with a running maximum."""

import numpy as np

from trnqc.sim import jit
from trnqc.sim.nki import isa as nisa
from trnqc.sim.nki import language as nl


@jit
def cross_entropy(logits, classes, chunk):
    """loss[T] = log sum_v exp(logits[:, v]) - logits[t, classes[t]], T <= 128."""
    T, V = logits.shape
    target = nl.ndarray((T, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=target, src=classes.reshape((T, 1)))
    top = nl.full((T, 1), -1e30, dtype=nl.float32)
    total, chosen = nl.zeros((T, 1), dtype=nl.float32), nl.zeros((T, 1), dtype=nl.float32)
    for start in range(0, V, chunk):
        width = min(chunk, V - start)
        part = nl.load(logits[:, start : start + width])
        new_top = nl.ndarray((T, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=new_top, op=nl.maximum, data=part, axis=1)
        nisa.tensor_tensor(dst=new_top, data1=new_top, data2=top, op=nl.maximum)
        shift = nl.ndarray((T, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=shift, data1=top, data2=new_top, op=nl.subtract)
        nisa.activation(dst=shift, op=nl.exp, data=shift)
        minus = nl.ndarray((T, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=minus, data=new_top, op0=nl.multiply, operand0=-1.0)
        powers = nl.ndarray((T, width), dtype=nl.float32, buffer=nl.sbuf)
        here = nl.ndarray((T, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation_reduce(dst=powers, op=nl.exp, data=part, reduce_op=nl.add, reduce_res=here, bias=minus)
        nisa.scalar_tensor_tensor(dst=total, data=total, op0=nl.multiply, operand0=shift, op1=nl.add, operand1=here)
        place = nl.ndarray((T, width), dtype=nl.float32, buffer=nl.sbuf)
        nisa.iota(dst=place, pattern=[[1, width]], offset=start)
        nisa.scalar_tensor_tensor(dst=place, data=place, op0=nl.equal, operand0=target, op1=nl.multiply, operand1=part)
        nisa.tensor_reduce(dst=here, op=nl.add, data=place, axis=1)
        nisa.tensor_tensor(dst=chosen, data1=chosen, data2=here, op=nl.add)
        nisa.tensor_copy(dst=top, src=new_top)
    nisa.activation(dst=total, op=nl.log, data=total)
    nisa.tensor_tensor(dst=total, data1=total, data2=top, op=nl.add)
    nisa.tensor_tensor(dst=total, data1=total, data2=chosen, op=nl.subtract)
    out = nl.ndarray((T, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=total)
    return out


def reference(logits, classes):
    logits = logits.astype(np.float64)
    top = logits.max(1, keepdims=True)
    norm = np.log(np.exp(logits - top).sum(1)) + top[:, 0]
    return (norm - logits[np.arange(len(classes)), classes])[:, None]
