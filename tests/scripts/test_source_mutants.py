"""Mutants of sources: what is changed, and how rooms share them."""

from __future__ import annotations

import ast
from collections import Counter

from scripts.changed.mutants import drawn, mutants_of, nearest_first, seen_by

SOURCE = '''"""A module with 1 number."""

LIMIT = 3


def least(values, more):
    """The least of 2 values."""
    if len(values) < 2 and more:
        raise ValueError("at least 2" + more)
    return values[0] - values[1] * more
'''


def test_each_mutant_changes_one_expression_of_a_function():
    found = list(mutants_of("a.py", SOURCE))
    changes = {(mutant.before, mutant.after) for mutant, _ in found}
    assert ("len(values) < 2", "len(values) <= 2") in changes
    assert ("len(values) < 2 and more", "len(values) < 2 or more") in changes
    assert ("values[1] * more", "values[1] + more") in changes
    assert ("1", "2") in changes
    for mutant, text in found:
        ast.parse(text)
        assert sum(a != b for a, b in zip(text.splitlines(), SOURCE.splitlines())) == 1
        assert "LIMIT = 3" in text and mutant.line > 6


def test_rooms_get_equal_shares_and_a_seed_repeats_them():
    chosen = drawn(60, 5, ("sparse", "ranks"))
    rooms = Counter(mutant.file.split("/")[1] for mutant, _ in chosen)
    assert set(rooms) == {"sparse", "ranks"} and min(rooms.values()) > 15
    assert [mutant for mutant, _ in drawn(60, 5, ("sparse", "ranks"))] == [mutant for mutant, _ in chosen]


def test_the_folder_of_a_changed_file_is_tested_first():
    tests = ["tests/cg/test_api.py", "tests/eri/jk/test_builder.py", "tests/eri/test_api.py", "tests/test_map.py"]
    ordered = nearest_first(tests, "trnqc/eri/jk/builder.py")
    assert ordered == [tests[1], tests[2], tests[0], tests[3]]


def test_tests_that_run_out_of_time_have_seen_nothing():
    assert seen_by("time", "time") == seen_by("", "time") == "none within the limit of time"
    assert [seen_by("a", "a"), seen_by("", "b"), seen_by("", "")] == ["quick tests", "all tests only", "none"]
