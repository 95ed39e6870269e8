"""Mutants of sources: what is changed, and how rooms share them."""

from __future__ import annotations

import ast
import subprocess
from collections import Counter

import pytest

from scripts.changed import mutants
from scripts.changed.mutants import Mutant, asked, drawn, mutants_of, nearest_first, recorded, seen_by

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


def test_a_recorded_mutant_is_found_where_it_stands_now(tmp_path):
    (tmp_path / "a.py").write_text("# A new line.\n" + SOURCE)
    last = [m for m, _ in mutants_of("a.py", SOURCE) if m.before == "1"][-1]
    row = {**vars(last), "quick": "tests/a/test_a.py::test_a", "all": "tests/a/test_a.py::test_a"}
    found = recorded([row | {"quick": ""}, row], ["test_a.py"], tmp_path)
    assert {n: mutant for n, (mutant, _) in found.items()} == {1: Mutant("a.py", last.line + 1, "1", "2")}
    with pytest.raises(ValueError, match=r"a\.py has no 'more\[7\]' any more"):
        recorded([row | {"before": "more[7]"}], ["test_a.py"], tmp_path)


@pytest.mark.parametrize("fails", ["always", "with the mutant"])
def test_a_test_that_fails_without_the_mutant_has_not_seen_it(tmp_path, monkeypatch, fails):
    def killed(tree, files, quick, minutes):
        seen = fails == "always" or "<=" in (tree / "a.py").read_text()
        return "tests/test_b.py::test_b" if seen and "tests/test_b.py" in files else ""

    monkeypatch.setattr(mutants, "killed", killed)
    (tmp_path / "a.py").write_text(SOURCE)
    mutant, text = next((m, text) for m, text in mutants_of("a.py", SOURCE) if "<=" in m.after)
    files = ["tests/test_a.py", "tests/test_b.py"]
    if fails == "always":
        with pytest.raises(RuntimeError, match="test_b fails on the sources as they are"):
            asked(tmp_path, mutant, text, files, 1.0)
    else:
        assert asked(tmp_path, mutant, text, files, 1.0)["quick"] == "tests/test_b.py::test_b"
    assert (tmp_path / "a.py").read_text() == SOURCE


def test_the_tests_run_in_a_clone_with_the_files_as_they_are(tmp_path):
    mutants.working_tree(tmp_path)
    place = tmp_path / "scripts/changed/mutants.py"
    assert place.read_bytes() == (mutants.ROOT / "scripts/changed/mutants.py").read_bytes()
    untracked = subprocess.run(
        ["git", "status", "--porcelain"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "??" not in untracked.stdout
