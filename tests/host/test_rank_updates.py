"""Symmetric rank-k updates, beside NumPy's products."""

from __future__ import annotations

import numpy as np
import pytest

from trnqc.host.rank_updates import add_product, add_products


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("n", "k"), [(1, 1), (5, 3), (97, 211), (0, 4), (4, 0)])
def test_lower_triangles(n, k, dtype):
    rng = np.random.default_rng(n)
    a, b = rng.normal(size=(2, n, k)).astype(dtype)
    start = rng.normal(size=(n, n)).astype(dtype)
    one, two = start.copy(), start.copy()
    add_product(one, a, -0.5)
    add_products(two, a, b)
    tolerance = 100 * np.finfo(dtype).eps
    np.testing.assert_allclose(np.tril(one), np.tril(start - 0.5 * a @ a.T), rtol=0, atol=tolerance)
    np.testing.assert_allclose(np.tril(two), np.tril(start + a @ b.T + b @ a.T), rtol=0, atol=tolerance)
    assert np.array_equal(np.triu(one, 1), np.triu(start, 1))
