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
    line = [sys.executable, "-m", "scripts.bench_jobs", "water", "--basis", "6-31g", "--threads", "1"]
    out = tmp_path / "jobs.json"
    out.write_text(json.dumps({"cases": {"water/6-31g, 60M": {"cap_bytes": 60e6}}}))
    subprocess.run([*line, "--max-memory", "50M", "--out", str(out)], cwd=ROOT, check=True, capture_output=True)
    cases = json.loads(out.read_text())["cases"]
    assert set(cases) == {"water/6-31g, 50M", "water/6-31g, 60M"}
    assert cases["water/6-31g, 60M"] == {"cap_bytes": 60e6}, "a row that was there is kept"
    row = cases["water/6-31g, 50M"]
    assert {"SCF", "integrals", "fitting", "pairs"} <= set(row["stages"])
    assert row["peak_bytes"] == max(stage["peak_bytes"] for stage in row["stages"].values())
    assert 0 < row["above_cap_bytes"] < 300e6
    assert row["sizes"]["nocc"] == 4
