"""Tensors made for benchmarks have the statistics that they promise."""

from __future__ import annotations

import numpy as np
import pytest

from examples.data.sparse_tensors import fibred, skewed
from trnqc.errors import InputError


def test_as_many_elements_as_asked_for_and_the_same_each_time():
    first, again = skewed((40, 30, 50), 5000), skewed((40, 30, 50), 5000)
    assert first.check().nnz == 5000
    for a, b in zip(first.to_coo(), again.to_coo(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert np.abs(skewed((40, 30, 50), 5000, seed=1).to_dense() - first.to_dense()).max() > 1


@pytest.mark.parametrize("exponent", [2.0, 3.0])
def test_coordinates_follow_the_power_law(exponent):
    coordinates, values = skewed((10**6, 10**6), 40_000, exponent).to_coo()
    for row in coordinates:
        for share in (0.01, 0.1, 0.5):
            expected = share ** (1 / exponent)
            assert abs(np.mean(row < share * 10**6) - expected) < 5 * (expected / 40_000) ** 0.5
    assert abs(values.mean()) < 0.03
    assert abs(values.std() - 1) < 0.03


def test_modes_may_follow_different_laws():
    coordinates, _ = skewed((10**6, 10**6), 40_000, (1.0, 3.0)).to_coo()
    for row, exponent in zip(coordinates, (1.0, 3.0), strict=True):
        expected = 0.1 ** (1 / exponent)
        assert abs(np.mean(row < 10**5) - expected) < 5 * (expected / 40_000) ** 0.5


def test_half_of_all_elements_can_be_drawn():
    assert skewed((5, 6), 15).nnz == 15
    with pytest.raises(InputError, match="at most half of 30 elements can be drawn; found 16"):
        skewed((5, 6), 16)


def test_lengths_of_fibres_follow_zipf():
    tensor = fibred((500, 400, 28818), 4000).check()
    coordinates, _ = tensor.to_coo()
    lengths = np.unique(coordinates[0] * 400 + coordinates[1], return_counts=True)[1]
    assert len(lengths) == tensor.nonzeros((0, 1)) == 4000
    assert lengths.max() <= 1000
    assert 50 < lengths.mean() < 75
    # P(1) = 1 / zeta(1.45), and every doubling of the length divides the tail by 2^0.45.
    assert abs(np.mean(lengths == 1) - 0.356) < 0.03
    assert abs(np.mean(lengths >= 200) / np.mean(lengths >= 100) - 2**-0.45) < 0.1
