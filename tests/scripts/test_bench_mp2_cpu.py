from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tolerances import MOLECULE_ENERGY

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_one_round_on_water(tmp_path):
    """Speed is not judged: only that all contestants run, agree, and are reported with what they ran on."""
    out = tmp_path / "bench.json"
    options = ["--cases", "water/cc-pvdz", "--rounds", "1", "--threads", "1"]
    files = ["--cache", str(tmp_path), "--out", str(out)]
    command = [sys.executable, "-m", "scripts.bench_mp2_cpu", *options, *files]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=300)
    record = json.loads(out.read_text())
    assert set(record["machine"]["core_peak_gflops"]) == {"float64", "float32"}
    for facts in record["contestants"].values():
        assert facts["blas"], "the BLAS that a contestant ran on"
    pairs, whole = record["results"]
    assert (pairs["part"], whole["part"]) == ("pairs", "whole")
    for precision in ("fp64", "fp32"):
        for result, keys in ((pairs, ("os", "ss")), (whole, ("e_corr",))):
            row = result["contestants"][f"trnqc {precision}"]
            for key in keys:
                assert abs(row[f"{key}_minus_pyscf_hartree"]) < MOLECULE_ENERGY[precision]
    for result in (pairs, whole):
        assert all(row["wall_s"] > 0 for row in result["contestants"].values())
        assert all(ratio["wall"] > 0 for ratio in result["ratios"])
