"""Integral classes named by digits: 2111 is (dp|pp)."""

from __future__ import annotations

from trnqc.eri.classes import QuartetClass


def quartet(digits: str, cartesian: bool = False) -> QuartetClass:
    """The class of shells with these angular momenta, one digit each."""
    la, lb, lc, ld = map(int, digits)
    return QuartetClass(la, lb, lc, ld, cartesian=cartesian)
