"""Limits in words and in numbers."""

from __future__ import annotations

import math

import pytest

from trnqc.errors import InputError, MemoryLimit
from trnqc.mp2.jobs.memory import (
    FactorMemory,
    FactorPlan,
    _control_group_room,
    available_memory,
    gigabytes,
    parse_memory,
)

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
    plans = [SIZES.plan(SIZES.fixed + k * SIZES.column, smallest=7) for k in (7, 10.5, 40, 1e6)]
    assert plans == [FactorPlan(width, False) for width in (7, 10, 40, 63)]
    assert SIZES.plan(None, smallest=7) == FactorPlan(63, False)


def test_what_does_not_fit_goes_to_disk():
    assert SIZES.plan(SIZES.in_memory(7) - 1, smallest=7).on_disk
    assert SIZES.plan(SIZES.in_memory(7), smallest=7, pairs=SIZES.in_memory(7) - SIZES.factors + 1).on_disk
    assert SIZES.plan(None, smallest=7, on_disk=True) == FactorPlan(63, True)
    for limit in (7e6, 8e6, 1e8):
        plan = SIZES.plan(limit, smallest=7, on_disk=True)
        assert plan.on_disk and 7 <= plan.width <= 63
        assert SIZES.on_disk(plan.width) <= limit
    assert SIZES.on_disk(7) < SIZES.in_memory(7)


def test_too_little_memory_gives_the_least_that_will_do():
    with pytest.raises(MemoryLimit, match=r"need at least [\d.]+ MB.*limit is 3 MB.*raise the limit") as caught:
        SIZES.plan(3e6, smallest=7)
    least = 1e6 * float(str(caught.value).split("at least ")[1].split(" MB")[0])
    assert SIZES.on_disk(7) == pytest.approx(least, rel=1e-2)
    assert SIZES.plan(SIZES.on_disk(7), smallest=7).on_disk
    with pytest.raises(MemoryLimit):
        SIZES.plan(SIZES.on_disk(7) - 1, smallest=7)


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
