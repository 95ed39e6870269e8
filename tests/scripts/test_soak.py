"""Quick versions of what `python -m scripts.soak` tries for longer."""

from __future__ import annotations

import os
import resource
import tempfile

import numpy as np
import pytest

import trnqc
from scripts.soak import case, crowds, kills
from scripts.soak.case import Broken, Case, NotTried
from trnqc.cli import main
from trnqc.errors import StorageError
from trnqc.host import memory
from trnqc.host.files import write_aside
from trnqc.jit.cache import Cache


@pytest.mark.parametrize("name", ["while records and JSON files are written", "while tuning records are stored"])
def test_what_is_killed_leaves_nothing_incomplete(name, tmp_path):
    assert "2 kills" in kills.tried(kills.WORKS[name], tmp_path, kills=2, in_a_row=2)


def test_processes_that_compile_the_same_kernels_build_each_once(tmp_path):
    children = [kills.forked(lambda: kills.compile_kernels(tmp_path)) for _ in range(3)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    assert len(list(tmp_path.glob("scaled_dot-*.so"))) == 3
    kills.sealed_are_whole(tmp_path)


def test_an_incomplete_file_is_found(tmp_path):
    work = kills.Work(lambda folder: (folder / "a").write_text("x" * 9), lambda folder: _nine(folder / "a"))
    work.do(tmp_path)
    work.whole(tmp_path)
    (tmp_path / "a").write_text("x")
    with pytest.raises(Broken, match="1 of 9"):
        work.whole(tmp_path)


def _nine(path):
    if path.stat().st_size != 9:
        raise Broken(f"{path.stat().st_size} of 9 bytes")


def test_memory_of_contractions_is_flat():
    a = np.ones((20, 20))
    for _ in range(200):
        trnqc.einsum("ij,jk->ik", a, a)
    before = crowds.resident()
    for _ in range(2000):
        trnqc.einsum("ij,jk->ik", a, a)
    assert crowds.resident() - before < 1 << 20


def raised(error):
    def tried(_):
        raise error

    return tried


@pytest.mark.parametrize(
    ("tried", "verdict"),
    [(lambda _: "fine", "as expected"), (raised(Broken("no")), "broken"), (raised(NotTried("no")), "not tried")],
)
def test_verdicts(tried, verdict):
    assert case.row(Case("case", "fine", tried))["verdict"] == verdict


def test_a_file_that_may_not_grow_is_one_error_and_leaves_the_old_one(tmp_path):
    write_aside(tmp_path / "kept", "old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(StorageError, match=r"too large.*make room"):
            write_aside(tmp_path / "kept", b"x" * 9000)
        with pytest.raises(StorageError, match=r"too large.*make room"):
            Cache(tmp_path).get("kernel", lambda out: out.write_bytes(b"x" * 9000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (tmp_path / "kept").read_text() == "old"
    assert {path.name for path in tmp_path.iterdir()} == {"kept"}


def test_no_folder_for_temporary_files_is_one_error(monkeypatch, capsys):
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", list)
    assert main(["mp2", "water"]) == 2
    err = capsys.readouterr().err
    assert "set TMPDIR" in err and err.count("\n") == 1


def test_control_groups_of_version_1(tmp_path, monkeypatch):
    inner = tmp_path / "groups" / "memory" / "slurm" / "job_7"
    inner.mkdir(parents=True)
    (inner / "memory.limit_in_bytes").write_text("5000\n")
    (inner / "memory.usage_in_bytes").write_text("1000\n")
    (tmp_path / "own").write_text("5:cpu,cpuacct:/slurm\n4:memory:/slurm/job_7\n")
    monkeypatch.setattr(memory, "_CONTROL_GROUPS", tmp_path / "groups")
    monkeypatch.setattr(memory, "_OWN_GROUP", tmp_path / "own")
    assert memory.control_groups()[0] == inner
    assert memory.control_group_room(memory.control_groups()) == 4000
