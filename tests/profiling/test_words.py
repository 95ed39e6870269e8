"""Printed figures have four digits and a suitable unit."""

from __future__ import annotations

import pytest

from trnqc.profiling import words


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        *(
            (0, "0 ns"),
            (0.25, "0.25 ns"),
            (189, "189 ns"),
            (999.99999, "1 µs"),
            (1416, "1.416 µs"),
            (27.9e6, "27.9 ms"),
        ),
        *((5.43e9, "5.43 s"), (30270e9, "30270 s"), (-250, "-250 ns"), (-1500, "-1.5 µs")),
    ],
)
def test_durations(ns, text):
    assert words.duration(ns) == text


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("tensor_engine_active_time_percent", 99.5, "99.50 %"),
        ("total_time", 0.017, "17 ms"),
        ("hbm_read_bytes", 31017606071, "31.02 GB"),
        ("hardware_flops", 5.5e11, "550 Gflop"),
        ("matmul_instruction_count", 1879.0, "1\u202f879"),
        ("mm_arithmetic_intensity", 102.4, "102.4 flop/B"),
        ("nd_idx", "2", "2"),
        ("hbm_read_bytes", None, "–"),
    ],
)
def test_summary_values(name, value, text):
    assert words.value(name, value) == text


@pytest.mark.parametrize(
    ("ns", "step", "largest", "text"),
    [
        *((0, 1e5, 9e5, "0 µs"), (1e5, 1e5, 9e5, "100 µs"), (55_002_000, 2000, 55_010_000, "55.002 ms")),
        *((2e9, 5e8, 4e9, "2.0 s"), (3, 0.5, 7, "3.0 ns")),
    ],
)
def test_moments_that_differ_look_different(ns, step, largest, text):
    assert words.moment(ns, step, largest) == text


def test_binary_prefixes():
    assert words.amount(192 * 1024, "B", 1024) == "192 KiB"


def test_every_field_stands_in_one_group():
    names = ["total_time", "event_count", "hbm_read_bytes", "total_time_of_mine"]
    groups = words.grouped(names)
    assert list(groups) == ["Time", "Memory", "Other"]
    assert sorted(name for group in groups.values() for name in group) == sorted(names)
