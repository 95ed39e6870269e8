"""Estimated times: closed forms at invented rates, their order, and rates that are kept in a file."""

from __future__ import annotations

import numpy as np
import pytest

from tests.contraction.workloads import ladder
from trnqc.contraction import einsum_plan
from trnqc.contraction.cost import rates
from trnqc.contraction.cost.rates import OperationRates, cache_levels, machine_rates
from trnqc.contraction.estimate import nest_seconds, plan_seconds
from trnqc.contraction.memory.fusion_graph import FusedTree
from trnqc.contraction.memory.tiled_loops import TiledLoops

FREE = dict.fromkeys(("call", "multiply_add", "panel", "result", "near", "far", "turned_near", "turned_far"), 0.0)


def test_the_parts_of_an_estimate_add_up():
    plan = einsum_plan("ab,bc,cd->ad", (7, 5), (5, 6), (6, 8))
    assert plan_seconds(plan, OperationRates(**FREE, step=1.0)) == 2
    assert plan_seconds(plan, OperationRates(**FREE | {"multiply_add": 1.0}, step=0.0)) == plan.multiply_adds
    assert plan_seconds(plan, OperationRates(**FREE | {"call": 1.0}, step=0.0)) == 2
    stacked = einsum_plan("xab,xbc->xac", (9, 7, 5), (9, 5, 6))
    assert plan_seconds(stacked, OperationRates(**FREE | {"result": 1.0}, step=0.0)) == 9 * 7 * 6


def test_a_limit_costs_time():
    shapes = ((40, 36, 36), (40, 36, 36), (36, 36, 5, 5))
    plain = einsum_plan("Qae,Qbf,efij->abij", *shapes)
    limited = einsum_plan("Qae,Qbf,efij->abij", *shapes, memory_limit=200_000)
    some = OperationRates(3e-8, 4e-11, 6e-11, 1e-10, 2e-10, 5e-10, 4e-10, 3e-9, 3e-5)
    assert plan_seconds(plain, some) < plan_seconds(limited, some)


@pytest.mark.parametrize("tile", [1, 2, 3, 6])
def test_turns_and_work_of_a_nest(tile):
    """Two steps a turn of the loops over a and b; the work does not depend on the tiles."""
    form = TiledLoops(FusedTree(ladder(2, 6, 5), {"W": frozenset("ab")}))
    nest = form.tiled({"a": tile, "b": tile})
    assert nest_seconds(nest, 2**20, OperationRates(**FREE, step=1.0)) == 2 * (6 // tile) ** 2
    work = nest_seconds(nest, 2**20, OperationRates(**FREE | {"multiply_add": 1.0}, step=0.0))
    assert work == pytest.approx(6**4 * 5 + 6**4 * 4)


def test_rates_are_measured_once(tmp_path, monkeypatch):
    monkeypatch.setenv("TRNQC_CACHE_DIR", str(tmp_path / "trnqc"))
    machine_rates.cache_clear()
    try:
        result = machine_rates()
        assert all(np.isfinite(value) and value >= 0 for value in vars(result).values())
        assert result.multiply_add > 0 and result.step > 0 and result.product(100, 100, 100) > result.product(2, 2, 2)
        machine_rates.cache_clear()
        monkeypatch.setattr(rates, "measured_rates", lambda: pytest.fail("the file was not read"))
        assert machine_rates() == result
        machine_rates.cache_clear()
        other = OperationRates(**FREE, step=1.0)
        monkeypatch.setattr(rates, "measured_rates", lambda: other)
        (file,) = (tmp_path / "trnqc").glob("*.json")
        file.write_text('{"call": ')  # a broken file is a miss
        assert machine_rates() == other
    finally:
        machine_rates.cache_clear()


def test_levels_shrink():
    (_, large), (_, small) = cache_levels()
    assert large > small > 1000
