"""The MP2 benchmark for GPUs, on a simulated device."""

from __future__ import annotations

import json

import pytest

from scripts.device import bench_mp2_cuda
from trnqc import backends


def test_a_simulated_run_writes_a_record_that_says_so(tmp_path, capsys):
    path = tmp_path / "record.json"
    arguments = ["--preset", "tiny", "--simulate", "--repeats", "3", "--dollars-per-hour", "2", "--out", str(path)]
    assert bench_mp2_cuda.main(arguments) == 0
    record = json.loads(path.read_text())
    assert record["kind"].startswith("simulated")
    assert [row["precision"] for row in record["rows"]] == ["fp64", "fp32", "bf16x3"]
    for row in record["rows"]:
        assert len(row["repeat_seconds"]) == 3
        assert row["per_hour"] == pytest.approx(3600 / row["median_seconds"])
        assert row["per_dollar"] == pytest.approx(row["per_hour"] / 2)
    assert "bf16x3" in capsys.readouterr().out


def test_the_published_row_stands_beside():
    (row,) = bench_mp2_cuda.published(["tiny", "medium"])
    assert (row["per_hour"], row["per_dollar"]) == pytest.approx((3600 / 0.266, 3600 / 0.266 / 1.006))
    (doubled,) = bench_mp2_cuda.published(["medium"], 2 * bench_mp2_cuda.A10G_DOLLARS)
    assert doubled["per_dollar"] == row["per_dollar"] / 2


def test_the_gate_stops_before_timing(monkeypatch, capsys):
    monkeypatch.setitem(bench_mp2_cuda.GATE, "bf16", 1e-12)
    assert bench_mp2_cuda.main(["--preset", "tiny", "--simulate", "--precision", "bf16"]) == 2
    assert "nothing was timed" in capsys.readouterr().out


@pytest.mark.skipif(backends.statuses()["cuda"].usable, reason="there is a GPU here")
def test_without_a_gpu_it_says_why(capsys):
    assert bench_mp2_cuda.main(["--preset", "tiny"]) == 2
    assert "pip install 'trnqc[cuda]'" in capsys.readouterr().out
