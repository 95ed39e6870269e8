"""The measurement of a job's memory by stage, on the smallest job."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peaks are set back through Linux's /proc")
def test_every_stage_has_its_time_and_peak(tmp_path):
    line = [sys.executable, str(ROOT / "scripts" / "bench_jobs.py"), "water", "--basis", "6-31g", "--threads", "1"]
    for cap in ("50M", "60M"):
        subprocess.run(
            [*line, "--max-memory", cap, "--out", str(tmp_path / "jobs.json")], check=True, capture_output=True
        )
    cases = json.loads((tmp_path / "jobs.json").read_text())["cases"]
    assert set(cases) == {"water/6-31g, 50M", "water/6-31g, 60M"}
    row = cases["water/6-31g, 50M"]
    assert {"SCF", "integrals", "fitting", "pairs"} <= set(row["stages"])
    assert row["peak_bytes"] == max(stage["peak_bytes"] for stage in row["stages"].values())
    assert 0 < row["above_cap_bytes"] < 300e6
    assert row["sizes"]["nocc"] == 4
