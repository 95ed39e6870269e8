"""The examples in the docstrings run."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize("name", ["derivatives", "imports", "program", "spaces", "subscripts", "symmetry", "text"])
def test_examples_of_docstrings(name):
    result = doctest.testmod(importlib.import_module(f"trnqc.expression.{name}"))
    assert result.attempted and not result.failed
