"""Products of packed matrices against NumPy, at sizes at which tiles and panels end differently."""

from __future__ import annotations

import numpy as np
import pytest

from trnqc import jit
from trnqc.host.arrays import empty
from trnqc.mace.gemm import RegisterTile, pack, product

# Rows, depth and columns of a product.
SIZES = {
    "one": (1, 1, 1),
    "below a vector": (3, 5, 3),
    "one tile": (12, 7, 32),
    "one more than a tile": (13, 8, 33),
    "tiles of every size": (12 + 4 + 3, 10, 80),
    "a prime": (37, 17, 101),
    "sums of sums": (5, 67, 33),
}
# Relative errors of sums of at most 67 positive products.
TOLERANCE = {"f32": 1e-6, "f64": 2e-15}
NUMPY = {"f32": np.float32, "f64": np.float64}


@pytest.fixture(scope="module", params=["f32", "f64"])
def programs(request):
    tile = RegisterTile.of(jit.find_compiler(), request.param)
    functions = [product(tile, request.param, accumulate) for accumulate in (False, True)]
    library = jit.library(jit.Recipe.of(*functions, name="test-gemm"), lanes=tile.lanes)
    return request.param, tile, [getattr(library, f.name) for f in functions]


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("columns_first", [False, True])
def test_products_are_numpys(programs, size, columns_first):
    dtype, tile, (multiply, add) = programs
    (m, k, n), rng = size, np.random.default_rng(1)
    vectors = tile.vectors_of(n)
    # a has two unused columns; c is stored with the vector or with the row as the slow index.
    a, b = rng.random((m, k + 2)).astype(NUMPY[dtype]), rng.random((k, n)).astype(NUMPY[dtype])
    c = empty((vectors, m, tile.lanes) if columns_first else (m, vectors, tile.lanes), NUMPY[dtype])
    strides = {"c_row": 1, "c_vector": m} if columns_first else {"c_row": vectors, "c_vector": 1}
    arguments = {"m": m, "k": k, "vectors": vectors, "a": a, "a_row": k + 2, "b": pack(b, tile), "c": c, **strides}
    multiply(**arguments)
    exact = a[:, :k].astype(np.float64) @ b.astype(np.float64)
    for times, call in ((1, None), (2, add)):
        if call:
            call(**arguments)
        rows = (c.swapaxes(0, 1) if columns_first else c).reshape(m, -1)
        np.testing.assert_allclose(rows[:, :n], times * exact, rtol=TOLERANCE[dtype])
        assert not rows[:, n:].any()


def test_rounding_errors_of_float32_are_those_of_short_sums(programs):
    """The error of a sum of 512 random numbers is that of sums of 32, 3.4e-8 sqrt(16), and not 3.4e-8 sqrt(256)."""
    dtype, tile, (multiply, _) = programs
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(12, 512)).astype(NUMPY[dtype]), rng.normal(size=(512, tile.width)).astype(NUMPY[dtype])
    c = empty((12, tile.vectors, tile.lanes), NUMPY[dtype])
    shape = {"vectors": tile.vectors, "a_row": 512, "c_row": tile.vectors, "c_vector": 1}
    multiply(m=12, k=512, a=a, b=pack(b, tile), c=c, **shape)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    error = np.sqrt(np.mean((c.reshape(12, -1) - exact) ** 2) / np.mean(exact**2))
    assert error < (2.5e-7 if dtype == "f32" else 1e-15)


def test_a_row_has_the_same_bits_in_any_tile(programs):
    dtype, tile, (multiply, _) = programs
    rng = np.random.default_rng(2)
    a, b = rng.random((15, 9)).astype(NUMPY[dtype]), pack(rng.random((9, tile.width)).astype(NUMPY[dtype]), tile)
    together = np.zeros((15, tile.vectors, tile.lanes), NUMPY[dtype])
    alone = np.zeros_like(together)
    shape = {"k": 9, "vectors": tile.vectors, "a_row": 9, "b": b, "c_row": tile.vectors, "c_vector": 1}
    multiply(m=15, a=a, c=together, **shape)
    for row in range(15):
        multiply(m=1, a=a[row : row + 1], c=alone[row : row + 1], **shape)
    assert np.array_equal(together, alone)
