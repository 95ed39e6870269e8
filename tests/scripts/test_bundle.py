"""Bundles for a GPU machine without a network: their parts, the script that unpacks them, and kernels built before."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.device.bundle import __main__ as bundle
from scripts.device.bundle import kernels, packing, wheels
from scripts.device.first_run import checks
from scripts.device.first_run.inventory import PACKAGES
from scripts.device.recording_driver import RecordedDevice, RecordingDriver
from scripts.workloads.tensor_products import awkward
from tests.backends.simulated_cuda import RecordedCuda
from trnqc.backends.cuda.pairs import CudaPairStep
from trnqc.backends.pair_step import PairOptions
from trnqc.cg.cuda.engine import CudaEngine
from trnqc.cg.cuda.row_sums import sum_segments
from trnqc.cg.programs.directions import CONVOLUTIONS
from trnqc.eri.cuda.builder import CudaJKBuilder
from trnqc.jit import cubin_builder
from trnqc.jit.cubin_builder import CubinBuilder
from trnqc.jit.cubins import Needs
from trnqc.jit.device import MOST_LANES, CudaDevice

# A Python that tells a version, and makes environments whose pip notes its arguments.
STUB = """#!/bin/bash
if [ "$1" = -c ]; then echo 3.12; exit; fi
mkdir -p "$4/bin" && printf '#!/bin/bash\\necho "$@" > "$(dirname "$0")/../installed"\\n' > "$4/bin/pip"
chmod +x "$4/bin/pip"
"""


def fetched(requirement: str, python: str, folder: Path) -> str:
    """A stand-in for pip, which has no wheel of gpu4pyscf."""
    if requirement.startswith("gpu4pyscf-cuda"):
        return "ERROR: No matching distribution found"
    (folder / f"{requirement}-1.0-py3-none-any.whl").write_bytes(os.urandom(3000))
    return ""


@pytest.fixture
def made(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(bundle, "source_tree", lambda folder: (folder / "scripts").mkdir(parents=True))
    names = ["--wheels", "rich", "gpu4pyscf-cuda13x", "pyscf", "--kernels", "none"]
    assert bundle.main(["--parts", "4k", "--out", str(tmp_path / "out"), *names], fetched) == 0
    return tmp_path / "out"


def setup(made: Path, target: Path, python: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHON": str(python)}
    command = ["bash", str(made / "setup.sh"), str(target)]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


@pytest.fixture
def stub(tmp_path) -> Path:
    path = tmp_path / "python"
    path.write_text(STUB)
    path.chmod(0o755)
    return path


def test_parts_are_joined_checked_and_installed(made, stub, tmp_path, capsys):
    parts = sorted(made.glob("bundle.tar.*"))
    assert len(parts) > 3 and max(path.stat().st_size for path in parts) <= 4000
    process = setup(made, tmp_path / "there", stub)
    assert process.returncode == 0, process.stderr
    there = tmp_path / "there"
    installed = (there / "venv" / "installed").read_text()
    assert "--no-index --no-deps" in installed and "rich-1.0" in installed and "pyscf-1.0" in installed
    assert (there / "venv/lib/python3.12/site-packages/machine.pth").exists()
    assert (there / "trnqc" / "scripts").is_dir() and f'TRNQC_CACHE_DIR="{there}/cache"' in (
        there / "env.sh"
    ).read_text()
    assert "no comparison in J, K and SCF of water20/cc-pvdz" in process.stdout
    assert "scripts.device.first_run --minutes 9" in process.stdout
    record = json.loads((made / "bundle.json").read_text())
    assert record["python"] == "3.12" and len(record["wheels"]) == 2 and len(record["parts"]) == len(parts)
    (missing,) = record["missing"]
    assert missing.startswith("gpu4pyscf-cuda13x: ERROR: No matching distribution")


def test_a_bundle_for_another_python_is_one_error(made, stub, tmp_path):
    stub.write_text(STUB.replace("echo 3.12", "echo 3.11"))
    process = setup(made, tmp_path / "there", stub)
    assert process.returncode == 2 and process.stderr.count("\n") == 1
    assert "is for Python 3.12, but" in process.stderr and "bundle --python 3.11" in process.stderr
    assert not (tmp_path / "there").exists()


def test_a_damaged_or_missing_part_is_an_error(made, stub, tmp_path):
    part = made / "bundle.tar.0001"
    data = part.read_bytes()
    part.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    process = setup(made, tmp_path / "there", stub)
    assert process.returncode == 2 and "bundle.tar.0001" in process.stdout + process.stderr
    part.unlink()
    assert setup(made, tmp_path / "there", stub).returncode == 2
    assert not (tmp_path / "there").exists()


def test_kernels_that_cannot_be_compiled_are_told(tmp_path, monkeypatch):
    program = "import sys; sys.exit('trnqc.errors.BackendUnavailable: the CUDA bindings cannot be imported')"
    fake = tmp_path / "python"
    fake.write_text(f'#!/bin/bash\nexec {sys.executable} -c "{program}"\n')
    fake.chmod(0o755)
    monkeypatch.setattr(bundle.sys, "executable", str(fake))
    (missing,) = bundle.kernels(tmp_path / "cache", ["sm_90"], "checks")["missing"]
    assert "the CUDA bindings cannot be imported" in missing and not (tmp_path / "cache").exists()


def test_consequences_are_those_of_the_table():
    assert set(wheels.WHEELS.values()) - {""} <= set(PACKAGES)
    assert "skipped are eri s p, eri d" in wheels.consequence("pyscf")
    assert "no comparison in products of mace-large" in wheels.consequence("cuequivariance-torch")
    assert "nothing runs" in wheels.consequence("rich")
    assert wheels.requirement("a", {"a": "1.2"}) == "a==1.2"


def test_a_wheel_is_made_of_source_without_compiled_code(tmp_path, monkeypatch):
    calls = []

    def pip(action: str, *arguments: str) -> str:
        calls.append(action)
        if action == "wheel":
            kind = "py3-none-any" if arguments[-1] == "geometric" else "cp311-cp311-linux_x86_64"
            (Path(arguments[1]) / f"{arguments[-1]}-1.0-{kind}.whl").write_bytes(b"")
        return "" if action == "wheel" else "ERROR: none"

    monkeypatch.setattr(wheels, "_pip", pip)
    assert wheels.gather(["geometric", "rich"], "3.12", tmp_path, {}).keys() == {"rich"}
    assert [path.name for path in tmp_path.iterdir()] == ["geometric-1.0-py3-none-any.whl"]
    assert calls == ["download", "wheel"] * 2


def test_sizes():
    assert packing.size_of("60M") == 60_000_000 and packing.size_of("512") == 512
    with pytest.raises(ValueError, match="positive"):
        packing.size_of("0k")


@pytest.fixture
def ahead(tmp_path, monkeypatch) -> CubinBuilder:
    monkeypatch.setenv("TRNQC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(cubin_builder, "needs", lambda cubin: Needs(255, 0, 0))
    return CubinBuilder("sm_80", RecordingDriver().bindings)


def test_a_gpu_compiles_no_tensor_product_of_the_bundle(ahead):
    """All kernels of the checks: built as a GPU builds them, and not launched, which would take long here."""
    kernels.tensor_products(ahead, "uvu-1", "float64")
    driver = RecordingDriver()
    device = CudaDevice(bindings=driver.bindings)
    for atomic in (False, True):
        engine = CudaEngine(awkward("uvu-1"), "float64", device, atomic=atomic)
        for name in (*checks.PASSES * (not atomic), *(key for n in ("forward", "backward") for key in CONVOLUTIONS[n])):
            engine.build(name)
    engine.builds.sum(sum_segments, engine.dtype.itemsize)
    assert driver.count("ObjectCode.from_cubin") > 5 and not driver.count("Program.compile")


def test_a_gpu_compiles_no_integrals_of_the_bundle(ahead):
    mol = checks.atoms((0,))
    for batch in kernels.batches_of(mol):
        kernels.first_sound(ahead, batch)
    driver = RecordingDriver()
    CudaJKBuilder(mol, devices=[RecordedDevice(driver, lanes=MOST_LANES)]).build()
    assert driver.count("ObjectCode.from_cubin") == 2 and not driver.count("Program.compile")


@pytest.mark.parametrize("precision", ["fp32", "bf16x3"])
def test_a_gpu_compiles_no_pair_step_of_the_bundle(ahead, precision):
    kernels.pair_energies(ahead, precision)
    recorded = RecordedCuda()
    recorded.recorded[0].most_lanes = MOST_LANES
    factors = kernels.factors(*kernels.PRESETS["tiny"])
    CudaPairStep(recorded.gpus(), PairOptions(precision)).triangle(*factors, None)
    assert recorded.driver.count("launch") and not recorded.driver.count("Program.compile")
