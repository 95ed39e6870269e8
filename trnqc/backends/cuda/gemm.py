"""Single products of matrices on a GPU, whose operands and result are arrays of the host."""

from __future__ import annotations

import numpy as np

from trnqc.backends.cuda.formats import DeviceFormat
from trnqc.backends.cuda.packing import Packer
from trnqc.backends.cuda.products import Gpu, Matrix
from trnqc.backends.cuda.programs import lanes_on
from trnqc.jit.device import DeviceArray


def product(gpu: Gpu, a_t: np.ndarray, b: np.ndarray, form: DeviceFormat) -> np.ndarray:
    """The product a_t.T @ b of a_t[K, M] and b[K, N], or those of stacks of them, in a precision."""
    device, inner, row = gpu.device, a_t.shape[-2], form.row(a_t.shape[-2])
    stacks = [np.swapaxes(x, -1, -2).reshape(-1, x.shape[-1], inner) for x in (a_t, b)]
    (count, m, _), n = stacks[0].shape, stacks[1].shape[1]
    operands = [_packed(gpu, x, form) for x in stacks]
    out = device.zeros(count, m, n, dtype=form.result)
    parts = [form.columns(side, inner) for side in (0, 1)]
    for z in range(count):
        left, right = (
            Matrix(memory, size, part.stop - part.start, row, z * size * row + part.start, form.operand)
            for memory, size, part in zip(operands, (m, n), parts)
        )
        gpu.products.multiply(left, right, Matrix(out, m, n, n, z * m * n), transpose=(False, True))
    result = device.download(out)
    device.release(out, *operands)
    return result.reshape(*a_t.shape[:-2], m, n)


def _packed(gpu: Gpu, x: np.ndarray, form: DeviceFormat) -> DeviceArray:
    """Rows of x[count, rows, naux] in the format of a precision."""
    count, rows, naux = x.shape
    words = count * form.orbital_bytes(rows, naux) // form.stored.itemsize
    memory, staging = gpu.device.zeros(words, dtype=form.stored), gpu.device.zeros(rows * naux)
    Packer(gpu.device, form, lanes_on(gpu.device), staging).load(x, slice(0, count), memory)
    gpu.device.release(staging)
    return memory
