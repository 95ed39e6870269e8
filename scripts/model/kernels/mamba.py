"""The selective scan of a Mamba layer, y[c, t] = sum_s C[s, t] h_s[c, t] with h_s[t] = exp(D A_s) h_s[t - 1] + D u
B_s, three ways.

reload: D and u come from memory for every state, so their product is made anew each time; else both stay for all
states and so does the product (it does not depend on the state: a compiler takes it out of the loop), and each state's
sum is made between the instructions of the next one, as the published VectorE time of 3.1 us for a state and 512 steps
is that of the four instructions without waiting for one another (4.7 us for five with ``reload``). length: time
steps of one pass, carried on through the last column; rows of B and C are spread over the partitions by TensorE and
read out of PSUM where they fit one bank, else from SBUF.
"""

from __future__ import annotations

from typing import Any

from nki_kernels.lang import nisa, nki, nl

P, BANK = 128, 512


def _fetch(source, shape):
    tile = nl.ndarray(shape, dtype=source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source)
    return tile


def _spread(ones, row):
    """row[1, t] on every partition."""
    length = row.shape[1]
    wide: Any = None if length <= BANK else nl.ndarray((P, length), dtype=row.dtype, buffer=nl.sbuf)
    for t in range(0, length, BANK):
        stop = min(length, t + BANK)
        bank = nl.ndarray((P, stop - t), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=bank, stationary=ones, moving=row[0:1, t:stop])
        if length <= BANK:
            return bank
        nisa.activation(dst=wide[0:P, t:stop], op=nl.copy, data=bank)
    return wide


def _product(x, y):
    out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=out, data1=x, data2=y, op=nl.multiply)
    return out


def _states(ones, B, s: int, t0: int, t1: int, step, drive, rate, carry, meanwhile):
    """States s of time steps t0..t1; ``carry`` is the state before them, 0.0 or a column. ``meanwhile`` is done between
    the instructions of VectorE, which need one another's results."""
    length = t1 - t0
    decay = nl.ndarray((P, length), dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation(dst=decay, op=nl.exp, data=step, scale=rate)
    push = _product(drive, _spread(ones, _fetch(B[s : s + 1, t0:t1], (1, length))))
    next(meanwhile, None)
    states = nl.ndarray((P, length), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_tensor_scan(dst=states, data0=decay, data1=push, initial=carry, op0=nl.multiply, op1=nl.add)
    next(meanwhile, None)
    return states


def _sum_up(ones, C, s: int, t0: int, t1: int, states, total):
    """total += C states, in two steps."""
    seen = _product(states, _spread(ones, _fetch(C[s : s + 1, t0:t1], (1, t1 - t0))))
    yield
    nisa.tensor_tensor(dst=total, data1=total, data2=seen, op=nl.add)


def _finish(work):
    for _ in work:
        pass
    return iter(())


@nki.jit
def scan(delta, u, A, B, C, reload=False, length=0):
    """delta, u [channels, time], A [channels, states], B, C [states, time], all fp32; returns y [channels, time]."""
    channels, time = delta.shape
    states, length = A.shape[1], time if length == 0 else length
    out = nl.ndarray((channels, time), dtype=nl.float32, buffer=nl.shared_hbm)
    ones = nl.ndarray((1, P), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=ones, value=1.0)
    for c in range(0, channels, P):
        total = nl.ndarray((P, time), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=total, value=0.0)
        step: Any = None
        drive, waiting = [], iter(())
        if not reload:
            step = _fetch(delta[c : c + P, 0:time], (P, time))
            source = _fetch(u[c : c + P, 0:time], (P, time))
            for t in range(0, time, length):
                drive.append(_product(step[0:P, t : t + length], source[0:P, t : t + length]))
        for s in range(states):
            if reload:
                step = _fetch(delta[c : c + P, 0:time], (P, time))
                drive = [_product(step, _fetch(u[c : c + P, 0:time], (P, time)))]
            rate = _fetch(A[c : c + P, s : s + 1], (P, 1))
            carry = 0.0
            for t in range(0, time, length):
                stop = min(time, t + length)
                now = step[0:P, t:stop]
                run = _states(ones, B, s, t, stop, now, drive[t // length], rate, carry, waiting)
                carry = run[0:P, stop - t - 1 : stop - t]
                waiting = _sum_up(ones, C, s, t, stop, run, total[0:P, t:stop])
                if reload:
                    waiting = _finish(waiting)
        _finish(waiting)
        nisa.dma_copy(dst=out[c : c + P, 0:time], src=total)
    return out


@nki.jit
def load_rows(x):
    """exp of a few long rows: one DMA engine carries each way."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = _fetch(x, x.shape)
    result = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.activation(dst=result, op=nl.exp, data=tile)
    nisa.dma_copy(dst=out, src=result)
    return out


@nki.jit
def scalar_chain(x, links=64):
    """``links`` one-element instructions on ScalarE, each on the result of the one before."""
    out = nl.ndarray((P, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = _fetch(x, (P, 1))
    for _ in range(links):
        nisa.activation(dst=tile, op=nl.copy, data=tile)
    nisa.dma_copy(dst=out, src=tile)
    return out
