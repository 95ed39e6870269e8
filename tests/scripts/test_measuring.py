"""The heading of records: command, versions and machine."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from scripts import ROOT
from scripts.measuring import command

ABSOLUTE = re.compile(r'"command": "[^"\n]*[ =]/')


@pytest.mark.parametrize("out", [["--out", "/somewhere/x.json"], ["--out=/somewhere/x.json"], []])
def test_a_command_does_not_say_where_its_record_lies(monkeypatch, out):
    monkeypatch.setattr(sys, "argv", ["bench.py", "--rounds", "3", *out, "--quick"])
    assert command().endswith(" --rounds 3 --quick")


@pytest.mark.parametrize("path", sorted((ROOT / "profiles").rglob("*.json")), ids=lambda path: path.name)
def test_no_record_names_a_place_of_one_machine(path: Path):
    assert not ABSOLUTE.search(path.read_text(encoding="utf-8"))


def test_the_pattern_sees_such_a_place():
    assert ABSOLUTE.search('"command": "python -m scripts.bench_cg --out /tmp/x.json"')
    assert not ABSOLUTE.search('"command": "python -m scripts.bench_cg --parts batch/conv"')
