"""The examples in docstrings run and print what they say."""

import doctest
import importlib

import pytest


@pytest.mark.parametrize("name", ["api", "network.network", "network.views", "tensors.convert", "tensors.storage"])
def test_examples(name):
    result = doctest.testmod(importlib.import_module(f"trnqc.sparse.{name}"))
    assert result.attempted and not result.failed
