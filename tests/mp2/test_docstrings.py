"""The examples in the docstrings run."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize(
    "name",
    [
        "trnqc.host.memory",
        "trnqc.mp2.energy",
        "trnqc.mp2.hybrids.double_hybrid",
        "trnqc.mp2.hybrids.recipes",
        "trnqc.mp2.rings.methods",
    ],
)
def test_examples_of_docstrings(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted and not result.failed
