"""The example is run as its text says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, str(ROOT / "examples" / "scf_accelerated.py"), *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "100"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "geometry, energy", [("hydrogen", "-1.126"), pytest.param("water", "-75.98", marks=pytest.mark.slow)]
)
def test_energies_and_forces_side_by_side(tmp_path, geometry, energy):
    if geometry == "hydrogen":
        geometry = tmp_path / "hydrogen.xyz"
        geometry.write_text("2\n\nH 0 0 0\nH 0 0 0.74\n")
    done = run(str(geometry), "--basis", "6-31g", "--direct", "--gradient")
    assert done.returncode == 0, done.stderr
    assert energy in done.stdout
    assert "generated C" in done.stdout
    for what in ("energies", "forces"):
        assert abs(float(done.stdout.split(f"{what} differ by ")[1].split()[0])) < 1e-8


def test_a_wrong_name_is_one_line():
    done = run("watre")
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
