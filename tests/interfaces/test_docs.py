"""The examples of docs/interfaces.md and examples/optimize.py run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_python_blocks_run(tmp_path, monkeypatch):
    for package in ("ase", "geometric", "qcelemental", "qcengine"):
        pytest.importorskip(package)
    blocks = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / "interfaces.md").read_text(encoding="utf-8"), re.DOTALL
    )
    assert len(blocks) == 8
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for block in blocks:
        exec(compile(block, "interfaces.md", "exec"), names)
    assert names["result"].success and names["optimum"].converged
    assert names["limit"].e_corr < names["energies"][1].e_corr
    assert abs(names["atoms"].get_forces()).max() < 0.02


def test_example_optimises_a_radical(tmp_path):
    pytest.importorskip("geometric")
    (tmp_path / "oh.xyz").write_text("2\n\nO 0 0 0\nH 0 0 1.0\n")
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "optimize.py"), "oh.xyz", "--basis", "sto-3g", "--out", "end.xyz"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"\nconverged\n +O1-H2  1\.0000 -> \d\.\d{4} Angstrom\n", done.stdout)
    assert "forces:R:3" in (tmp_path / "end.xyz").read_text()
