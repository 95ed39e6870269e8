"""Locks, files that are renamed into place, and records that survive damage to their file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trnqc.errors import CheckpointError, StorageError
from trnqc.host.files import Records, hold, write_aside


def test_who_comes_second_is_told_who_came_first(tmp_path):
    with hold(tmp_path / "work"), pytest.raises(CheckpointError, match=rf"another process \(pid {os.getpid()}\)"):
        hold(tmp_path / "work")
    hold(tmp_path / "work").close()


def test_a_killed_process_holds_nothing(tmp_path):
    program = (
        "import os, signal, sys; from pathlib import Path; from trnqc.host.files import hold; "
        "lock = hold(Path(sys.argv[1])); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", program, tmp_path], check=False, env={"PYTHONPATH": os.getcwd()})
    assert done.returncode == -9
    hold(tmp_path).close()


def test_a_place_that_is_no_directory(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be used"):
        hold(tmp_path / "file")


def test_a_file_is_there_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_aside(path, b"old")

    def full(one, other):
        assert Path(one).read_bytes() == b"new"
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(StorageError, match="No space left on device; make room"):
        write_aside(path, b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert path.read_bytes() == b"old"


def filled(path, count=5):
    records = Records(path)
    for n in range(count):
        records.add(n=n, value=n / 3)
    records.close()
    return path.read_bytes()


@given(cut=st.integers(0, 200))
def test_a_cut_off_line_is_left_out_and_the_next_is_not_lost(tmp_path_factory, cut):
    path = tmp_path_factory.mktemp("records") / "records"
    text = filled(path)[:cut]
    path.write_bytes(text)
    records = Records(path)
    whole = [line for line in text.split(b"\n") if line.endswith(b"}")]
    assert [r["n"] for r in records.entries] == list(range(len(whole)))
    assert all(r["value"] == r["n"] / 3 for r in records.entries)
    records.add(n=9)
    records.close()
    assert Records(path).entries == [*records.entries, {"n": 9}]


@given(data=st.data())
def test_a_changed_line_is_left_out(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("records") / "records"
    text = bytearray(filled(path))
    at = data.draw(st.integers(0, len(text) - 1))
    line = text[:at].count(b"\n")
    text[at] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(bytes(text))
    result = [r["n"] for r in Records(path).entries]
    assert set(result) >= set(range(5)) - {line, line + 1}
    assert line not in result or text[at : at + 1].isalpha()  # another case of a hexadecimal digit says the same


def test_records_in_memory_alone():
    records = Records(None)
    records.add(n=1)
    assert records.entries == [{"n": 1}]


def test_a_record_that_does_not_fit_on_the_disk(tmp_path, monkeypatch):
    records = Records(tmp_path / "records")
    records.add(n=1)

    def full(file, data):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(StorageError, match="No space left"):
        patch.setattr("trnqc.host.files.os.write", full)
        records.add(n=2)
    records.close()
    assert Records(tmp_path / "records").entries == [{"n": 1}]
