"""Limits in words and in numbers."""

from __future__ import annotations

import math

import pytest

from trnqc.chem.memory import FactorMemory, _control_group_room, available_memory, gigabytes, parse_memory
from trnqc.errors import InputError, MemoryLimit

SIZES = FactorMemory(nao=100, nocc=20, nvir=80, naux=500, threads=2)


@pytest.mark.parametrize(
    ("text", "value"), [("4G", 4e9), ("500M", 5e8), ("4000", 4e9), ("1.5 GB", 1.5e9), ("2t", 2e12), (" 8k ", 8e3)]
)
def test_sizes_as_people_write_them(text, value):
    assert parse_memory(text) == value


@pytest.mark.parametrize("text", ["", "G", "-4G", "0", "4X", "four"])
def test_sizes_that_are_none(text):
    with pytest.raises(InputError, match="such as 4G"):
        parse_memory(text)


def test_blocks_shrink_with_the_limit_and_keep_to_it():
    fixed = SIZES.factors + SIZES.metric + SIZES.squares
    widths = [SIZES.block_width(fixed + k * SIZES.column, smallest=7) for k in (7, 10.5, 40, 1e6)]
    assert widths == [7, 10, 40, 63]
    assert SIZES.block_width(None, smallest=7) == 63


def test_too_little_memory_gives_both_figures():
    with pytest.raises(MemoryLimit, match=r"need [\d.]+ MB.*limit is 5 MB.*raise the limit"):
        SIZES.block_width(5e6, smallest=7)


def test_memory_of_this_machine():
    assert 1e7 < available_memory() < 1e15


def test_control_group(tmp_path):
    assert _control_group_room(tmp_path) == math.inf
    tmp_path.joinpath("memory.current").write_text("1000\n")
    tmp_path.joinpath("memory.max").write_text("max\n")
    assert _control_group_room(tmp_path) == math.inf
    tmp_path.joinpath("memory.max").write_text("5000\n")
    assert _control_group_room(tmp_path) == 4000


def test_words():
    assert (gigabytes(2.5e9), gigabytes(5e6)) == ("2.50 GB", "5 MB")
