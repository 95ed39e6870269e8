"""Sums that do not depend on the order of their terms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from tests.eri.test_jk import density, molecule
from tests.mp2.thread_ranks import on_threads, same
from trnqc.eri.api import get_jk
from trnqc.eri.jk.builder import JKBuilder
from trnqc.eri.jk.exact_sums import ExactSum, Terms
from trnqc.eri.jk.run import JKPass


def summed(terms, bound, order, threads=1):
    total = ExactSum(terms[0].shape, bound)
    ways = [Terms(total) for _ in range(threads)]
    for n, k in enumerate(order):
        way = ways[n % threads]
        way.array += terms[k]
        way.flush()
        assert not way.array.any()
    return total.value()


@given(seed=some.integers(0, 10**6), count=some.integers(1, 40), scale=some.integers(-30, 30))
def test_any_order_gives_the_same_bits(seed, count, scale):
    rng = np.random.default_rng(seed)
    terms = [rng.normal(size=(2, 3)) * [[10.0**scale], [1.0]] * 10.0 ** rng.integers(-9, 9) for _ in range(count)]
    bound = np.sum(np.abs(terms), axis=0).max(axis=1)
    first, second = (summed(terms, bound, rng.permutation(count), threads) for threads in (1, 3))
    np.testing.assert_array_equal(first, second)
    assert np.abs(first - np.sum(terms, axis=0)).max(axis=1) == pytest.approx(
        0, abs=1e-300 + 1e-15 * count * bound.max()
    )


def test_a_bound_of_nothing_is_fine():
    assert not summed([np.zeros((1, 2))], np.zeros(1), [0]).any()


@pytest.mark.parametrize("count, hermi, sign", [(2, 1, 1), (1, 0, 0), (2, 1, 0)])
def test_j_and_k_have_the_same_bits_on_any_number_of_threads(count, hermi, sign):
    mol = molecule("sto-3g", "O 0 0 0.1; H 0 0.75 -0.45; H 0 -0.7 -0.5; O 3 0 0; H 3 0.8 0.5; H 3 -0.8 0.5")
    dm = density(mol, count, sign=sign)
    dm[0] *= 1e9
    one, *more = (get_jk(mol, dm, hermi, threads=n) for n in (1, 2, 3))
    for other in more:
        np.testing.assert_array_equal(one, other)


def test_j_and_k_of_a_general_density_have_the_same_bits_on_any_number_of_ranks():
    mol = molecule("sto-3g")
    dm = density(mol, sign=0)
    results = on_threads(3, lambda ranks: np.array(get_jk(mol, dm, 1, threads=1, ranks=ranks)))
    np.testing.assert_array_equal(same(results), get_jk(mol, dm, 1, threads=2))


@pytest.mark.parametrize("atom", ["He 0 0 0", "O 0 0 0.1; H 0 0.75 -0.45; H 0 -0.7 -0.5"])
def test_no_sum_exceeds_its_bound(monkeypatch, atom):
    mol, kept = molecule("6-31g", atom), []
    bounds = JKPass.bounds
    monkeypatch.setattr(JKPass, "bounds", lambda *arguments: kept.append(bounds(*arguments)) or kept[-1])
    builder = JKBuilder(mol, threads=1)
    summed = builder._summed
    monkeypatch.setattr(builder, "_summed", lambda *arguments: kept.append(summed(*arguments)) or kept[-1])
    builder.get_jk(np.abs(density(mol, 1)))  # all of one sign
    for bound, total in zip(*kept):
        assert 0 < np.abs(total).max() <= bound[0] / 8
