"""The examples in the docstrings run."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize("name", ["energy", "extrapolation", "counterpoise", "triples.energy"])
def test_examples_of_docstrings(name):
    result = doctest.testmod(importlib.import_module(f"trnqc.interfaces.{name}"))
    assert result.attempted and not result.failed
