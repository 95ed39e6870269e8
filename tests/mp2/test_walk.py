"""docs/jobs.md walks from a molecule to its energy through functions that exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "jobs.md").read_text(encoding="utf-8")
NAMES = sorted(set(re.findall(r"`(trnqc(?:\.\w+)+)`", TEXT)))


def named(name: str) -> object:
    """The module, class, function or method of a dotted name."""
    parts = name.split(".")
    for n in range(len(parts), 0, -1):
        try:
            value: object = importlib.import_module(".".join(parts[:n]))
        except ModuleNotFoundError:
            continue
        for part in parts[n:]:
            value = getattr(value, part)
        return value
    raise ModuleNotFoundError(name)


@pytest.mark.parametrize("name", NAMES)
def test_functions_of_the_walk_exist(name):
    assert callable(named(name))


def test_the_walk_is_found():
    assert len(NAMES) > 20
    with pytest.raises(AttributeError):
        named("trnqc.mp2.execution.chose")
