"""Mutants of CUDA text: what is changed, and that the emulator sees it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from scripts.device import mutants
from tests.jit.test_emulator import inputs, neighbours
from trnqc.gen import statements as st
from trnqc.jit import Recipe

LANES, GROUPS = 4, 3


def shifted(device: mutants.Edited) -> list[np.ndarray]:
    """Sums over neighbours, each lane's in a place of its own."""
    built, given = device.build(Recipe.of(neighbours(st.Barrier())), LANES), inputs(LANES, GROUPS)
    there = {name: device.upload(a) if isinstance(a, np.ndarray) else a for name, a in given.items()}
    device.launch(built, GROUPS, there)
    return [device.download(there["out"])]


@pytest.fixture
def workload(monkeypatch):
    monkeypatch.setitem(mutants.WORKLOADS, "shifted", (shifted, LANES))


def test_every_mutant_is_seen(workload, tmp_path, capsys):
    assert mutants.main(["--workloads", "shifted", "--out", str(tmp_path / "mutants.json")]) == 0
    rows = json.loads((tmp_path / "mutants.json").read_text())["rows"]
    assert sorted(row["change"] for row in rows) == ["atomic made plain"] * 2 + ["barrier removed"]
    assert all(row["seen"] for row in rows) and "barrier removed" in capsys.readouterr().out


def test_a_mutant_that_is_not_seen_needs_a_reason(workload, tmp_path, monkeypatch, capsys):
    """A change that changes nothing stands for one that the emulator misses."""
    pattern, _ = mutants.CHANGES["barrier removed"]
    monkeypatch.setattr(mutants, "CHANGES", {"barrier removed": (pattern, "__syncthreads();")})
    arguments = ["--workloads", "shifted", "--out", str(tmp_path / "mutants.json")]
    assert mutants.main(arguments) == 1
    assert "missed: tried" in capsys.readouterr().out
    monkeypatch.setitem(mutants.REASONS, ("tried", "barrier removed", "syncthreads"), "it is the same text")
    assert mutants.main(arguments) == 0


def test_changes_of_bounds():
    line = "for (long i = 0; i < n; i++) x[(a + 1 < b ? a + 1 : b) * 2] = c < d && e < f ? 1 : 0;"
    found = list(mutants.mutants("mp2", {"k 1": line}))
    assert [m.of(line).count("<=") for m in found] == [1, 1, 1]
    assert found[0].of(line).startswith("for (long i = 0; i <= n; i++)")
    assert "c <= d" in found[1].of(line) and "e <= f" in found[2].of(line)


def test_nan_is_a_difference():
    good, bad = [np.ones(3), np.ones(2)], [np.ones(3), np.array([1.0, np.nan])]
    assert mutants.difference(good, good) == 0.0
    assert mutants.difference([good[0], good[1] + 1e-12], good) == 0.0
    for results in (bad, bad[::-1]):
        assert np.isnan(mutants.difference(results, [np.ones_like(a) for a in results]))
    assert mutants.difference([good[0] * 2, good[1]], good) == 1.0
