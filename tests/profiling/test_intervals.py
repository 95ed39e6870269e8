"""Interval arithmetic on whole endpoints against sets of unit steps."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trnqc.profiling import intervals

POINT = st.integers(-20, 40)
MANY = st.lists(st.tuples(POINT, POINT), max_size=12).map(lambda rows: np.asarray(rows, dtype=float).reshape(-1, 2))


def steps(a: np.ndarray) -> set[int]:
    return {k for start, end in a for k in range(int(start), int(end))}


def is_normal(a: np.ndarray) -> bool:
    flat = a.ravel()
    return bool(np.all(flat[1:] > flat[:-1]))


@given(MANY)
def test_union_keeps_every_step_once(a):
    u = intervals.union(a)
    assert is_normal(u)
    assert steps(u) == steps(a)
    assert intervals.total(u) == len(steps(a))


@given(MANY, MANY)
def test_intersection_is_common_time(a, b):
    a, b = intervals.union(a), intervals.union(b)
    common = intervals.intersection(a, b)
    assert is_normal(common)
    assert steps(common) == steps(a) & steps(b)
    assert intervals.total(a) + intervals.total(b) == intervals.total(intervals.merge(a, b)) + intervals.total(common)


@given(MANY, POINT, st.integers(0, 30))
def test_complement_fills_the_window(a, start, length):
    a, end = intervals.union(a), start + length
    rest = intervals.complement(a, start, end)
    assert is_normal(rest)
    assert steps(rest) == set(range(start, end)) - steps(a)


@given(MANY, st.lists(POINT, min_size=2, max_size=9, unique=True).map(sorted))
def test_coverage_counts_steps_in_each_bin(a, edges):
    a = intervals.union(a)
    busy = intervals.coverage(a, np.asarray(edges, dtype=float))
    assert busy.tolist() == [len(steps(a) & set(range(lo, hi))) for lo, hi in pairwise(edges)]


@pytest.mark.parametrize("a", [[], [[3, 3]], [[5, 2]]])
def test_nothing_is_nothing(a):
    u = intervals.union(np.asarray(a, dtype=float).reshape(-1, 2))
    assert u.shape == (0, 2)
    assert intervals.total(u) == 0
    assert intervals.intersection(u, np.asarray([[0.0, 1.0]])).shape == (0, 2)


def test_large_clocks_stay_exact():
    start = 2.0**53 - 10
    assert intervals.total(intervals.union(np.asarray([[start, start + 3], [start + 1, start + 4]]))) == 4
