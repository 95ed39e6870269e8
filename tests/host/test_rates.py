"""Rates of the machine are measured once, also if their file is damaged or cannot be written."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from trnqc.host import memory
from trnqc.host.memory import data_caches
from trnqc.host.rates import kept_rates


@dataclass(frozen=True)
class Speed:
    turn: float
    cache: int = 1


@pytest.fixture
def directory(tmp_path, monkeypatch):
    monkeypatch.setenv("TRNQC_CACHE_DIR", str(tmp_path / "trnqc"))
    return tmp_path / "trnqc"


def never():
    pytest.fail("the file was not read")


def test_kept_by_name_and_parts(directory):
    assert kept_rates("a", Speed, lambda: Speed(0.1)) == Speed(0.1)
    assert kept_rates("a", Speed, never) == Speed(0.1)
    assert kept_rates("b", Speed, lambda: Speed(0.2)) == Speed(0.2)
    assert kept_rates("a", Speed, lambda: Speed(0.3), "gcc 12/x") == Speed(0.3)
    assert kept_rates("a", Speed, never, "gcc 12/x") == Speed(0.3)
    assert len(list(directory.glob("*.json"))) == 3


@pytest.mark.parametrize("text", ['{"turn": ', '{"turn": 1.0, "other": 2.0}', "[]", "null"])
def test_a_file_that_holds_something_else_is_replaced(directory, text):
    kept_rates("a", Speed, lambda: Speed(0.1))
    (file,) = directory.glob("*.json")
    file.write_text(text)
    assert kept_rates("a", Speed, lambda: Speed(0.4)) == Speed(0.4)
    assert kept_rates("a", Speed, never) == Speed(0.4)


def test_without_a_directory_they_are_measured_every_time(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRNQC_CACHE_DIR", str(tmp_path / "file"))
    assert kept_rates("a", Speed, lambda: Speed(0.1)) == Speed(0.1)
    assert kept_rates("a", Speed, lambda: Speed(0.2)) == Speed(0.2)


def test_data_caches(tmp_path, monkeypatch):
    for number, (kind, level, size) in enumerate(
        [("Data", 1, "48K"), ("Instruction", 1, "32K"), ("Unified", 2, "2048K")]
    ):
        entry = tmp_path / f"index{number}"
        entry.mkdir()
        for name, text in (("type", kind), ("level", level), ("size", size)):
            (entry / name).write_text(f"{text}\n")
    monkeypatch.setattr(memory, "_CACHES", tmp_path)
    assert data_caches() == {"L1": 49152, "L2": 2097152}
    monkeypatch.setattr(memory, "_CACHES", tmp_path / "none")
    assert data_caches() == {}
