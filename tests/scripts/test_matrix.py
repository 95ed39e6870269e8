"""Rows of scripts.matrix: what is installed, and what counts as a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import ROOT
from scripts.matrix import rows
from trnqc.errors import InputError

REPORT = """<testsuites><testsuite tests="4" failures="1" errors="1" skipped="1">
<testcase classname="tests.a" name="one"/>
<testcase classname="tests.a" name="two"><failure message="assert 1 == 2&#10;more">...</failure></testcase>
<testcase classname="" name="tests.b"><error message="collection failure"/></testcase>
<testcase classname="tests.a" name="four"><skipped/></testcase>
</testsuite></testsuites>"""


def test_requirements_are_those_of_the_project_of_the_extras_and_of_the_tests():
    plain, torch = rows.requirements([]), rows.requirements(["torch"])
    assert {"numpy", "pyscf", "pytest"} <= {rows._name(text) for text in plain}
    assert {rows._name(text) for text in set(torch) - set(plain)} == {"torch", "e3nn"}
    with pytest.raises(InputError, match="found nothing_like_it"):
        rows.requirements(["nothing_like_it"])


def test_the_tests_exist():
    paths = [path for tests in rows.TESTS.values() for path in tests]
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_a_report_is_counted(tmp_path: Path):
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    assert rows.counted(report) == (1, 2, 1)
    assert rows.failures(report) == ["tests.a::two: ['assert 1 == 2']", "::tests.b: ['collection failure']"]


def test_a_row_without_tests_or_with_a_failure_fails():
    assert rows.Row("3.11", "oldest", passed=3).sound
    assert not rows.Row("3.11", "oldest").sound
    assert not rows.Row("3.11", "oldest", passed=3, failed=1, failures=["tests.a::two"]).sound


def test_a_python_that_is_not_there_fails_its_row(tmp_path, monkeypatch):
    def no_python(*arguments: str) -> str:
        raise InputError("no interpreter found for Python 3.99")

    monkeypatch.setattr(rows, "_uv", no_python)
    row = rows.run_row("3.99", "oldest", [], tmp_path, ["tests/host"])
    assert not row.sound and row.failures == ["no interpreter found for Python 3.99"]
