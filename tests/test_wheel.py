"""A wheel contains every file that the packages read at run time, and a job runs outside of the checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from nki_kernels.descriptors import kernels
from trnqc.tuning.sources import kernel_hash

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("trnqc", "nki_kernels", "autotune")
NOT_SHIPPED = {".lock"}


def tracked() -> set[str]:
    """Files of the packages that belong to the repository."""
    listed = subprocess.run(["git", "ls-files", *PACKAGES], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a checkout")
    return {name for name in listed.stdout.splitlines() if Path(name).name not in NOT_SHIPPED}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of this checkout, built by the backend that is installed."""
    pytest.importorskip("setuptools", minversion="77")
    copy, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    for name in PACKAGES:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    program = f"from setuptools.build_meta import build_wheel; print(build_wheel({str(out)!r}))"
    done = subprocess.run([sys.executable, "-c", program], cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return next(out.glob("*.whl"))


def test_the_wheel_has_every_file_of_the_packages(wheel):
    held = {name for name in names(wheel) if "dist-info" not in name}
    inside = {name if name.startswith("trnqc/") else f"trnqc/{name}" for name in tracked()}
    assert inside - held == set()
    assert "trnqc/mp2/reference/molecules/benzene.xyz" in held


def names(wheel: Path) -> list[str]:
    return zipfile.ZipFile(wheel).namelist()


def test_the_readme_of_the_wheel_has_no_links_into_a_checkout(wheel):
    (metadata,) = (name for name in names(wheel) if name.endswith("METADATA"))
    text = zipfile.ZipFile(wheel).read(metadata).decode()
    assert "Description-Content-Type: text/markdown" in text
    assert "five minutes (`docs/tutorials/five-minutes.md`)" in text
    assert not re.search(r"\]\((?!https?:)", text)


def test_the_wheel_takes_one_name_on_the_import_path(wheel):
    assert {name.split("/")[0] for name in names(wheel) if "dist-info" not in name} == {"trnqc"}
    (top_level,) = (name for name in names(wheel) if name.endswith("top_level.txt"))
    assert zipfile.ZipFile(wheel).read(top_level).split() == [b"trnqc"]


def test_examples_and_the_package_share_one_folder_of_molecules():
    assert (ROOT / "examples" / "molecules").resolve() == ROOT / "trnqc" / "mp2" / "reference" / "molecules"


PROGRAM = """
import numpy as np
import trnqc.cli
from pyscf import gto
print(trnqc.__file__)
trnqc.cli.main(["doctor"])
from trnqc.nki_kernels.descriptors import kernels
from trnqc.tuning.sources import kernel_hash
print("hash", kernel_hash(kernels()["mp2_energy"]))
trnqc.cli.main(["tune", "mp2_energy", "--list"])
mol = gto.M(atom="He", basis="sto-3g", verbose=0)
np.testing.assert_allclose(trnqc.eri.get_jk(mol, np.eye(1))[0], mol.intor("int2e")[0, 0], rtol=1e-12)
"""


def test_an_installed_wheel_runs_away_from_the_checkout(wheel, tmp_path):
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    # The editable installation of the checkout, if there is one, is found after what PYTHONPATH names.
    # The job leaves integrals to PySCF; PROGRAM compiles one kernel of ours.
    environment = os.environ | {"TRNQC_KERNELS": "cached"}
    environment |= {"PYTHONPATH": os.pathsep.join([str(site), sysconfig.get_path("purelib")])}

    def call(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    out = call("-c", PROGRAM)
    assert all(words in out for words in (str(site), "cpu", "mp2_energy"))
    # Records of tuned kernels are found by this digest.
    assert f"hash {kernel_hash(kernels()['mp2_energy'])}" in out
    assert "E(MP2)" in call("-m", "trnqc", "mp2", "water", "--basis", "sto-3g", "--auxbasis", "cc-pvdz-ri", "-q")
