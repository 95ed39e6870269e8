"""The estimated error bounds the true error."""

from __future__ import annotations

import numpy as np
import pytest

from trnqc.errors import PrecisionError
from trnqc.mp2.factors.factors import Factors
from trnqc.mp2.pairs.accuracy import (
    SAMPLE,
    ErrorEstimate,
    estimate_error,
    pair_energy,
    require_promise,
    sample,
)
from trnqc.mp2.pairs.sectors import PairSector
from trnqc.types import PairEnergies


@pytest.mark.parametrize("pairs", [1, 2, 23, 24, 25, 55, 703])
def test_sample_is_small_repeatable_and_follows_the_weights(pairs):
    weights = np.random.default_rng(pairs).random(pairs) ** 4 + 0.01
    picked = sample(weights)
    assert len(picked) == min(pairs, SAMPLE)
    np.testing.assert_array_equal(picked, sample(weights))
    if pairs <= SAMPLE:
        assert picked.tolist() == list(range(pairs))
    else:
        assert weights[picked].mean() > weights.mean()


def test_pairs_without_energy_can_be_sampled(factors_like):
    """Pairs of nothing, reported as a little."""
    B, o, v = factors_like(8, 2, 3)
    wrong = np.tril(np.full((8, 8), 1e-7))
    for reported in (wrong, 0 * wrong):
        error = estimate_error(
            [PairEnergies(reported, 0 * wrong, ran_on="formula")], [PairSector(Factors(0 * B, o, v))]
        )
        assert error.os == pytest.approx(reported.sum(), rel=1e-6)


def test_pair_energy_is_the_formula(factors_like, formula):
    B, o, v = factors_like(3, 5, 11)
    os, ss = formula(B, o, v)
    for i in range(3):
        for j in range(i + 1):
            np.testing.assert_allclose(pair_energy(B, o, v, i, j), (os[i, j], ss[i, j]), rtol=1e-12, atol=1e-18)


def test_exact_energies_have_only_rounding(factors_like, formula):
    B, o, v = factors_like(8, 7, 13)
    error = estimate_error([PairEnergies(*formula(B, o, v), ran_on="formula")], [PairSector(Factors(B, o, v))])
    assert 0 < error.corr < 1e-14
    assert 12 <= error.sampled <= 24
    assert error.pairs == 36


def test_where_all_pairs_are_sampled_the_error_is_exact(factors_like, formula):
    B, o, v = factors_like(3, 5, 11)
    os, ss = formula(B, o, v)
    wrong = np.tril(np.random.default_rng(5).normal(0, 1e-6, os.shape))
    error = estimate_error([PairEnergies(os + wrong, ss, ran_on="formula")], [PairSector(Factors(B, o, v))])
    assert error.os == pytest.approx(abs(wrong.sum()), rel=1e-6)
    assert error.corr == pytest.approx(abs(wrong.sum()), rel=1e-6)
    assert error.ss < 1e-14


@pytest.mark.parametrize("bias", [0.0, 3e-8, 1e-6])
def test_sampled_estimate_covers_the_true_error_mostly(factors_like, formula, bias):
    """Two standard errors beyond the mean: covered in most of 40 draws, never wild. Errors relative to the energy."""
    covered = 0
    for seed in range(40):
        B, o, v = factors_like(20, 3, 5, seed)
        os, ss = formula(B, o, v)
        wrong = os * np.random.default_rng(seed).normal(bias, 1e-7, os.shape)
        error = estimate_error([PairEnergies(os + wrong, ss, ran_on="formula")], [PairSector(Factors(B, o, v))])
        covered += abs(wrong.sum()) <= error.os
        assert error.os < abs(os.sum()) * (2 * bias + 1.5e-7)
    assert covered >= 36


@pytest.mark.parametrize(
    ("error", "energy", "sampled", "refused"),
    [
        *[(0.9e-6, -0.3, 10, False), (1.1e-6, -0.3, 10, True), (3.9e-6, -0.3, 5, False), (4.1e-6, -0.3, 5, True)],
        *[(7e-6, -2.0, 5, False), (9e-6, -2.0, 5, True), (float("nan"), -1.0, 5, True)],
    ],
)
def test_the_error_of_a_result_may_not_exceed_what_its_precision_promises(error, energy, sampled, refused):
    """That of all pairs is compared as it is, an estimate with its margin; a spin part counts like the sum."""
    estimate = ErrorEstimate(0.0, 0.0, error, sampled, 10)
    for precision in ("fp32", "bf16x3"):
        if refused:
            with pytest.raises(PrecisionError, match=f"{precision}' promises .* {sampled} of 10 pairs"):
                require_promise(estimate, energy, precision, "a device")
        else:
            require_promise(estimate, energy, precision, "a device")
    require_promise(ErrorEstimate(1e-3, 1e-3, 0.0, 5, 10), energy, "bf16", "a device")
