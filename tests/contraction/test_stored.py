"""Contractions of HDF5 datasets: the two-pass form, memory, resumed and failed runs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from contextlib import nullcontext
from pathlib import Path

import h5py
import numpy as np
import pytest

import trnqc
from tests.contraction.workloads import four_index
from trnqc.contraction.memory.disk_passes import plan_passes
from trnqc.contraction.run.disk import journal as journals
from trnqc.contraction.run.disk.datasets import StoredDataset, pieces
from trnqc.errors import InputError, MemoryLimit, SlowPlanWarning, UnsupportedError

# Bytes in which the transformation runs as many short passes over the files, with a warning.
TIGHT = 20_000
TRANSFORMATION = "pqrs,pa,qb,rc,sd->abcd"


def transformed(*operands, out):
    """Transform integrals in TIGHT bytes, which warns."""
    with pytest.warns(SlowPlanWarning):
        return trnqc.einsum(TRANSFORMATION, *operands, memory_limit=TIGHT, out=out)


@pytest.fixture
def case(tmp_path):
    """Files of the integrals; the four matrices; what comes out."""
    rng = np.random.default_rng(3)
    integrals, matrices = rng.standard_normal((13,) * 4), [rng.standard_normal((13, n)) for n in (5, 13, 7, 11)]
    with h5py.File(tmp_path / "A.h5", "w") as file:
        file["A"] = integrals
    expected = np.einsum(TRANSFORMATION, integrals, *matrices, optimize=True)
    with h5py.File(tmp_path / "A.h5", "r") as file:
        yield file["A"], matrices, expected


@pytest.mark.parametrize(("extent", "limit"), [(16, 6_000), pytest.param(200, 10**8, marks=pytest.mark.slow)])
def test_little_memory_takes_two_passes(extent, limit):
    tree = four_index(extent)
    plan = plan_passes(tree, limit, frozenset({"A"}))
    assert len(plan.passes) == 2 and plan.memory <= limit
    assert plan.traffic == 4 * extent**4  # |A| + 2 |T| + |B|
    assert sum(one.schedule.fusion.tree.multiply_adds for one in plan.passes) < tree.multiply_adds + 3 * extent**4


def test_enough_memory_takes_one_pass():
    plan = plan_passes(four_index(10), 10**6, frozenset({"A"}))
    assert len(plan.passes) == 1 and plan.traffic == 2 * 10**4
    assert "1 passes" in str(plan) and "written 1e+04" in str(plan)


def test_the_least_memory_is_in_the_error():
    with pytest.raises(MemoryLimit, match="raise it to"):
        plan_passes(four_index(6), 2, frozenset({"A"}))


@pytest.mark.parametrize("limit", [None, 100_000, TIGHT])
def test_dataset_in_array_out(case, limit):
    integrals, matrices, expected = case
    with pytest.warns(SlowPlanWarning) if limit == TIGHT else nullcontext():
        result = trnqc.einsum(TRANSFORMATION, integrals, *matrices, memory_limit=limit)
    np.testing.assert_allclose(result, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("kind", ["path", "dataset"])
def test_out_on_disk(case, tmp_path, kind):
    integrals, matrices, expected = case
    with h5py.File(tmp_path / ("B.h5" if kind == "dataset" else "other.h5"), "w") as file:
        out = file.create_dataset("B", expected.shape, float) if kind == "dataset" else tmp_path / "B.h5"
        assert transformed(integrals, *matrices, out=out) is out
        if kind == "dataset":
            np.testing.assert_allclose(out[...], expected, rtol=1e-11, atol=1e-11)
    if kind == "path":
        with h5py.File(tmp_path / "B.h5") as file:
            np.testing.assert_allclose(file["result"][...], expected, rtol=1e-11, atol=1e-11)
    assert not list(tmp_path.glob("*.partial"))


class Stop(Exception):
    pass


@pytest.mark.parametrize(("error", "kept"), [(Stop, False), (KeyboardInterrupt, True)])
def test_after_an_error_nothing_is_left_and_an_interrupt_is_resumed(case, tmp_path, monkeypatch, error, kept):
    integrals, matrices, expected = case
    monkeypatch.setattr(journals, "RECORD_EVERY", 0.0)
    out = tmp_path / "B.h5"
    transformed(integrals, *matrices, out=tmp_path / "whole.h5")
    plain, read = StoredDataset.into, []

    def failing(self, target, cuts):
        read.append(cuts)
        if len(read) > 60:
            raise error
        plain(self, target, cuts)

    monkeypatch.setattr(StoredDataset, "into", failing)
    with pytest.raises(error):
        transformed(integrals, *matrices, out=out)
    assert not out.exists() and (tmp_path / "B.h5.partial").exists() == kept
    monkeypatch.setattr(
        StoredDataset, "into", lambda self, target, cuts: (read.append(cuts), plain(self, target, cuts))[1]
    )
    read.clear()
    transformed(integrals, *matrices, out=out)
    again = len(read)
    read.clear()
    transformed(integrals, *matrices, out=tmp_path / "count.h5")
    assert (again < len(read)) == kept
    with h5py.File(out) as file, h5py.File(tmp_path / "whole.h5") as whole:
        np.testing.assert_array_equal(file["result"][...], whole["result"][...])
        np.testing.assert_allclose(file["result"][...], expected, rtol=1e-11, atol=1e-11)
    assert not (tmp_path / "B.h5.partial").exists()


def test_other_operands_start_again(case, tmp_path, monkeypatch):
    integrals, matrices, expected = case
    monkeypatch.setattr(journals, "RECORD_EVERY", 0.0)
    plain, count = StoredDataset.into, []

    def failing(self, target, cuts):
        count.append(cuts)
        if len(count) > 60:
            raise KeyboardInterrupt
        plain(self, target, cuts)

    with monkeypatch.context() as patch:
        patch.setattr(StoredDataset, "into", failing)
        with pytest.raises(KeyboardInterrupt):
            transformed(integrals, *[2 * m for m in matrices], out=tmp_path / "B.h5")
    transformed(integrals, *matrices, out=tmp_path / "B.h5")
    with h5py.File(tmp_path / "B.h5") as file:
        np.testing.assert_allclose(file["result"][...], expected, rtol=1e-11, atol=1e-11)


RUN = """
import sys, time, h5py, numpy as np
import trnqc
from trnqc.contraction.run.disk import journal, datasets
journal.RECORD_EVERY = 0.0
if sys.argv[2] == "slow":
    plain = datasets.DatasetSink.put
    datasets.DatasetSink.put = lambda self, cuts, found: (time.sleep(0.02), plain(self, cuts, found))[1]
with h5py.File(sys.argv[1] + "/A.h5", "r") as file:
    rng = np.random.default_rng(5)
    matrices = [rng.standard_normal((13, n)) for n in (5, 13, 7, 11)]
    trnqc.einsum("pqrs,pa,qb,rc,sd->abcd", file["A"], *matrices, memory_limit=20_000, out=sys.argv[1] + "/B.h5")
"""


@pytest.mark.slow
@pytest.mark.parametrize("passes", [0, 1])
def test_a_killed_run_is_resumed_with_the_same_digits(case, tmp_path, passes):
    command = [sys.executable, "-c", RUN, str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(Path(trnqc.__file__).parents[1])}
    run = subprocess.Popen([*command, "slow"], env=environment)
    progress = tmp_path / "B.h5.partial" / "progress.json"
    until = time.monotonic() + 60
    while time.monotonic() < until and run.poll() is None:
        if progress.exists():
            record = json.loads(progress.read_text())
            if record["passes"] == passes and record["turns"] > 0:
                break
        time.sleep(0.001)
    run.send_signal(signal.SIGKILL)
    run.wait()
    assert progress.exists() and not (tmp_path / "B.h5").exists()
    subprocess.run([*command, "fast"], env=environment, check=True, timeout=120)
    with h5py.File(tmp_path / "B.h5") as file:
        resumed = file["result"][...]
    (tmp_path / "B.h5").unlink()
    subprocess.run([*command, "fast"], env=environment, check=True, timeout=120)
    with h5py.File(tmp_path / "B.h5") as file:
        np.testing.assert_array_equal(resumed, file["result"][...])
    assert not progress.parent.exists()


GROWTH = r"""
import ctypes, re, sys, h5py, numpy as np
import trnqc
def status(name):
    return 1024 * int(re.search(name + r":\s+(\d+) kB", open("/proc/self/status").read()).group(1))
rng = np.random.default_rng(5)
matrices = [rng.standard_normal((64, 64)) for _ in range(4)]
with h5py.File(sys.argv[1] + "/A.h5", "w") as file:
    file["A"] = rng.standard_normal((64,) * 4)
with h5py.File(sys.argv[1] + "/A.h5", "r") as file:
    for turn in range(2):
        ctypes.CDLL(None).malloc_trim(0)
        open("/proc/self/clear_refs", "w").write("5")
        before = status("VmRSS")
        trnqc.einsum("pqrs,pa,qb,rc,sd->abcd", file["A"], *matrices, memory_limit=10**7, out=sys.argv[1] + "/B.h5")
print(status("VmHWM") - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the kernel does not say what a process held")
def test_the_process_grows_by_no_more_than_the_limit(tmp_path):
    environment = os.environ | {"PYTHONPATH": str(Path(trnqc.__file__).parents[1]), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", GROWTH, str(tmp_path)]
    completed = subprocess.run(command, env=environment, check=True, timeout=300, capture_output=True, text=True)
    assert 10**6 < int(completed.stdout) <= 10**7


def test_two_runs_do_not_write_the_same_file(tmp_path):
    with journals.Journal(tmp_path / "B.h5.partial", "key"), pytest.raises(InputError, match="another process"):
        journals.Journal(tmp_path / "B.h5.partial", "key").__enter__()


def test_pieces_cover_every_element_once(monkeypatch):
    monkeypatch.setattr("trnqc.contraction.run.disk.datasets.PIECE", 10)
    table, into = np.arange(5 * 7 * 6).reshape(5, 7, 6), np.zeros((3, 5, 6), int)
    for here, there in pieces([slice(1, 4), slice(2, 7), slice(0, 6)]):
        assert into[here].size <= 10
        into[here] += table[there]
    np.testing.assert_array_equal(into, table[1:4, 2:7])


def test_what_is_refused(case, tmp_path):
    integrals, matrices, _ = case
    with pytest.raises(UnsupportedError, match="diagonal"):
        trnqc.einsum("ppqr,qa->ra", integrals, matrices[0])
    with pytest.raises(InputError, match="the result is"):
        trnqc.einsum(TRANSFORMATION, integrals, *matrices, out=np.empty((2, 2)))
    with h5py.File(tmp_path / "bad.h5", "w") as file:
        file["x"] = np.array([[1.0, np.nan]])
        with pytest.raises(InputError, match="not finite"):
            trnqc.einsum("ij,jk->ik", file["x"], np.ones((2, 3)))


def test_limits_speak_bytes_and_say_what_they_cost(tmp_path):
    rng = np.random.default_rng(5)
    arrays = [rng.standard_normal(shape) for shape in ((8, 8, 8), (8, 8, 8), (8, 8, 3, 3))]
    text, out = "Qae,Qbf,efij->abij", np.empty((8, 8, 3, 3))
    with pytest.raises(MemoryLimit, match="with those of HDF5; memory_limit is 0 bytes: raise it to") as caught:
        trnqc.einsum(text, *arrays, memory_limit=0, out=out)
    needed = int(str(caught.value).rpartition("raise it to ")[2].split()[0])
    with pytest.warns(SlowPlanWarning, match="of arrays on disk about .* times slower"):
        few = (x[:2] if k < 2 else x for k, x in enumerate(arrays))
        trnqc.einsum(text, *few, memory_limit=needed, out=out, max_slowdown=None)


def test_passes_that_take_absurdly_long_are_refused_unless_asked_for_twice():
    rng = np.random.default_rng(5)
    arrays = [rng.standard_normal(shape) for shape in ((9, 30, 30), (9, 30, 30), (30, 30, 3))]
    text, out = "Qae,Qbf,efi->abi", np.empty((30, 30, 3))
    refused = (
        r"of arrays on disk about .* times slower .*; max_slowdown allows 1000 times: raise memory_limit to \d+ bytes"
    )
    with pytest.raises(MemoryLimit, match=refused) as caught:
        trnqc.einsum(text, *arrays, memory_limit=16, out=out)
    enough = int(re.search(r"raise memory_limit to (\d+) bytes", str(caught.value))[1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trnqc.einsum(text, *arrays, memory_limit=enough, out=out)
    np.testing.assert_allclose(out, np.einsum(text, *arrays, optimize=True), rtol=1e-11, atol=1e-11)
    few, smaller = [x[:, :4, :4] for x in arrays[:2]], arrays[2][:4, :4]
    with pytest.warns(SlowPlanWarning):
        least = {"memory_limit": 16, "max_slowdown": None, "out": np.empty((4, 4, 3))}
        result = trnqc.einsum(text, *few, smaller, **least)
    np.testing.assert_allclose(result, np.einsum(text, *few, smaller), rtol=1e-11, atol=1e-12)
