from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_quick_run(tmp_path):
    """Speed is not judged: only that all contestants run, agree, and are reported."""
    out = tmp_path / "bench.json"
    parts = ("integrals25", "factors", "published", "threads")
    command = [
        sys.executable,
        "-m",
        "scripts.bench_sparse",
        "--quick",
        "--rounds",
        "1",
        "--out",
        str(out),
        "--parts",
        *parts,
    ]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=600)
    record = {name: part["rows"] for name, part in json.loads(out.read_text())["parts"].items()}
    assert len(record["integrals25"]) == 4 and len(record["factors"]) == 12 and len(record["threads"]) == 4
    assert len(record["published"]) == 36
    for row in record["integrals25"] + record["factors"] + record["published"]:
        assert max(row["error"].values()) < 1e-12
        assert set(row["error"]) == set(row["milliseconds"])
        assert set(row["target"]) <= set(row["speedup"])
    assert all(row["same bits"] for row in record["threads"])
