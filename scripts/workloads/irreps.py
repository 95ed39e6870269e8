"""Tensors over orbitals of D2h that are sorted by irreducible representations."""

from __future__ import annotations

import numpy as np

# Irreducible representations, whose products are bit by bit.
COUNT = 8


def irreps(each: int) -> tuple[np.ndarray, np.ndarray]:
    """A tensor [p, q, r, s] as two-electron integrals, and a matrix as orbital coefficients, of random numbers.

    Elements whose representations do not multiply to the total one are zero. Each has so many orbitals.
    """
    draw, own = np.random.default_rng(2), np.repeat(np.arange(COUNT), each)
    product = own[:, None, None, None] ^ own[:, None, None] ^ own[:, None] ^ own
    n = COUNT * each
    return draw.random((n,) * 4) * (product == 0), draw.random((n, n)) * (own[:, None] == own)
