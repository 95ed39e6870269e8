"""A MACE model in a C++ program: energy, forces and stress are those of Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("mace")

from trnqc.cg.torch.cpp import folder  # noqa: E402
from trnqc.jit.cpp import cpp_compiler  # noqa: E402

PROGRAM = Path(__file__).resolve().parents[3] / "examples" / "cpp" / "energy.cpp"


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The example, compiled."""
    out = tmp_path_factory.mktemp("program") / "energy"
    flags = ("-std=c++20", "-O1", *folder.torch_defines(), *folder.torch_folders())
    subprocess.run([*cpp_compiler(), *flags, PROGRAM, "-o", out, *folder.LINKED, "-ldl"], check=True)
    return out


def results(text):
    """The results in what a program printed; mace prints a line of its own when it is imported."""
    rows = [line.split() for line in text.splitlines() if line.split()[0] in ("energy", "forces", "stress")]
    return {row[0]: torch.tensor([float(value) for value in row[1:]], dtype=torch.float64) for row in rows}


@pytest.mark.slow
@pytest.mark.parametrize("package", [False, True], ids=["torchscript", "aotinductor"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_example_equals_python(program, tmp_path, package, dtype):
    command = [sys.executable, "-m", "examples.deploy_mace", tmp_path, "--hidden", "8x0e+8x1o", "--dtype", dtype]
    python = subprocess.run([*command, *["--package"] * package], capture_output=True, text=True, check=True).stdout
    model = tmp_path / ("model.pt2" if package else "model.pt")
    command = [program, model, tmp_path / "inputs.pt", tmp_path / "kernels" / "libtrnqc_operators.so"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    expected, tolerance = results(python), 1e-12 if dtype == "float64" else 2e-5
    assert list(expected) == ["energy", "forces", "stress"]
    for name, values in results(done.stdout).items():
        assert (values - expected[name]).abs().max() <= tolerance * expected[name].abs().max()
