"""Examples in docstrings of the tuner, its requests and the neuron backend give what they print."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize("name", ["autotune.command", "trnqc.tuning.requests", "trnqc.backends.neuron.packages"])
def test_examples_in_docstrings(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0 and result.failed == 0
