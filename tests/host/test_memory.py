"""Memory limits as text, and the free memory of the machine."""

from __future__ import annotations

import math

import pytest

from trnqc.errors import InputError, MemoryLimit
from trnqc.host import memory
from trnqc.host.memory import (
    available_memory,
    control_group_room,
    gigabytes,
    installed_memory,
    parse_memory,
    require_memory,
)


@pytest.fixture(autouse=True)
def limits_are_read_anew():
    """The limit of a process is kept; these tests state limits of their own."""
    installed_memory.cache_clear()
    yield
    installed_memory.cache_clear()


@pytest.mark.parametrize(
    ("text", "value"), [("4G", 4e9), ("500M", 5e8), ("4000", 4e9), ("1.5 GB", 1.5e9), ("2t", 2e12), (" 8k ", 8e3)]
)
def test_sizes_as_people_write_them(text, value):
    assert parse_memory(text) == value


@pytest.mark.parametrize("text", ["", "G", "-4G", "0", "4X", "four"])
def test_sizes_that_are_none(text):
    with pytest.raises(InputError, match="such as 4G"):
        parse_memory(text)


def test_memory_of_this_machine():
    assert 1e7 < available_memory() < 1e15


def test_control_group(tmp_path):
    assert control_group_room([tmp_path]) == math.inf
    tmp_path.joinpath("memory.current").write_text("1000\n")
    tmp_path.joinpath("memory.max").write_text("max\n")
    assert control_group_room([tmp_path]) == math.inf
    tmp_path.joinpath("memory.max").write_text("5000\n")
    assert control_group_room([tmp_path]) == 4000
    tmp_path.joinpath("memory.stat").write_text("anon 100\ninactive_file 300\nactive_file 200\n")
    assert control_group_room([tmp_path]) == 4300


def test_the_tightest_of_nested_control_groups_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "_CONTROL_GROUPS", tmp_path / "groups")
    monkeypatch.setattr(memory, "_OWN_GROUP", tmp_path / "own")
    inner = tmp_path / "groups" / "slurm" / "job_7"
    inner.mkdir(parents=True)
    tmp_path.joinpath("own").write_text("1:cpu:/\n0::/slurm/job_7\n")
    assert memory.control_groups() == [inner, inner.parent, tmp_path / "groups"]
    for group, limit in ((inner, 9000), (inner.parent, 7000)):
        group.joinpath("memory.max").write_text(f"{limit}\n")
        group.joinpath("memory.current").write_text("1000\n")
    assert installed_memory() == 7000
    assert available_memory() == 6000


def test_words():
    assert (gigabytes(2.5e9), gigabytes(5e6)) == ("2.50 GB", "5 MB")


def test_a_control_group_limits_what_is_installed(tmp_path, monkeypatch):
    whole = installed_memory()
    installed_memory.cache_clear()
    monkeypatch.setattr(memory, "_CONTROL_GROUPS", tmp_path)
    monkeypatch.setattr(memory, "_OWN_GROUP", tmp_path / "none")
    tmp_path.joinpath("memory.max").write_text("5000\n")
    assert installed_memory() == 5000 < whole


def test_what_the_machine_cannot_hold_is_refused():
    require_memory(1, "a byte")
    with pytest.raises(MemoryLimit, match=r"the table needs [\d.]+ GiB; this machine has [\d.]+ GiB: take less"):
        require_memory(1e20, "the table", "take less")
