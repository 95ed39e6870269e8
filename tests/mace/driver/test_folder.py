"""Prepared models: a program in C++ gives what Python gives, and every wrong folder is one clear error."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("vesin", reason="needs vesin")

from tests.mace.descriptions import CASES, description
from tests.mace.test_evaluate import PERIODIC, structure
from trnqc.errors import InputError
from trnqc.jit.cpp import cpp_compiler
from trnqc.mace import Evaluator, prepare, save
from trnqc.mace.driver.driver import Driver
from trnqc.mace.driver.folder import MODEL
from trnqc.mace.edges.neighbours import neighbours

ROOT = Path(__file__).resolve().parents[3]
# The check sum of the file begins at byte 24 and covers all bytes from 32 on; folder.h describes the file.
SUM, CHECKED = slice(24, 32), 32


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A prepared model."""
    return prepare(Evaluator(description(), "float64"), tmp_path_factory.mktemp("prepared"))


@pytest.fixture
def copy(folder, tmp_path):
    """A copy of it, which a test may damage."""
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def evaluated(run: Driver) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    numbers, positions, cell = structure()
    listed = neighbours(positions, cell, PERIODIC, run.cutoff)
    return run(numbers, listed.receivers, listed.senders, listed.vectors(positions))


def edited(path: Path, edit: Callable[[bytes], bytes]) -> None:
    """Change the part of a file that the check sum covers, and write the right sizes and the right sum."""
    data = path.read_bytes()
    checked = edit(data[CHECKED:])
    head = np.frombuffer(data[8:CHECKED], np.int64).copy()
    head[1:] = CHECKED + len(checked), zlib.crc32(checked)
    path.write_bytes(data[:8] + head.tobytes() + checked)


@pytest.mark.parametrize("options", [{}, {"radial": "spline"}], ids=["exact", "spline"])
@pytest.mark.parametrize("case", ["residual", "density"])
def test_a_folder_gives_the_same_bits(case, options, tmp_path):
    evaluator = Evaluator(description(**CASES[case]), "float32", threads=1, skin=0.0, **options)
    prepare(evaluator, tmp_path)
    expected = evaluator(*structure(), PERIODIC)
    energies, forces, virial = evaluated(Driver(tmp_path, 1))
    assert np.array_equal(energies, expected.energies) and np.array_equal(forces, expected.forces)
    assert np.array_equal(virial, expected.virial)


@pytest.mark.slow
def test_the_program_in_cpp_prints_what_python_prints(tmp_path):
    pytest.importorskip("ase", reason="needs ASE")
    import ase.io

    numbers, positions, cell = structure(11)
    ase.io.write(tmp_path / "atoms.xyz", ase.Atoms(numbers, positions, cell=cell, pbc=PERIODIC))
    save(description(**CASES["density"]), tmp_path / "model.npz")
    out = tmp_path / "prepared"
    options = ["--model", tmp_path / "model.npz", "--geometry", tmp_path / "atoms.xyz"]
    command = [sys.executable, "-m", "examples.prepare_mace", out, *options]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    python = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    program, source = out / "mace", ROOT / "examples" / "cpp" / "mace.cpp"
    link = [f"-L{out}", "-ltrnqc_mace", "-Wl,-rpath,$ORIGIN"]
    flags = ["-std=c++20", "-Wall", "-Wextra", "-Werror", f"-I{out}"]
    subprocess.run([*cpp_compiler(), *flags, source, "-o", program, *link], check=True)
    expected = _numbers(python)
    assert list(expected) == ["energy", "energies", "forces", "virial"]
    for threads in ("1", "2"):
        command = [program, out, out / "structure.txt", threads]
        printed = _numbers(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        for name, values in expected.items():
            np.testing.assert_allclose(printed[name], values, rtol=0, atol=1e-11 * np.abs(values).max(), err_msg=name)
    (out / MODEL).unlink()
    done = subprocess.run([program, out, out / "structure.txt"], capture_output=True, text=True)
    assert done.returncode == 1 and "model.trnqc: cannot be read" in done.stderr


def _numbers(text: str) -> dict[str, np.ndarray]:
    rows = [line.split() for line in text.splitlines()]
    return {row[0]: np.array(row[1:], np.float64) for row in rows}


@pytest.mark.parametrize("bytes_left", [0, 7, 40, 5000])
def test_a_truncated_file(copy, bytes_left):
    path = copy / MODEL
    path.write_bytes(path.read_bytes()[:bytes_left])
    expected = "expected a prepared model" if bytes_left < 56 else r"expected \d+ bytes, found 5000"
    with pytest.raises(InputError, match=rf"model\.trnqc: {expected}.*; prepare the model again"):
        Driver(copy, 1)


def test_a_damaged_file(copy):
    path, data = copy / MODEL, bytearray((copy / MODEL).read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match="the check sum is wrong; prepare the model again"):
        Driver(copy, 1)


def test_another_version(copy):
    path, data = copy / MODEL, bytearray((copy / MODEL).read_bytes())
    data[8:16] = np.int64(9).tobytes()
    path.write_bytes(data)
    with pytest.raises(InputError, match="expected version 1, found version 9; prepare the model again"):
        Driver(copy, 1)


def test_another_file(copy):
    (copy / MODEL).write_bytes(b"x" * 1000)
    with pytest.raises(InputError, match="expected a prepared model, found another file"):
        Driver(copy, 1)


def test_parts_beyond_the_file(copy):
    edited(copy / MODEL, lambda data: np.int64(10**15).tobytes() + data[8:])
    with pytest.raises(InputError, match="its parts exceed it"):
        Driver(copy, 1)


def test_another_machine(copy):
    edited(copy / MODEL, lambda data: data.replace(b"machine ", b"machine Q", 1))
    with pytest.raises(InputError, match=r"the kernels are for Q\w+, this machine is \w+; prepare the model on this"):
        Driver(copy, 1)


def test_a_cpu_without_a_feature(copy):
    """No CPU that is made today has this feature, which cpu.h does not know either."""
    edited(copy / MODEL, lambda data: data.replace(b"\nfeatures ", b"\nfeatures avx512er ", 1))
    with pytest.raises(InputError, match="need a CPU with avx512er, which this machine does not have; prepare"):
        Driver(copy, 1)


@pytest.mark.parametrize("change", ["removed", "truncated", "damaged"])
def test_damaged_kernels(copy, change):
    path = next(copy.glob("mace-layer-*.so"))
    data = bytearray(path.read_bytes())
    path.unlink()
    if change == "truncated":
        path.write_bytes(data[:4000])
    elif change == "damaged":
        data[len(data) // 2] ^= 255
        path.write_bytes(data)
    expected = "cannot be read" if change == "removed" else "the kernels are damaged"
    with pytest.raises(InputError, match=rf"mace-layer-\w+\.so: {expected}; prepare the model again"):
        Driver(copy, 1)


def test_splines_cover_the_elements_that_were_asked_for(tmp_path):
    evaluator = Evaluator(description(**CASES["density"]), "float64", radial="spline")
    run = Driver(prepare(evaluator, tmp_path, [1, 8]), 1)
    one = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, 3))
    run(np.array([8, 1]), *one)
    with pytest.raises(InputError, match=r"the model has the elements 1, 8; found \[6\]"):
        run(np.array([8, 6]), *one)
    with pytest.raises(InputError, match=r"elements: the model has the elements 1, 6, 8; found \[26\]"):
        prepare(evaluator, tmp_path, [26])
