"""Kernels give libcint's integrals, on random shells with two or three primitives each."""

from __future__ import annotations

import numpy as np
import pytest

from tests.eri.quartets import both
from trnqc.eri.classes import QuartetClass

CLASSES = ["0000", "1000", "0010", "1010", "1110", "1111", "2010", "2111", "2121", "3010", "0022", "1030"]


def cls_of(digits: str, **kind) -> QuartetClass:
    return QuartetClass(*map(int, digits), **kind)


def agree(found: tuple[np.ndarray, np.ndarray], error: float = 1e-12) -> None:
    ours, theirs = found
    assert np.abs(ours - theirs).max() <= error * max(1.0, np.abs(theirs).max())


@pytest.mark.parametrize("cartesian", [False, True])
@pytest.mark.parametrize("digits", CLASSES)
def test_integrals(digits, cartesian):
    agree(both(cls_of(digits, cartesian=cartesian)))


@pytest.mark.parametrize("operator", ["erf", "erfc"])
@pytest.mark.parametrize("omega", [0.11, 1.3])
@pytest.mark.parametrize("digits", ["0000", "1010", "2110"])
def test_range_separation(digits, operator, omega):
    agree(both(cls_of(digits, operator=operator), omega=omega))


@pytest.mark.parametrize("contractions", [(1, 1, 3, 1), (2, 1, 1, 1), (2, 3, 2, 2)])
@pytest.mark.parametrize("digits", ["0000", "1010", "2110"])
def test_general_contraction(digits, contractions):
    agree(both(cls_of(digits, general=True), primitives=3, contractions=contractions))
