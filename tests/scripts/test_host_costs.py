"""Counts of GPU jobs on a driver that does nothing."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("e3nn")

from scripts.device import host_costs
from scripts.device.mace_step import Clock


def test_a_mace_step_launches_our_kernels_and_never_waits():
    """Of each of two layers a convolution, a contraction and the gradients of both; nothing goes through the host."""
    row = host_costs.energy_and_forces("tiny")
    assert row["launches"] == 2 * 4
    assert row["operators of PyTorch"] > 100
    assert not any(row[name] for name in ("uploads", "downloads", "allocations", "waits"))
    assert 0 < row["host_seconds"] < 1
    assert host_costs.BENCHMARK.table("host", [row]).columns[3]._cells == [str(row["operators of PyTorch"])]


def test_operators_of_pytorch_are_not_timed_within_ours(monkeypatch):
    now = iter([0.0, 1.0, 5.0, 7.0, 100.0, 200.0])
    monkeypatch.setattr("time.process_time", lambda: next(now))
    clock = Clock()
    other = clock.other(lambda: None)
    assert clock.of(clock.own(other)) == 7.0 - (5.0 - 1.0)
    assert clock.of(other) == 0.0


def test_bytes_of_a_cycle(monkeypatch):
    monkeypatch.setattr(host_costs, "ROUNDS", 1)
    functions = 7
    there, host = (make("water", "sto-3g") for make in (host_costs.cycle_on_gpu, host_costs.cycle_on_host))
    assert there["orbitals"] == host["orbitals"] == functions
    # Up: eight coefficients of DIIS. Down: orbital energies, five sums, eight products of errors, and a status.
    assert (there["uploads"], there["uploaded_bytes"]) == (1, 8 * 8)
    assert (there["downloads"], there["downloaded_bytes"]) == (3, 8 * (functions + 5 + 8) + 4)
    assert there["eigenproblems"] == 1 and there["moved_bytes"] < host["moved_bytes"]
    # J and K for both, and elements of matrices in eight launches more. Those of J and K are one graph.
    assert there["launches"] == host["launches"] + 8
    assert there["graphs"] == host["graphs"] == 1
    assert host["downloaded_bytes"] >= 8 * functions**2
