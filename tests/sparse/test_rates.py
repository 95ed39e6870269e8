"""Rates of the machine: fitted to the times of probes, measured in the background, and used to rank nests."""

from __future__ import annotations

import math
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from tests.sparse.oracle import reference
from tests.sparse.test_solve import make
from trnqc.errors import InputError
from trnqc.host.rates import read_rates
from trnqc.sparse import api
from trnqc.sparse.run import machine_rates as rates_of_machine
from trnqc.sparse.run import measured_rates
from trnqc.sparse.run.kernel import compiled
from trnqc.sparse.run.machine_rates import is_plausible, machine_rates, measure_and_keep
from trnqc.sparse.run.measured_rates import FITTED, fitted
from trnqc.sparse.run.probes import probes
from trnqc.sparse.search.rates import WorkRates
from trnqc.sparse.search.shipped_rates import SHIPPED, shipped_rates
from trnqc.sparse.search.solve import candidates


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache directory, in which no process measures."""
    monkeypatch.setenv("TRNQC_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRNQC_KERNELS", "background")
    monkeypatch.setattr(rates_of_machine, "_start", lambda: None)
    machine_rates.cache_clear()
    yield tmp_path
    machine_rates.cache_clear()


@pytest.fixture
def measured(monkeypatch):
    """A machine twice as slow as the shipped ones, whose measurement takes no time."""

    def measure(known):
        return replace(known, source="measured", **{name: 2 * getattr(known, name) for name in FITTED})

    monkeypatch.setattr(measured_rates, "measured_rates", measure)


def test_every_probe_computes_its_network():
    for probe in probes():
        net = probe.nest.network
        if math.prod(size for _, size in net.sizes) <= 2**22:
            result = compiled(probe.nest)(probe.operands)
            array = result if isinstance(result, np.ndarray) else result.to_dense()
            expected = reference(net, [x.to_dense() for x in probe.operands])
            np.testing.assert_allclose(array, expected, rtol=1e-12)


def test_every_rate_has_a_probe_in_which_it_counts():
    """Else the defaults' proportions alone would decide it."""
    defaults = np.array([getattr(WorkRates(), name) for name in FITTED])
    work = np.array([measured_rates._work(probe, WorkRates()) for probe in probes()]) * defaults
    share = (work / work.sum(axis=1, keepdims=True)).max(axis=0)
    assert dict(zip(FITTED, share >= 0.1)) == dict.fromkeys(FITTED, True)


def test_the_fit_finds_the_rates_of_a_machine():
    """Of one that is three times as slow as the defaults, and six times in lists; each call takes a microsecond."""
    names, rng = list(FITTED), np.random.default_rng(1)
    true = replace(WorkRates(), **{name: 3 * getattr(WorkRates(), name) for name in names})
    true = replace(true, listed_update=6 * WorkRates().listed_update)
    defaults = np.array([getattr(WorkRates(), name) for name in names])
    work = 1e-3 * rng.dirichlet(np.full(len(names), 0.2), 60) / defaults
    seconds = work @ [getattr(true, name) for name in names] + 1e-6
    rates = fitted(work, seconds * rng.uniform(0.98, 1.02, len(seconds)))
    # The one that stands out is drawn to the others, and they to it.
    assert 4 < rates.pop("listed_update") / WorkRates().listed_update < 6
    for name, rate in rates.items():
        assert rate == pytest.approx(getattr(true, name), rel=0.2), name


def test_what_the_probes_do_not_tell_keeps_its_proportion():
    work = np.zeros((3, len(FITTED)))
    work[:, 0] = 1e-4 / WorkRates().dense_turn * np.array([1.0, 10.0, 100.0])
    rates = fitted(work, 2e-4 * np.array([1.0, 10.0, 100.0]))
    assert rates["far"] / WorkRates().far == pytest.approx(2.0, rel=0.05)


def test_the_first_process_uses_shipped_rates_and_the_next_one_those_measured_meanwhile(cache, measured, monkeypatch):
    started = []
    monkeypatch.setattr(rates_of_machine, "_start", lambda: started.append(1))
    assert machine_rates().source.startswith("shipped")
    measure_and_keep()
    assert machine_rates().source.startswith("shipped"), "the plans of a process all use the same rates"
    machine_rates.cache_clear()
    assert machine_rates().source == "measured"
    assert len(started) == 1


def test_a_second_process_does_not_measure_beside_the_first(cache, monkeypatch):
    started = []
    monkeypatch.setattr(rates_of_machine, "_start", lambda: started.append(1))
    for _ in range(2):
        machine_rates.cache_clear()
        machine_rates()
    assert len(started) == 1
    monkeypatch.setattr(rates_of_machine, "RETRY", 0.0)
    machine_rates.cache_clear()
    machine_rates()
    assert len(started) == 2


@pytest.mark.parametrize(("word", "source"), [("wait", "measured"), ("cached", "shipped")])
def test_a_process_may_wait_for_the_measurement_or_refuse_it(cache, measured, monkeypatch, word, source):
    monkeypatch.setenv("TRNQC_KERNELS", word)
    assert machine_rates().source.startswith(source)
    assert len(list(cache.glob("sparse*.json"))) == (word == "wait")


def test_an_unknown_word_is_an_error(cache, monkeypatch):
    monkeypatch.setenv("TRNQC_KERNELS", "later")
    with pytest.raises(InputError, match="background, wait, cached, found 'later'"):
        machine_rates()


@pytest.mark.parametrize(
    "text", ['{"far": ', '{"row_element": 1e-3}', '{"far": NaN}', '{"far": "fast"}', '{"far": -1.0}']
)
def test_implausible_rates_are_measured_again(cache, measured, monkeypatch, text):
    measure_and_keep()
    (file,) = cache.glob("sparse*.json")
    file.write_text(text)
    assert machine_rates().source.startswith("shipped")
    measure_and_keep()
    assert read_rates(file, WorkRates).source == "measured"


def test_a_disturbed_measurement_is_repeated_and_at_last_given_up(cache, measured, monkeypatch):
    calm, calls = measured_rates.measured_rates, []

    def disturbed(known):
        calls.append(known)
        return calm(known) if len(calls) == 3 else None

    monkeypatch.setattr(rates_of_machine, "PAUSE", 0.0)
    monkeypatch.setattr(measured_rates, "measured_rates", disturbed)
    assert measure_and_keep(attempts=2) is None
    assert not list(cache.glob("sparse*.json"))
    assert measure_and_keep(attempts=2).source == "measured"


def test_times_that_differ_between_two_rounds_are_a_disturbance(monkeypatch):
    """Each call of a work is twice as slow as that before."""
    seconds = iter(1e-3 * 2.0**n for n in range(1000))
    monkeypatch.setattr(measured_rates, "_least", lambda work: next(seconds))
    monkeypatch.setattr(measured_rates, "_compiled", lambda chosen: [None] * 3)
    assert measured_rates.measured_rates(WorkRates()) is None


def test_a_process_measures_this_machine(tmp_path, monkeypatch):
    """In the background, as for users. On a busy machine it may find no calm time, and keeps nothing."""
    monkeypatch.setenv("TRNQC_CACHE_DIR", str(tmp_path))
    rates_of_machine._start()
    process = rates_of_machine._processes.pop()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    files = list(tmp_path.glob("sparse*.json"))
    if not files:
        pytest.skip("other programs disturb measurements")
    rates = read_rates(files[0], WorkRates)
    assert rates.source.startswith("measured on this machine")
    assert is_plausible(rates, SHIPPED[64])
    assert 0 < rates.first_cache < rates.second_cache


@pytest.mark.parametrize(("length", "closest"), [(64, 64), (32, 32), (16, 32), (0, 32)])
def test_shipped_rates_are_those_of_the_closest_vectors(length, closest):
    assert shipped_rates(length) is SHIPPED[closest]
    assert is_plausible(SHIPPED[closest], SHIPPED[32])


def test_without_a_compiler_the_defaults_serve(cache, monkeypatch):
    monkeypatch.setenv("CC", "/nonexistent/cc")
    assert machine_rates() == WorkRates()
    assert not list(cache.glob("sparse*.json"))


def test_a_plan_says_which_rates_it_used():
    plan = api.plan("ij,j->i", np.eye(3), np.ones(3), form="fused")
    assert f"rates: {WorkRates().source}" in str(plan)
    assert f"rates: {WorkRates().source}" in str(api.plan("ij,j->i", np.eye(3), np.ones(3), form=plan.steps[0].nest))


def test_rates_decide_which_nest_is_the_best():
    """With free hash tables and dear arrays, or the other way round."""
    net, operands, _ = make("integrals")
    rates = replace(WorkRates(), cleared_element=1e-3)
    kept = {candidate.nest: candidate.estimate.seconds for candidate in candidates(net, operands, rates)}
    cheap = {candidate.nest: candidate.estimate.seconds for candidate in candidates(net, operands, WorkRates())}
    assert min(kept, key=kept.__getitem__) != min(cheap, key=cheap.__getitem__)


def test_dense_matrices_run_where_they_are_estimated_faster(monkeypatch):
    rng = np.random.default_rng(0)
    a, b = rng.random((2, 120, 120))
    for product, form in ((1e-13, "dense"), (1e-6, "fused")):
        monkeypatch.setattr(api, "machine_rates", lambda product=product: replace(WorkRates(), matrix_product=product))
        assert api.plan("ij,jk->ik", a, b).form == form
