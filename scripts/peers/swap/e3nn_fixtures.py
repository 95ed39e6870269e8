"""A pytest plugin with the fixtures that e3nn's tests find in their conftest.py, and with one seed for all runs.

e3nn draws the parameters of some tests at random while they are collected: without a seed no test of one run would have
the name of one in another.
"""

from __future__ import annotations

import random

import pytest
from e3nn.util import test

float_tolerance = test.float_tolerance


def pytest_configure() -> None:
    random.seed(0)


@pytest.fixture(autouse=True)
def set_random_seed() -> None:
    test.set_random_seeds()
