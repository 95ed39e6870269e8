from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_quick_run(tmp_path):
    """Speed is not judged: only that both sides run, agree, and are reported with what they ran on."""
    out = tmp_path / "bench.json"
    command = [sys.executable, "-m", "scripts.bench_eri", "--quick", "--threads", "1", "--out", str(out)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=600)
    parts = {name: part["rows"] for name, part in json.loads(out.read_text())["parts"].items()}
    assert {row["case"] for row in parts["classes"]} == {"0000", "1111", "2222"}
    for row in parts["classes"]:
        assert row["max_error"] < 1e-12
        assert row["ours"] > 0
    (water,) = parts["jk"]
    assert max(water["max_error"].values()) < 1e-9
    assert "1 thread" in water["ran_on"]
    assert water["ratio"]["wall"] > 0
