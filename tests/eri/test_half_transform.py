"""The compiled half transformation beside NumPy's products of unpacked matrices."""

from __future__ import annotations

import numpy as np
import pytest
from pyscf import lib

from trnqc.eri.fitting.half_transform import ROWS, TILE, HalfTransform

# Rounding of sums of some hundred terms of magnitude one.
TOLERANCE = {"float64": 1e-12, "float32": 1e-3}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("nocc", [1, 7, 16, 41], ids=lambda n: f"{n} orbitals")
@pytest.mark.parametrize(
    "nao", [1, ROWS - 1, ROWS, 2 * ROWS + 1, TILE, TILE + ROWS + 1, 2 * TILE + 5], ids=lambda n: f"nao {n}"
)
def test_transformed_matrices_and_traces(nao, nocc, dtype):
    rng = np.random.default_rng(nao + nocc)
    rows = rng.standard_normal((3, nao * (nao + 1) // 2)).astype(dtype)
    orbitals = rng.standard_normal((nao, nocc)).astype(dtype)
    half = np.empty((nao, 3, nocc), dtype)
    traces = HalfTransform(orbitals)(rows, half)

    expected = np.einsum("qij,jm->iqm", lib.unpack_tril(rows.astype(float)), orbitals.astype(float))
    size = np.abs(expected).max()
    np.testing.assert_allclose(half, expected, rtol=0, atol=TOLERANCE[dtype] * size)
    expected = np.einsum("iqm,im->q", expected, orbitals.astype(float))
    np.testing.assert_allclose(traces, expected, rtol=0, atol=TOLERANCE[dtype] * np.abs(expected).max())


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_other_columns_are_not_written(dtype):
    orbitals = np.ones((3, 5), dtype)
    half = np.full((3, 4, 5), -1.0, dtype)
    HalfTransform(orbitals)(np.ones((2, 6), dtype), half, 1)
    assert (half[:, [0, 3]] == -1).all()
    assert (half[:, 1:3] == 3).all()


def test_no_orbitals():
    matrix = np.ones((4, 0))
    HalfTransform(matrix)(np.ones((2, 10)), np.empty((4, 2, 0)))
