"""Products that are added in place, beside NumPy's products."""

from __future__ import annotations

import numpy as np
import pytest

from trnqc.host.rank_updates import add_general_product, add_product, add_products


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


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (5, 7, 3), (64, 97, 111), (0, 3, 4), (3, 4, 0)])
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
def test_products_of_blocks(m, n, k, dtype, transposed):
    rng = np.random.default_rng(m + n)
    shapes = (m, k), (k, n)
    a, b = (
        rng.normal(size=(4 + shape[flip], 3 + shape[1 - flip])).astype(dtype)[4:, 3:]
        for shape, flip in zip(shapes, transposed)
    )
    a, b = (x.T if flip else x for x, flip in zip((a, b), transposed))
    whole = rng.normal(size=(m, n + 2)).astype(dtype)
    expected = whole.copy()
    expected[:, 1:-1] += a @ b
    add_general_product(whole[:, 1:-1], a, b)
    np.testing.assert_allclose(whole, expected, rtol=0, atol=200 * np.finfo(dtype).eps)


def test_axes_of_one_element_may_have_any_stride():
    vector, other = np.arange(1.0, 4.0), np.arange(2.0, 6.0)
    outer, row, column = np.zeros((3, 4)), np.zeros((1, 4)), np.zeros((3, 1))
    add_general_product(outer, vector[:, None], other[None])
    np.testing.assert_array_equal(outer, np.outer(vector, other))
    add_general_product(row, vector[None], outer)
    np.testing.assert_array_equal(row, [vector @ outer])
    add_general_product(column, outer, other[:, None])
    np.testing.assert_array_equal(column[:, 0], outer @ other)
