"""exp of vectors, beside the extended precision of NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from trnqc.gen import Array, Var
from trnqc.gen import statements as st
from trnqc.gen import values as v
from trnqc.jit import NUMPY, Recipe, library

LANES = {"f64": 8, "f32": 16}


def exponentials(dtype: str, x: np.ndarray) -> np.ndarray:
    """exp of x, whose length is a multiple of the lanes, by the compiled function."""
    n, i = Var("n", "i64"), Var("i", "i64")
    values, results = Array("x", dtype, lanes=True), Array("y", dtype, lanes=True)
    body = st.loop(i, n, st.store(results[i], v.exp(values[i])))
    function = st.Function(f"exponentials_{dtype}", (n, values, results), st.block(body))
    out = np.empty_like(x)
    getattr(library(Recipe.of(function), LANES[dtype]), function.name)(n=len(x) // LANES[dtype], x=x, y=out)
    return out


@pytest.mark.parametrize(("dtype", "least", "most"), [("f64", -708.0, 709.7), ("f32", -87.0, 88.7)])
def test_two_units_in_the_last_place(dtype, least, most):
    x = np.linspace(least, most, 1 << 16).astype(NUMPY[dtype])
    x[:16] = np.geomspace(1e-300 if dtype == "f64" else 1e-30, 1.0, 16)
    exact = np.exp(x.astype(np.longdouble))
    error = np.abs(exponentials(dtype, x).astype(np.longdouble) - exact) / np.spacing(exact.astype(x.dtype))
    assert error.max() < 2


@pytest.mark.parametrize("dtype", ["f64", "f32"])
def test_ends(dtype):
    special = np.array([0.0, -0.0, -np.inf, np.inf, np.nan, -1e30, 1e30, -1e3], NUMPY[dtype])
    results = exponentials(dtype, np.resize(special, LANES[dtype]))[: len(special)]
    assert np.array_equal(results, np.array([1, 1, 0, np.inf, np.nan, 0, np.inf, 0], NUMPY[dtype]), equal_nan=True)
