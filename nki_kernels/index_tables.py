"""Tables of indices whose steps exceed the 16 bits that the pattern of ``iota`` holds.

    dst[p, i...] = offset + p multiplier + sum_d i_d step_d

Steps that fit, and those of extents of one, are part of one ``iota``. Each other one takes four instructions more: the
indices i_d, their step as a constant, the product, and the sum. GpSimd multiplies and adds 32-bit integers exactly.
"""

from __future__ import annotations

from nki_kernels.lang import nisa, nl

LARGEST = 32767


def wide_iota(dst, pattern, offset: int, multiplier: int):
    """Write the indices of a pattern of [step, number] with steps of up to 32 bits; dst: [partitions, numbers, 1]."""
    narrow = []
    for pair in pattern:
        narrow.append([0 if pair[1] == 1 or pair[0] > LARGEST else pair[0], pair[1]])
    nisa.iota(dst=dst, pattern=narrow, offset=offset, channel_multiplier=multiplier)
    for d in range(len(pattern)):
        if pattern[d][1] > 1 and pattern[d][0] > LARGEST:
            _add_multiples(dst, pattern, d)


def _add_multiples(dst, pattern, d: int):
    """dst += i_d step_d."""
    index = nl.ndarray(dst.shape, dtype=nl.int32, buffer=nl.sbuf)
    step = nl.ndarray(dst.shape, dtype=nl.int32, buffer=nl.sbuf)
    counts = []
    for e in range(len(pattern)):
        counts.append([1 if e == d else 0, pattern[e][1]])
    nisa.iota(dst=index, pattern=counts, offset=0, channel_multiplier=0)
    nisa.memset(dst=step, value=pattern[d][0])
    nisa.tensor_tensor(dst=index, data1=index, data2=step, op=nl.multiply, engine=nisa.engine.gpsimd)
    nisa.tensor_tensor(dst=dst, data1=dst, data2=index, op=nl.add, engine=nisa.engine.gpsimd)
