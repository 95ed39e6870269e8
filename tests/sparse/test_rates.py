"""Rates of the machine: fitted to what probes took, measured once, and used to rank nests."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.sparse.oracle import reference
from tests.sparse.test_solve import make
from trnqc.sparse import api
from trnqc.sparse.run import measured_rates
from trnqc.sparse.run.kernel import compiled
from trnqc.sparse.run.measured_rates import FITTED, fitted, machine_rates
from trnqc.sparse.search.rates import Rates
from trnqc.sparse.search.solve import candidates


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRNQC_CACHE_DIR", str(tmp_path))
    machine_rates.cache_clear()
    yield tmp_path
    machine_rates.cache_clear()


def test_every_probe_computes_its_network():
    for probe in measured_rates._probes():
        net = probe.nest.network
        if math.prod(size for _, size in net.sizes) <= 2**22:
            result = compiled(probe.nest)(probe.operands)
            array = result if isinstance(result, np.ndarray) else result.to_dense()
            expected = reference(net, [x.to_dense() for x in probe.operands])
            np.testing.assert_allclose(array, expected, rtol=1e-12)


def test_every_rate_has_a_probe_in_which_it_counts():
    """Else the defaults' proportions alone would decide it."""
    defaults = np.array([getattr(Rates(), name) for name in FITTED])
    work = np.array([measured_rates._work(probe, Rates()) for probe in measured_rates._probes()]) * defaults
    share = (work / work.sum(axis=1, keepdims=True)).max(axis=0)
    assert dict(zip(FITTED, share >= 0.1)) == dict.fromkeys(FITTED, True)


def test_the_fit_finds_the_rates_of_a_machine():
    """Of one that is three times as slow as the defaults, and six times in lists; each call takes a microsecond."""
    names, rng = list(FITTED), np.random.default_rng(1)
    true = replace(Rates(), **{name: 3 * getattr(Rates(), name) for name in names})
    true = replace(true, listed_update=6 * Rates().listed_update)
    defaults = np.array([getattr(Rates(), name) for name in names])
    work = 1e-3 * rng.dirichlet(np.full(len(names), 0.2), 60) / defaults
    seconds = work @ [getattr(true, name) for name in names] + 1e-6
    rates = fitted(work, seconds * rng.uniform(0.98, 1.02, len(seconds)))
    # The one that stands out is drawn to the others, and they to it.
    assert 4 < rates.pop("listed_update") / Rates().listed_update < 6
    for name, rate in rates.items():
        assert rate == pytest.approx(getattr(true, name), rel=0.2), name


def test_what_the_probes_do_not_tell_keeps_its_proportion():
    work = np.zeros((3, len(FITTED)))
    work[:, 0] = 1e-4 / Rates().dense_turn * np.array([1.0, 10.0, 100.0])
    rates = fitted(work, 2e-4 * np.array([1.0, 10.0, 100.0]))
    assert rates["far"] / Rates().far == pytest.approx(2.0, rel=0.05)


def test_measured_once(cache, monkeypatch):
    rates = machine_rates()
    assert all(math.isfinite(value) and value >= 0 for value in vars(rates).values())
    assert min(rates.row_element, rates.gathered_element, rates.matrix_product) > 0
    assert 0 < rates.first_cache < rates.second_cache
    machine_rates.cache_clear()
    monkeypatch.setattr(measured_rates, "measured_rates", lambda: pytest.fail("the file was not read"))
    assert machine_rates() == rates


def test_without_a_compiler_the_defaults_serve(cache, monkeypatch):
    monkeypatch.setenv("CC", "/nonexistent/cc")
    assert machine_rates() == Rates()
    assert not list(cache.glob("sparse*.json"))


def test_rates_decide_which_nest_is_the_best():
    """With free hash tables and dear arrays, or the other way round."""
    net, operands, _ = make("integrals")
    rates = replace(Rates(), cleared_element=1e-3)
    kept = {candidate.nest: candidate.estimate.seconds for candidate in candidates(net, operands, rates)}
    cheap = {candidate.nest: candidate.estimate.seconds for candidate in candidates(net, operands, Rates())}
    assert min(kept, key=kept.__getitem__) != min(cheap, key=cheap.__getitem__)


def test_dense_matrices_run_where_they_are_estimated_faster(monkeypatch):
    rng = np.random.default_rng(0)
    a, b = rng.random((2, 30, 30))
    for product, form in ((1e-13, "dense"), (1e-6, "fused")):
        monkeypatch.setattr(api, "machine_rates", lambda product=product: replace(Rates(), matrix_product=product))
        assert api.plan("ij,jk->ik", a, b).form == form
