"""The estimated error holds what it promises."""

from __future__ import annotations

import numpy as np
import pytest

from trnqc.chem.accuracy import estimate_error, pair_energy, sample
from trnqc.types import PairEnergies


@pytest.mark.parametrize("pairs", [1, 2, 9, 10, 11, 55, 703, 100_000])
def test_sample_is_small_spread_and_repeatable(pairs):
    picked = sample(pairs)
    assert len(set(picked.tolist())) == len(picked) == min(pairs, len(picked))
    assert min(10, pairs) <= len(picked) <= 16
    assert picked[0] == 0
    assert picked[-1] == pairs - 1
    np.testing.assert_array_equal(picked, sample(pairs))


def test_pair_energy_is_the_formula(factors_like, formula):
    B, o, v = factors_like(3, 5, 11)
    os, ss = formula(B, o, v)
    for i in range(3):
        for j in range(i + 1):
            np.testing.assert_allclose(pair_energy(B, o, v, i, j), (os[i, j], ss[i, j]), rtol=1e-12, atol=1e-18)


def test_exact_energies_have_only_rounding(factors_like, formula):
    B, o, v = factors_like(6, 7, 13)
    error = estimate_error(PairEnergies(*formula(B, o, v), ran_on="formula"), B, o, v)
    assert 0 < error.corr < 1e-14
    assert (error.sampled, error.pairs) == (10, 21)


def test_where_all_pairs_are_sampled_the_error_is_exact(factors_like, formula):
    B, o, v = factors_like(3, 5, 11)
    os, ss = formula(B, o, v)
    wrong = np.tril(np.random.default_rng(5).normal(0, 1e-6, os.shape))
    error = estimate_error(PairEnergies(os + wrong, ss, ran_on="formula"), B, o, v)
    assert error.os == pytest.approx(abs(wrong.sum()), rel=1e-6)
    assert error.corr == pytest.approx(abs(wrong.sum()), rel=1e-6)
    assert error.ss < 1e-14


@pytest.mark.parametrize("bias", [0.0, 3e-8])
def test_sampled_estimate_covers_the_true_error_mostly(factors_like, formula, bias):
    """Two standard errors and the bias: covered in nearly all of 40 draws, and never wild."""
    B, o, v = factors_like(20, 3, 5)
    os, ss = formula(B, o, v)
    covered = 0
    for seed in range(40):
        wrong = np.tril(np.random.default_rng(seed).normal(bias, 1e-8, os.shape))
        error = estimate_error(PairEnergies(os + wrong, ss, ran_on="formula"), B, o, v)
        covered += abs(wrong.sum()) <= error.os
        assert error.os < 210 * (abs(bias) + 2e-8)
    assert covered >= 36
