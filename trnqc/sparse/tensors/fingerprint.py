"""What plans read of an operand, in a few bytes.

A plan depends on where elements are stored, and not on their values, except that 0/1 maps are told from other tensors
and zeros of a dense last level are not counted. Operands with equal fingerprints have equal plans.
"""

from __future__ import annotations

from hashlib import sha256

import numpy as np

from trnqc.sparse.tensors.levels import Dense
from trnqc.sparse.tensors.storage import SparseTensor

Fingerprint = tuple[tuple[int, ...], tuple[int, ...], bool, bytes]


def fingerprint(tensor: SparseTensor) -> Fingerprint:
    """Return shape, order of the levels, whether all elements are 1, and a hash of the stored coordinates."""
    read = sha256(" ".join(tensor.kinds).encode())
    for level in tensor.levels:
        if not isinstance(level, Dense):
            read.update(np.ascontiguousarray(level.positions).data)
            read.update(np.ascontiguousarray(level.coordinates).data)
    if tensor.values is not None and "compressed" not in tensor.kinds[-1:] and tensor.nnz < tensor.size:
        read.update(np.packbits(tensor.values != 0).data)
    return tensor.shape, tensor.order, tensor.ones, read.digest()
