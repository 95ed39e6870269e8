"""Products of matrices on a GPU, whose operands and result are arrays of the host."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np

from trnqc.backends.cuda.formats import DeviceFormat
from trnqc.backends.cuda.packing import Packer
from trnqc.backends.cuda.products import DeviceMatrix, Gpu
from trnqc.backends.cuda.programs import lanes_on
from trnqc.jit.device import DeviceArray

# Bytes of a stack in fp64 that is copied to the GPU at once; matrices of larger stacks are copied one after the other.
STAGING_BYTES = 1 << 28
# Rows of a product with the own transpose that are computed at once, up to the last column that they need.
TRIANGLE_ROWS = 512


def kept(held: ExitStack, gpu: Gpu, memory: DeviceArray) -> DeviceArray:
    """An array of a GPU that is released with `held`."""
    held.callback(gpu.device.release, memory)
    return memory


def product(
    gpu: Gpu, a_t: Any, b: Any, form: DeviceFormat, c: Any = None, alpha: float = 1.0, beta: float = 0.0
) -> np.ndarray:
    """alpha a_t.T @ b + beta c of a_t[K, M], b[K, N] and c[M, N], or those of stacks of them, in a precision."""
    stacks = [np.swapaxes(x, -1, -2).reshape(-1, x.shape[-1], x.shape[-2]) for x in (a_t, b)]
    (count, m, inner), n = stacks[0].shape, stacks[1].shape[1]
    row, parts = form.row(inner), [form.columns(side, inner) for side in (0, 1)]
    with ExitStack() as held:
        memories = [_packed(held, gpu, x, form) for x in stacks]
        out = _result(held, gpu, c, (count, m, n), form)
        left, right = (
            DeviceMatrix(memory, size, part.stop - part.start, row, part.start, form.operand, count, size * row)
            for memory, size, part in zip(memories, (m, n), parts)
        )
        target = DeviceMatrix(out, m, n, n, count=count, step=m * n)
        gpu.products.multiply(left, right, target, transpose=(False, True), alpha=alpha, beta=beta)
        return gpu.device.download(out).reshape(*a_t.shape[:-2], m, n)


def triangle(gpu: Gpu, a_t: Any, form: DeviceFormat, c: Any, alpha: float, beta: float) -> np.ndarray:
    """alpha a_t.T @ a_t + beta c of a_t[K, n] and c[n, n]; elements above the diagonal are undefined.

    Products of panels of rows, on all streams, are the same code for all precisions; the syrk of cuBLAS has no bf16.
    """
    inner, n = a_t.shape
    row, parts = form.row(inner), [form.columns(side, inner) for side in (0, 1)]
    with ExitStack() as held:
        memory = _packed(held, gpu, np.swapaxes(a_t, 0, 1)[None], form)
        out = _result(held, gpu, c, (n, n), form)
        for panel, first in enumerate(range(0, n, TRIANGLE_ROWS)):
            stop = min(first + TRIANGLE_ROWS, n)
            left, right = (
                DeviceMatrix(memory, end - begin, part.stop - part.start, row, begin * row + part.start, form.operand)
                for (begin, end), part in zip(((first, stop), (0, stop)), parts)
            )
            target = DeviceMatrix(out, stop - first, stop, n, first * n)
            stream = panel % gpu.device.streams
            gpu.products.multiply(
                left, right, target, transpose=(False, True), alpha=alpha, beta=beta, stream=stream
            )  # fmt: skip
        return gpu.device.download(out)


def _result(held: ExitStack, gpu: Gpu, c: Any, shape: tuple[int, ...], form: DeviceFormat) -> DeviceArray:
    """Memory for a result, with c in it if there is one."""
    if c is None:
        return kept(held, gpu, gpu.device.zeros(*shape, dtype=form.result))
    return kept(held, gpu, gpu.device.upload(np.ascontiguousarray(c, form.result).reshape(shape)))


def _packed(held: ExitStack, gpu: Gpu, x: np.ndarray, form: DeviceFormat) -> DeviceArray:
    """Rows of x[count, rows, naux] in the format of a precision."""
    if x.size * 8 <= STAGING_BYTES:
        x = x.reshape(1, -1, x.shape[-1])
    count, rows, naux = x.shape
    words = count * form.orbital_bytes(rows, naux) // form.stored.itemsize
    memory = kept(held, gpu, gpu.device.zeros(words, dtype=form.stored))
    with ExitStack() as copying:
        staging = kept(copying, gpu, gpu.device.zeros(rows * naux))
        Packer(gpu.device, form, lanes_on(gpu.device), staging).load(x, slice(0, count), memory)
    return memory
