"""The scripts for devices, run on a machine without one; only the call of the device itself is replaced."""

from __future__ import annotations

import json
import sys

import pytest

pytest.importorskip("torch", reason="the device scripts launch through torch (extra 'torch')")

from scripts.device import bench_mp2, run_mp2
from trnqc.backends.neuron import packages as neuron_packages

no_device = pytest.mark.skipif(bool(neuron_packages.device_files()), reason="there is a Trainium device here")


def call(script, monkeypatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", [script.__name__, *arguments])
    return script.main(script.BENCHMARK) if script is bench_mp2 else script.main()


def test_a_rehearsed_benchmark_writes_a_record_that_says_so(monkeypatch, tmp_path):
    path = tmp_path / "machine" / "record.json"
    arguments = ["--preset", "tiny", "--simulate", "--repeats", "3", "--warmup", "1", "--out", str(path)]
    assert call(bench_mp2, monkeypatch, *arguments) == 0
    record = json.loads(path.read_text())
    assert record["kind"].startswith("simulated device") and "--preset tiny" in record["command"]
    assert [row["precision"] for row in record["rows"]] == ["fp32", "bf16x3"]
    for row in record["rows"]:
        assert len(row["repeat_seconds"]) == 3
        assert row["median_seconds"] == sorted(row["repeat_seconds"])[1]
        assert row["needed_tflop"] == pytest.approx(160 * 161 * 70 / 1e12)
        assert row["relative_error"] <= bench_mp2.GATE[row["precision"]]
    assert [p.name for p in path.parent.iterdir()] == ["record.json"]


def test_the_gate_stops_before_timing(monkeypatch, capsys):
    monkeypatch.setitem(bench_mp2.GATE, "bf16", 1e-12)
    assert call(bench_mp2, monkeypatch, "--preset", "tiny", "--simulate", "--precision", "bf16") == 2
    assert "nothing was timed" in capsys.readouterr().out


@no_device
@pytest.mark.parametrize("script, arguments", [(bench_mp2, ["--preset", "tiny"]), (run_mp2, ["water"])])
def test_without_a_device_they_say_why(monkeypatch, capsys, script, arguments):
    assert call(script, monkeypatch, *arguments) == 2
    assert "no /dev/neuron* device" in "".join(capsys.readouterr())


def test_a_molecule_passes_or_fails_by_the_tolerance(monkeypatch, tmp_path, capsys):
    path = tmp_path / "result.json"
    arguments = ["water", "--backend", "simulator", "--basis", "sto-3g", "--json", str(path)]
    assert call(run_mp2, monkeypatch, *arguments) == 0
    assert "PASS" in capsys.readouterr().out
    assert json.loads(path.read_text())["run"]["backend"] == "simulator"
    assert call(run_mp2, monkeypatch, *arguments, "--tolerance", "1e-16") == 1
    assert "FAIL" in capsys.readouterr().out
